"""Numba kernel: list scheduling by priority, of ops on pools and of moves on links."""

import numba
import numpy as np

from presilicon.scheduling.solvers.tables import Array, Tables

_NEVER = 1e300


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
    count, pools, pool_of = len(mode), len(table.pool_units), table.pool
    follower_first, followers = table.follower_first, table.followers  # readers in this step
    reader_first, readers = table.reader_first, table.readers  # and in the next
    waiting, waits = np.empty((pools, count), np.int64), np.zeros(pools, np.int64)  # lowest priority first
    missing = table.dep_first[1:] - table.dep_first[:-1]  # inputs that each op waits for
    for task in range(count):
        if missing[task] == 0:
            _insert(waiting, waits, table.pool[mode[task]], task, priority)
    running, runs, ends = np.empty(count, np.int64), 0, np.empty(count)
    free, power = table.pool_units.copy(), 0.0
    needs = np.full((count, pools), -2.0)  # how urgent a result is: -2 not at all, -1 in the next step
    queue = np.empty((pools * 2, len(moves)), np.int64)  # moves that wait at a pool's link, least urgent first
    urgency, queued = np.empty(len(moves)), np.zeros(pools * 2, np.int64)
    _queue_inputs(table, mode, moves, queue, urgency, queued)
    moving, movers = np.empty(len(moves), np.int64), 0
    slots = np.repeat(table.pool_units if table.links_queue[0] else np.full(pools, len(moves)), 2)
    limited = np.any(table.memory < np.inf)
    rows = count + len(table.input_bytes) if limited else 0
    use = np.zeros(pools)
    left = np.zeros((rows, pools), np.int64)  # who still needs a result on a pool
    past = np.zeros((rows, pools), np.int64)  # the same for results of the last step
    if limited:
        _hold(table, mode, use, left, past)
    excess = max(0.0, np.max(use / table.memory - 1.0))
    now, done, forced = 0.0, 0, False
    while done < count or movers > 0 or queued.sum() > 0:
        # Start the ops that can start now.
        pointer = waits - 1
        pool = _most_urgent(waiting, pointer, free, priority)
        while pool >= 0:
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
                    # It stays until it has ended, its readers here have run and, if there are others, it has left.
                    near = _near(follower_first, followers, task, pool, pool_of, mode)
                    crosses = near < follower_first[task + 1] - follower_first[task]
                    near_next = _near(reader_first, readers, task, pool, pool_of, mode)
                    crosses |= near_next < reader_first[task + 1] - reader_first[task]
                    left[task, pool] += 1 + near + crosses
                    use[pool] += table.bytes_out[task]
                    excess = max(excess, use[pool] / table.memory[pool] - 1.0)
            pointer[pool] -= 1
            pool = _most_urgent(waiting, pointer, free, priority)
        # Start the moves whose links are free.
        for lane in range(pools * 2):
            index = queued[lane] - 1
            while index >= 0 and slots[lane] > 0:
                move = queue[lane, index]
                task, pool, way, length = _link(table, mode, move, pools)
                row = _row(task, move, count, pools)
                if way == 1 or forced or use[pool] + _bytes(table, row, pool, mode) <= table.memory[pool]:
                    slots[lane] -= length > 0.0
                    moves[move, 0], moves[move, 1] = now, now + length
                    moving[movers] = move
                    movers += 1
                    _remove(queue, queued, lane, index)
                    if limited and way == 0:
                        forced = False
                        use[pool] += _bytes(table, row, pool, mode)
                        excess = max(excess, use[pool] / table.memory[pool] - 1.0)
                        left[row, pool] += 1
                        if task >= 0:
                            left[row, pool] += _near(follower_first, followers, task, pool, pool_of, mode)
                index -= 1
        if runs + movers == 0:
            if forced or not limited:
                return np.inf, excess
            forced = True
            continue
        forced = False
        now = _next_end(running, runs, ends, moving, movers, moves)
        # Finish the ops that end by then.
        remaining = 0
        for index in range(runs):
            task = running[index]
            if ends[task] > now:
                running[remaining] = task
                remaining += 1
                continue
            done += 1
            own = table.pool[mode[task]]
            free[own] += table.units[mode[task]]
            power -= table.extra_w[mode[task]]
            urgent = -2.0
            for edge in range(reader_first[task], reader_first[task + 1]):
                target = pool_of[mode[readers[edge]]]
                if target != own:
                    needs[task, target] = max(needs[task, target], -1.0)
                    urgent = max(urgent, -1.0)
            for edge in range(follower_first[task], follower_first[task + 1]):
                target = pool_of[mode[followers[edge]]]
                if target != own:
                    needs[task, target] = max(needs[task, target], priority[followers[edge]])
                    urgent = max(urgent, priority[followers[edge]])
            _arrive(task, own, follower_first, followers, pool_of, mode, missing, waiting, waits, priority)
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
                _release(table, mode, left, use, _row(task, move, count, pools), pool)
            if way == 1:  # with the host: on to every pool that needs it
                for target in range(pools):
                    if needs[task, target] > -2.0:
                        onward = task * (pools + 1) + target
                        _enqueue(queue, urgency, queued, target * 2, onward, needs[task, target])
            elif task >= 0:
                _arrive(task, pool, follower_first, followers, pool_of, mode, missing, waiting, waits, priority)
        movers = remaining
    return now, excess


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _queue_inputs(table: Tables, mode: Array, moves: Array, queue: Array, urgency: Array, queued: Array) -> None:
    """Queue the moves of the step's own inputs to the pools that read them; there are no others yet."""
    count, pools = len(mode), len(table.pool_units)
    moves[:, :] = -1.0
    for number in range(len(table.input_bytes)):
        for edge in range(table.input_first[number], table.input_first[number + 1]):
            pool = table.pool[mode[table.input_readers[edge]]]
            move = count * (pools + 1) + number * pools + pool
            if moves[move, 0] == -1.0:
                moves[move, 0] = -2.0
                _enqueue(queue, urgency, queued, pool * 2, move, -1.0)


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _hold(table: Tables, mode: Array, use: Array, left: Array, past: Array) -> None:
    """Take the memory that is in use before the step: what ops hold, and results of the last step."""
    for task in range(len(mode)):
        use[table.pool[mode[task]]] += table.held[task]
        for edge in range(table.past_first[task], table.past_first[task + 1]):
            row, pool = table.past[edge], table.pool[mode[task]]
            if past[row, pool] == 0:
                use[pool] += _bytes(table, row, pool, mode)
            past[row, pool] += 1
    left[:, :] = past > 0  # what the next step needs stays


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _most_urgent(waiting: Array, pointer: Array, free: Array, priority: Array) -> int:
    """The pool whose next op is the most urgent of those that have free units; -1 if there is none."""
    pool = -1
    for other in range(len(pointer)):
        if pointer[other] < 0 or free[other] == 0:
            continue
        if pool < 0 or priority[waiting[other, pointer[other]]] > priority[waiting[pool, pointer[pool]]]:
            pool = other
    return pool


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _row(task: int, move: int, count: int, pools: int) -> int:
    """The row of a moved result or, after those, of an input."""
    return task if task >= 0 else count + (move - count * (pools + 1)) // pools


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _arrive(
    task: int,
    pool: int,
    follower_first: Array,
    followers: Array,
    pool_of: Array,
    mode: Array,
    missing: Array,
    waiting: Array,
    waits: Array,
    priority: Array,
) -> None:
    """A result is on a pool: its readers there wait for one input less."""
    for edge in range(follower_first[task], follower_first[task + 1]):
        follower = followers[edge]
        if pool_of[mode[follower]] == pool:
            missing[follower] -= 1
            if missing[follower] == 0:
                _insert(waiting, waits, pool, follower, priority)


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _near(first: Array, readers: Array, task: int, pool: int, pool_of: Array, mode: Array) -> int:
    """Readers of a result that run on a pool."""
    near = 0
    for edge in range(first[task], first[task + 1]):
        near += pool_of[mode[readers[edge]]] == pool
    return near


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _next_end(running: Array, runs: int, ends: Array, moving: Array, movers: int, moves: Array) -> float:
    """The time at which the first op or move ends."""
    later = _NEVER
    for index in range(runs):
        later = min(later, ends[running[index]])
    for index in range(movers):
        later = min(later, moves[moving[index], 1])
    return later


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
def rooms_of(table: Tables) -> int:
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
