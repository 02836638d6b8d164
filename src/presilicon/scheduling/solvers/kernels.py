"""Numba kernels: list scheduling by priority, and simulated annealing over modes and priorities."""

import numba
import numpy as np

from presilicon.scheduling.solvers.tables import Array, Tables

_NEVER = 1e300
GROUP = 12
"""Most ops that change modes at once."""


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def place(table: Tables, mode: Array, priority: Array, spare_w: float, starts: Array, moves: Array) -> float:
    """Start ops and moves as soon as possible, highest priority first; `mode` holds mode numbers over all tasks.

    An op starts when its inputs have arrived, enough units are free and the peaks stay within `spare_w` above idle. A
    move waits for its link; moves for the next step come last. Writes the starts of ops, and start and end of moves:
    of each task those to every pool and the one to the host, then of each input those to every pool; -1 if there is
    none. Returns the makespan, or infinity if an op can never start.
    """
    count, pools = len(mode), len(table.pool_units)
    missing = np.empty(count, np.int64)
    waiting = np.empty(count, np.int64)  # tasks whose inputs have all arrived, by priority
    waits = 0
    running = np.empty(count, np.int64)
    runs = 0
    ends = np.empty(count)
    free = table.pool_units.copy()
    power = 0.0
    moves[:, :] = -1.0
    needs = np.zeros((count, pools), np.int8)  # 1: in the next step, 2: in this one
    queue = np.empty(len(moves), np.int64)  # moves that wait, by urgency
    urgency = np.empty(len(moves))
    queued = 0
    moving = np.empty(len(moves), np.int64)
    movers = 0
    slots = np.empty((pools, 2), np.int64)
    for pool in range(pools):
        slots[pool, :] = table.pool_units[pool] if table.links_queue[0] else len(moves)
    for task in range(count):
        missing[task] = table.dep_first[task + 1] - table.dep_first[task]
        if missing[task] == 0:
            waits = _insert(waiting, waits, task, priority)
    for number in range(len(table.input_bytes)):
        for edge in range(table.input_first[number], table.input_first[number + 1]):
            move = count * (pools + 1) + number * pools + table.pool[mode[table.input_readers[edge]]]
            if moves[move, 0] == -1.0:
                moves[move, 0] = -2.0
                queued = _enqueue(queue, urgency, queued, move, -1.0)
    now = 0.0
    done = 0
    while done < count or queued > 0 or movers > 0:
        # Start the ops that can start now.
        remaining = 0
        for index in range(waits):
            task = waiting[index]
            task_mode = mode[task]
            pool = table.pool[task_mode]
            if free[pool] >= table.units[task_mode] and power + table.extra_w[task_mode] <= spare_w:
                free[pool] -= table.units[task_mode]
                power += table.extra_w[task_mode]
                starts[task] = now
                ends[task] = now + table.time[task_mode]
                running[runs] = task
                runs += 1
                continue
            waiting[remaining] = task
            remaining += 1
        waits = remaining
        # Start the moves whose links are free.
        remaining = 0
        for index in range(queued):
            move = queue[index]
            task, pool, way, length = _link(table, mode, move, pools)
            if length == 0.0 or slots[pool, way] > 0:
                slots[pool, way] -= length > 0.0
                moves[move, 0] = now
                moves[move, 1] = now + length
                moving[movers] = move
                movers += 1
                continue
            queue[remaining] = move
            urgency[remaining] = urgency[index]
            remaining += 1
        queued = remaining
        later = _NEVER
        for index in range(runs):
            later = min(later, ends[running[index]])
        for index in range(movers):
            later = min(later, moves[moving[index], 1])
        if later == _NEVER:
            return np.inf
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
                    needs[task, target] = 1
                    urgent = max(urgent, -1.0)
            for edge in range(table.follower_first[task], table.follower_first[task + 1]):
                follower = table.followers[edge]
                target = table.pool[mode[follower]]
                if target != own:
                    needs[task, target] = 2
                    urgent = priority[task]
                    continue
                missing[follower] -= 1
                if missing[follower] == 0:
                    waits = _insert(waiting, waits, follower, priority)
            if urgent > -2.0:
                queued = _enqueue(queue, urgency, queued, task * (pools + 1) + pools, urgent)
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
            slots[pool, way] += length > 0.0
            if way == 1:  # with the host: on to every pool that needs it
                for target in range(pools):
                    if needs[task, target] > 0:
                        urgent = priority[task] if needs[task, target] == 2 else -1.0
                        queued = _enqueue(queue, urgency, queued, task * (pools + 1) + target, urgent)
            elif task >= 0:
                for edge in range(table.follower_first[task], table.follower_first[task + 1]):
                    follower = table.followers[edge]
                    if table.pool[mode[follower]] == pool:
                        missing[follower] -= 1
                        if missing[follower] == 0:
                            waits = _insert(waiting, waits, follower, priority)
        movers = remaining
    return now


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _rooms(table: Tables) -> int:
    """The number of moves that `place` may write."""
    pools = len(table.pool_units)
    return len(table.bytes_out) * (pools + 1) + len(table.input_bytes) * pools


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
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


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _insert(waiting: Array, waits: int, task: int, priority: Array) -> int:
    index = waits
    while index > 0 and priority[waiting[index - 1]] < priority[task]:
        waiting[index] = waiting[index - 1]
        index -= 1
    waiting[index] = task
    return waits + 1


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _enqueue(queue: Array, urgency: Array, queued: int, move: int, urgent: float) -> int:
    index = queued
    while index > 0 and urgency[index - 1] < urgent:
        queue[index] = queue[index - 1]
        urgency[index] = urgency[index - 1]
        index -= 1
    queue[index] = move
    urgency[index] = urgent
    return queued + 1


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def value_of(span: float, extra_j: float, idle_w: float, limit_s: float, penalty_w: float, time_weight: float) -> float:
    """Objective of the search: energy, weighted time, and a penalty per second above the limit."""
    if span == np.inf:
        return np.inf
    above = max(0.0, span - limit_s)
    return extra_j + idle_w * span + time_weight * span + penalty_w * above


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _modes(table: Tables, task: int) -> int:
    return table.mode_first[task + 1] - table.mode_first[task]  # type: ignore[no-any-return]


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _change(table: Tables, mode: Array, task: int, pool: int, changed: Array, old_modes: Array, changes: int) -> int:
    """Give a task another mode, of that pool unless it is -1, and note the old one; it stays if there is none."""
    first, count = table.mode_first[task], _modes(table, task)
    offset = np.random.randint(count)
    for step in range(count):
        new = first + (offset + step) % count
        if new != mode[task] and (pool < 0 or table.pool[new] == pool):
            changed[changes], old_modes[changes] = task, mode[task]
            mode[task] = new
            return changes + 1
    return changes


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
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


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
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

    `goals`: spare power, idle power, limit on the makespan, penalty, weight of time.
    """
    np.random.seed(seed)
    count = len(mode)
    starts, moves = np.empty(count), np.empty((_rooms(table), 2))
    spare_w, idle_w, limit_s, penalty_w, time_weight = goals
    extra = 0.0
    for task in range(count):
        extra += table.extra_j[mode[task]]
    current, best = state[0], state[1]
    accepted = 0
    changed, old_modes = np.empty(GROUP, np.int64), np.empty(GROUP, np.int64)
    for _ in range(rounds):
        task, other = np.random.randint(count), np.random.randint(count)
        old_priority, old_other = priority[task], priority[other]
        changes = 0
        draw = np.random.random()
        if draw < 0.35:
            changes = _change(table, mode, task, -1, changed, old_modes, changes)
        elif draw < 0.5:
            # Two ops change modes: one may use what the other frees.
            changes = _change(table, mode, task, -1, changed, old_modes, changes)
            if other != task:
                changes = _change(table, mode, other, -1, changed, old_modes, changes)
        elif draw < 0.7:
            # Ops that read one another go to one pool: tensors between them need no link.
            pool = table.pool[table.mode_first[task] + np.random.randint(_modes(table, task))]
            for _ in range(np.random.randint(2, GROUP + 1)):
                if table.pool[mode[task]] != pool:
                    changes = _change(table, mode, task, pool, changed, old_modes, changes)
                task = _neighbour(table, task)
        elif draw < 0.87:
            priority[task] = np.random.random()
        else:
            priority[task], priority[other] = priority[other], priority[task]
        change = 0.0
        for index in range(changes):
            change += table.extra_j[mode[changed[index]]] - table.extra_j[old_modes[index]]
        span = place(table, mode, priority, spare_w, starts, moves)
        value = value_of(span, extra + change, idle_w, limit_s, penalty_w, time_weight)
        if value <= current or np.random.random() < np.exp(min(0.0, (current - value) / heat)):
            current = value
            extra += change
            accepted += 1
            if value < best - 1e-12:
                best = value
                best_mode[:] = mode
                best_priority[:] = priority
        else:
            for index in range(changes - 1, -1, -1):
                mode[changed[index]] = old_modes[index]
            if draw >= 0.7:
                priority[other] = old_other
                priority[task] = old_priority
    state[0], state[1] = current, best
    return accepted
