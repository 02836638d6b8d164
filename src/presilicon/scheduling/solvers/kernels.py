"""Numba kernels: list scheduling by priority, and simulated annealing over modes and priorities."""

import numba
import numpy as np

from presilicon.scheduling.solvers.tables import Array, Tables

_NEVER = 1e300
GROUP = 12
"""Most ops that change modes at once, or classes of alike ones."""
ALIKE = 0.3
"""Share of changes that go to all ops that are alike, so that the layers of a model change together."""


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def place(
    table: Tables, mode: Array, priority: Array, spare_w: float, starts: Array, moves: Array
) -> tuple[float, float]:
    """Start ops and moves as soon as possible, highest priority first; `mode` holds mode numbers over all tasks.

    An op starts when its inputs have arrived, enough units are free, its result fits into the memory and the peaks stay
    within `spare_w` above idle. A move waits for its link and for memory, and is as urgent as the most urgent op that
    waits for it; moves for the next step come last. If only memory keeps everything from going on, it is exceeded.
    Writes the starts of ops, and start and end of moves: of each task those to every pool and the one to the host, then
    of each input those to every pool; -1 if there is none. Returns the makespan, infinite if an op can never start, and
    the largest share by which memory is exceeded.
    """
    count, pools = len(mode), len(table.pool_units)
    missing = np.empty(count, np.int64)
    waiting, waits = np.empty((pools, count), np.int64), np.zeros(pools, np.int64)  # lowest priority first
    running = np.empty(count, np.int64)
    runs = 0
    ends = np.empty(count)
    free = table.pool_units.copy()
    power = 0.0
    moves[:, :] = -1.0
    needs = np.full((count, pools), -2.0)  # how urgent a result is: -2 not at all, -1 in the next step
    queue = np.empty((pools * 2, len(moves)), np.int64)  # moves that wait at a pool's link, least urgent first
    urgency, queued = np.empty(len(moves)), np.zeros(pools * 2, np.int64)
    moving = np.empty(len(moves), np.int64)
    movers = 0
    slots = np.empty(pools * 2, np.int64)
    for pool in range(pools):
        slots[pool * 2 : pool * 2 + 2] = table.pool_units[pool] if table.links_queue[0] else len(moves)
    rows = count + len(table.input_bytes)
    limited = np.any(table.memory < np.inf)
    use = np.zeros(pools)
    left = np.zeros((rows if limited else 0, pools), np.int64)  # who still needs a result on a pool
    past = np.zeros((rows if limited else 0, pools), np.int64)  # the same for results of the last step
    excess = 0.0
    for task in range(count):
        missing[task] = table.dep_first[task + 1] - table.dep_first[task]
        if missing[task] == 0:
            _insert(waiting, waits, table.pool[mode[task]], task, priority)
    for number in range(len(table.input_bytes)):
        for edge in range(table.input_first[number], table.input_first[number + 1]):
            pool = table.pool[mode[table.input_readers[edge]]]
            move = count * (pools + 1) + number * pools + pool
            if moves[move, 0] == -1.0:
                moves[move, 0] = -2.0
                _enqueue(queue, urgency, queued, pool * 2, move, -1.0)
    if limited:
        for task in range(count):
            use[table.pool[mode[task]]] += table.held[task]
            for edge in range(table.past_first[task], table.past_first[task + 1]):
                row, pool = table.past[edge], table.pool[mode[task]]
                if past[row, pool] == 0:
                    use[pool] += _bytes(table, row, pool, mode)
                past[row, pool] += 1
        left[:, :] = past > 0  # what the next step needs stays
        for pool in range(pools):
            excess = max(excess, use[pool] / table.memory[pool] - 1.0)
    now = 0.0
    done = 0
    forced = False
    while done < count or movers > 0 or queued.sum() > 0:
        # Start the ops that can start now.
        pointer = waits - 1
        while True:
            pool = -1
            for other in range(pools):
                if pointer[other] < 0 or free[other] == 0:
                    continue
                if pool < 0 or priority[waiting[other, pointer[other]]] > priority[waiting[pool, pointer[pool]]]:
                    pool = other
            if pool < 0:
                break
            task = waiting[pool, pointer[pool]]
            task_mode = mode[task]
            fits = forced or use[pool] + table.bytes_out[task] <= table.memory[pool]
            if fits and free[pool] >= table.units[task_mode] and power + table.extra_w[task_mode] <= spare_w:
                forced = False
                free[pool] -= table.units[task_mode]
                power += table.extra_w[task_mode]
                starts[task] = now
                ends[task] = now + table.time[task_mode]
                running[runs] = task
                runs += 1
                _remove(waiting, waits, pool, pointer[pool])
                if limited:
                    left[task, pool] += 1
                    crosses = False
                    for edge in range(table.reader_first[task], table.reader_first[task + 1]):
                        crosses |= table.pool[mode[table.readers[edge]]] != pool
                    for edge in range(table.follower_first[task], table.follower_first[task + 1]):
                        crosses |= table.pool[mode[table.followers[edge]]] != pool
                        left[task, pool] += table.pool[mode[table.followers[edge]]] == pool
                    left[task, pool] += crosses
                    use[pool] += table.bytes_out[task]
                    excess = max(excess, use[pool] / table.memory[pool] - 1.0)
            pointer[pool] -= 1
        # Start the moves whose links are free.
        for lane in range(pools * 2):
            index = queued[lane] - 1
            while index >= 0 and slots[lane] > 0:
                move = queue[lane, index]
                task, pool, way, length = _link(table, mode, move, pools)
                row = task if task >= 0 else count + (move - count * (pools + 1)) // pools
                if way == 1 or forced or use[pool] + _bytes(table, row, pool, mode) <= table.memory[pool]:
                    slots[lane] -= length > 0.0
                    moves[move, 0] = now
                    moves[move, 1] = now + length
                    moving[movers] = move
                    movers += 1
                    _remove(queue, queued, lane, index)
                    if limited and way == 0:
                        forced = False
                        use[pool] += _bytes(table, row, pool, mode)
                        excess = max(excess, use[pool] / table.memory[pool] - 1.0)
                        left[row, pool] += 1
                        if task >= 0:
                            for edge in range(table.follower_first[task], table.follower_first[task + 1]):
                                left[row, pool] += table.pool[mode[table.followers[edge]]] == pool
                index -= 1
        if runs + movers == 0:
            if forced or not limited:
                return np.inf, excess
            forced = True
            continue
        forced = False
        later = _NEVER
        for index in range(runs):
            later = min(later, ends[running[index]])
        for index in range(movers):
            later = min(later, moves[moving[index], 1])
        now = later
        # Finish the ops that end by then.
        remaining = 0
        for index in range(runs):
            task = running[index]
            if ends[task] > now:
                running[remaining] = task
                remaining += 1
                continue
            done += 1
            task_mode = mode[task]
            own = table.pool[task_mode]
            free[own] += table.units[task_mode]
            power -= table.extra_w[task_mode]
            urgent = -2.0
            for edge in range(table.reader_first[task], table.reader_first[task + 1]):
                target = table.pool[mode[table.readers[edge]]]
                if target != own:
                    needs[task, target] = max(needs[task, target], -1.0)
                    urgent = max(urgent, -1.0)
            for edge in range(table.follower_first[task], table.follower_first[task + 1]):
                follower = table.followers[edge]
                target = table.pool[mode[follower]]
                if target != own:
                    needs[task, target] = max(needs[task, target], priority[follower])
                    urgent = max(urgent, priority[follower])
                    continue
                missing[follower] -= 1
                if missing[follower] == 0:
                    _insert(waiting, waits, own, follower, priority)
            if urgent > -2.0:
                _enqueue(queue, urgency, queued, own * 2 + 1, task * (pools + 1) + pools, urgent)
            if limited:
                _release(table, mode, left, use, task, own)
                for edge in range(table.dep_first[task], table.dep_first[task + 1]):
                    _release(table, mode, left, use, table.deps[edge], own)
                for edge in range(table.past_first[task], table.past_first[task + 1]):
                    _release(table, mode, past, use, table.past[edge], own)
        runs = remaining
        if runs == 0:
            power = 0.0  # do not accumulate rounding errors
        # Finish the moves that end by then.
        remaining = 0
        for index in range(movers):
            move = moving[index]
            if moves[move, 1] > now:
                moving[remaining] = move
                remaining += 1
                continue
            task, pool, way, length = _link(table, mode, move, pools)
            slots[pool * 2 + way] += length > 0.0
            if limited:
                row = task if task >= 0 else count + (move - count * (pools + 1)) // pools
                _release(table, mode, left, use, row, pool)
            if way == 1:  # with the host: on to every pool that needs it
                for target in range(pools):
                    if needs[task, target] > -2.0:
                        onward = task * (pools + 1) + target
                        _enqueue(queue, urgency, queued, target * 2, onward, needs[task, target])
            elif task >= 0:
                for edge in range(table.follower_first[task], table.follower_first[task + 1]):
                    follower = table.followers[edge]
                    if table.pool[mode[follower]] == pool:
                        missing[follower] -= 1
                        if missing[follower] == 0:
                            _insert(waiting, waits, pool, follower, priority)
        movers = remaining
    return now, excess


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _bytes(table: Tables, row: int, pool: int, mode: Array) -> float:
    """Memory that a result or, after those, an input takes on a pool; a copy that came for free takes none."""
    count = len(table.bytes_out)
    if table.hop[pool] == 0.0 and (row >= count or table.pool[mode[row]] != pool):
        return 0.0
    return table.bytes_out[row] if row < count else table.input_bytes[row - count]  # type: ignore[no-any-return]


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _release(table: Tables, mode: Array, left: Array, use: Array, row: int, pool: int) -> None:
    left[row, pool] -= 1
    if left[row, pool] == 0:
        use[pool] -= _bytes(table, row, pool, mode)


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _remove(lists: Array, lengths: Array, row: int, index: int) -> None:
    lengths[row] -= 1
    for place in range(index, lengths[row]):
        lists[row, place] = lists[row, place + 1]


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _rooms(table: Tables) -> int:
    """The number of moves that `place` may write."""
    pools = len(table.pool_units)
    return len(table.bytes_out) * (pools + 1) + len(table.input_bytes) * pools


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _link(table: Tables, mode: Array, move: int, pools: int) -> tuple[int, int, int, float]:
    """Task (-1 for an input), pool, direction (1: to the host) and time of a move."""
    task, slot = move // (pools + 1), move % (pools + 1)
    if task >= len(mode):
        number, slot = divmod(move - len(mode) * (pools + 1), pools)
        return -1, slot, 0, table.input_bytes[number] * table.hop[slot]
    if slot < pools:
        return task, slot, 0, table.bytes_out[task] * table.hop[slot]
    own = table.pool[mode[task]]
    return task, own, 1, table.bytes_out[task] * table.hop[own]


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _insert(waiting: Array, waits: Array, pool: int, task: int, priority: Array) -> None:
    index = waits[pool]
    while index > 0 and priority[waiting[pool, index - 1]] >= priority[task]:
        waiting[pool, index] = waiting[pool, index - 1]
        index -= 1
    waiting[pool, index] = task
    waits[pool] += 1


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _enqueue(queue: Array, urgency: Array, queued: Array, lane: int, move: int, urgent: float) -> None:
    urgency[move] = urgent
    index = queued[lane]
    while index > 0 and urgency[queue[lane, index - 1]] >= urgent:
        queue[lane, index] = queue[lane, index - 1]
        index -= 1
    queue[lane, index] = move
    queued[lane] += 1


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def value_of(
    span: float, excess: float, extra_j: float, idle_w: float, limit_s: float, time_weight: float, penalties_w: Array
) -> tuple[float, float]:
    """Energy, weighted time, and a penalty per second above the limit, or share of memory: a low and a high one.

    The low one lets the search pass through schedules that are a little too long, which the high one does not.
    """
    if span == np.inf:
        return np.inf, np.inf
    value = extra_j + idle_w * span + time_weight * span
    above, over = max(0.0, span - limit_s), span * excess
    # Anything outside the limits is worse than anything within them.
    outside = span + above + over if above > limit_s * 1e-12 or over > 0.0 else 0.0
    return value + penalties_w[0] * above + penalties_w[1] * over, value + penalties_w[1] * outside


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _modes(table: Tables, task: int) -> int:
    return table.mode_first[task + 1] - table.mode_first[task]  # type: ignore[no-any-return]


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _change(
    table: Tables, mode: Array, task: int, pool: int, alike: bool, changed: Array, old_modes: Array, changes: int
) -> int:
    """Give a task, or all tasks that are alike, another mode, of that pool unless it is -1, and note the old ones."""
    first, count = table.mode_first[task], _modes(table, task)
    offset = np.random.randint(count)
    for step in range(count):
        own = (offset + step) % count
        if first + own == mode[task] or (pool >= 0 and table.pool[first + own] != pool):
            continue
        kind = table.like_class[task]
        begin, end = table.like_first[kind], table.like_first[kind + 1]
        for index in range(begin, end if alike else begin + 1):
            member = table.like[index] if alike else task
            new = table.mode_first[member] + own
            if mode[member] != new and changes < len(changed):
                changed[changes], old_modes[changes] = member, mode[member]
                mode[member] = new
                changes += 1
        break
    return changes


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _neighbour(table: Tables, task: int) -> int:
    """An op that reads the result of a task or whose result it reads; the task itself if there is none."""
    before = table.dep_first[task + 1] - table.dep_first[task]
    after = table.follower_first[task + 1] - table.follower_first[task]
    if before + after == 0:
        return task
    pick = np.random.randint(before + after)
    if pick < before:
        return table.deps[table.dep_first[task] + pick]  # type: ignore[no-any-return]
    return table.followers[table.follower_first[task] + pick - before]  # type: ignore[no-any-return]


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _draw(lengths: Array) -> int:
    """A random op; every second time a long one is likelier. `lengths` are summed up to each op."""
    if np.random.random() < 0.5:
        return np.random.randint(len(lengths))
    return min(np.searchsorted(lengths, lengths[-1] * np.random.random()), len(lengths) - 1)  # type: ignore[no-any-return]


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def anneal(
    table: Tables,
    mode: Array,
    priority: Array,
    best_mode: Array,
    best_priority: Array,
    state: Array,
    goals: Array,
    heat: float,
    rounds: int,
    seed: int,
) -> int:
    """Try `rounds` changes at one temperature; updates the current and the best value in `state`.

    `goals`: spare power, idle power, limit on the makespan, weight of time, and two penalties (see `value_of`).
    """
    np.random.seed(seed)
    count = len(mode)
    starts, moves = np.empty(count), np.empty((_rooms(table), 2))
    spare_w, idle_w, limit_s, time_weight = goals[:4]
    extra = 0.0
    for task in range(count):
        extra += table.extra_j[mode[task]]
    current, best = state[0], state[1]
    accepted = 0
    changed, old_modes = np.empty(4 * count, np.int64), np.empty(4 * count, np.int64)
    old_priority = priority.copy()
    lengths = np.empty(count)
    for task in range(count):
        lengths[task] = np.min(table.time[table.mode_first[task] : table.mode_first[task + 1]])
    lengths = np.cumsum(lengths)
    for _ in range(rounds):
        task, other = _draw(lengths), _draw(lengths)
        changes, reordered = 0, False
        draw, alike = np.random.random(), np.random.random() < ALIKE
        if draw < 0.35:
            changes = _change(table, mode, task, -1, alike, changed, old_modes, changes)
        elif draw < 0.5:
            # Two ops change modes: one may use what the other frees.
            changes = _change(table, mode, task, -1, alike, changed, old_modes, changes)
            if table.like_class[other] != table.like_class[task]:
                changes = _change(table, mode, other, -1, alike, changed, old_modes, changes)
        elif draw < 0.7:
            # Ops that read one another go to one pool: tensors between them need no link.
            pool = table.pool[table.mode_first[task] + np.random.randint(_modes(table, task))]
            for _ in range(np.random.randint(2, GROUP + 1)):
                if table.pool[mode[task]] != pool:
                    changes = _change(table, mode, task, pool, alike, changed, old_modes, changes)
                task = _neighbour(table, task)
        elif alike:
            reordered = True
            kind, shift = table.like_class[task], 0.2 * (np.random.random() - 0.5)
            for index in range(table.like_first[kind], table.like_first[kind + 1]):
                priority[table.like[index]] = min(max(priority[table.like[index]] + shift, 0.0), 1.0)
        elif draw < 0.87:
            reordered = True
            priority[task] = np.random.random()
        else:
            reordered = True
            priority[task], priority[other] = priority[other], priority[task]
        change = 0.0
        for index in range(changes):
            change += table.extra_j[mode[changed[index]]] - table.extra_j[old_modes[index]]
        span, excess = place(table, mode, priority, spare_w, starts, moves)
        value, found = value_of(span, excess, extra + change, idle_w, limit_s, time_weight, goals[4:])
        if value <= current or np.random.random() < np.exp(min(0.0, (current - value) / heat)):
            current = value
            extra += change
            accepted += 1
            if reordered:
                old_priority[:] = priority
            if found < best - 1e-12:
                best = found
                best_mode[:] = mode
                best_priority[:] = priority
        else:
            for index in range(changes - 1, -1, -1):
                mode[changed[index]] = old_modes[index]
            if reordered:
                priority[:] = old_priority
    state[0], state[1] = current, best
    return accepted
