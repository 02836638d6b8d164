"""Numba kernel: simulated annealing over the modes and priorities of ops."""

import numba
import numpy as np

from presilicon.scheduling.solvers.placing import place, rooms_of
from presilicon.scheduling.solvers.tables import Array, Tables

GROUP = 12
"""Most ops that change modes at once, or classes of alike ones."""
ALIKE = 0.3
"""Share of changes that go to all ops that are alike, so that the layers of a model change together."""


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
    starts, moves = np.empty(count), np.empty((rooms_of(table), 2))
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
