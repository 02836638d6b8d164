"""Compiled: schedules by priority, and a search over modes and priorities."""

import numba
import numpy as np

from presilicon.scheduling.solvers.tables import Array, Tables

_NOWHERE = 1e300


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def place(table: Tables, mode: Array, priority: Array, spare_w: float, starts: Array) -> float:
    """Start ops as soon as they can, the highest priority first; `mode` counts over all tasks' modes.

    An op starts when its inputs are there, enough units are free and the peaks stay within `spare_w` above idle. Writes
    the starting times and returns the makespan, or infinity if something can never start.
    """
    count = len(mode)
    missing = np.empty(count, np.int64)
    ready = np.zeros(count)
    waiting = np.empty(count, np.int64)  # tasks whose inputs have all been started on, by priority
    waits = 0
    running = np.empty(count, np.int64)
    runs = 0
    ends = np.empty(count)
    free = table.pool_units.copy()
    power = 0.0
    for task in range(count):
        missing[task] = table.dep_first[task + 1] - table.dep_first[task]
        if missing[task] == 0:
            waits = _insert(waiting, waits, task, priority)
    now = 0.0
    done = 0
    while done < count:
        later = _NOWHERE
        # Start what can be started now.
        kept = 0
        for index in range(waits):
            task = waiting[index]
            chosen = mode[task]
            pool = table.pool[chosen]
            if ready[task] > now:
                later = min(later, ready[task])
            elif free[pool] >= table.units[chosen] and power + table.extra_w[chosen] <= spare_w:
                free[pool] -= table.units[chosen]
                power += table.extra_w[chosen]
                starts[task] = now
                ends[task] = now + table.time[chosen]
                running[runs] = task
                runs += 1
                continue
            waiting[kept] = task
            kept += 1
        waits = kept
        if runs == 0 and later == _NOWHERE:
            return np.inf
        for index in range(runs):
            later = min(later, ends[running[index]])
        now = later
        # End what ends by then.
        kept = 0
        for index in range(runs):
            task = running[index]
            if ends[task] > now:
                running[kept] = task
                kept += 1
                continue
            done += 1
            chosen = mode[task]
            free[table.pool[chosen]] += table.units[chosen]
            power -= table.extra_w[chosen]
            for place_ in range(table.follower_first[task], table.follower_first[task + 1]):
                follower = table.followers[place_]
                target = table.pool[mode[follower]]
                moved = ends[task]
                if target != table.pool[chosen]:
                    moved += table.bytes_out[task] * (table.hop[table.pool[chosen]] + table.hop[target])
                ready[follower] = max(ready[follower], moved)
                missing[follower] -= 1
                if missing[follower] == 0:
                    waits = _insert(waiting, waits, follower, priority)
        runs = kept
        if runs == 0:
            power = 0.0  # no rounding is carried on
    return now


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _insert(waiting: Array, waits: int, task: int, priority: Array) -> int:
    index = waits
    while index > 0 and priority[waiting[index - 1]] < priority[task]:
        waiting[index] = waiting[index - 1]
        index -= 1
    waiting[index] = task
    return waits + 1


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def value_of(span: float, extra_j: float, idle_w: float, limit_s: float, penalty_w: float, time_weight: float) -> float:
    """What the search makes small: energy, a price on time, and a price on every second above the limit."""
    if span == np.inf:
        return np.inf
    above = max(0.0, span - limit_s)
    return extra_j + idle_w * span + time_weight * span + penalty_w * above


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
    """So many changes at one temperature; `state` holds the current and the best value and is kept up to date.

    `goals`: spare power, idle power, limit on the makespan, penalty, weight of time.
    """
    np.random.seed(seed)
    count = len(mode)
    starts = np.empty(count)
    spare_w, idle_w, limit_s, penalty_w, time_weight = goals
    extra = 0.0
    for task in range(count):
        extra += table.extra_j[mode[task]]
    current, best = state[0], state[1]
    accepted = 0
    for _ in range(rounds):
        task = np.random.randint(count)
        first, last = table.mode_first[task], table.mode_first[task + 1]
        draw = np.random.random()
        other = -1
        old_mode, old_priority, old_other = mode[task], priority[task], 0.0
        old_mode_other = -1
        if draw < 0.45 and last - first > 1:
            mode[task] = first + np.random.randint(last - first)
            if mode[task] == old_mode:
                mode[task] = first + (old_mode - first + 1) % (last - first)
        elif draw < 0.65:
            # Two ops change places: one takes up what the other gives back.
            other = np.random.randint(count)
            old_mode_other = mode[other]
            other_first, other_last = table.mode_first[other], table.mode_first[other + 1]
            mode[task] = first + np.random.randint(last - first)
            mode[other] = other_first + np.random.randint(other_last - other_first)
        elif draw < 0.85:
            priority[task] = np.random.random()
        else:
            other = np.random.randint(count)
            old_other = priority[other]
            priority[task], priority[other] = priority[other], priority[task]
        change = table.extra_j[mode[task]] - table.extra_j[old_mode]
        if old_mode_other >= 0 and other != task:
            change += table.extra_j[mode[other]] - table.extra_j[old_mode_other]
        span = place(table, mode, priority, spare_w, starts)
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
            if old_mode_other >= 0:
                mode[other] = old_mode_other
            elif other >= 0:
                priority[other] = old_other
            mode[task] = old_mode
            priority[task] = old_priority
    state[0], state[1] = current, best
    return accepted
