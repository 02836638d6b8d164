"""Numba kernels: list scheduling by priority, and simulated annealing over modes and priorities."""

import numba
import numpy as np

from presilicon.scheduling.solvers.tables import Array, Tables

_NEVER = 1e300


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def place(table: Tables, mode: Array, priority: Array, spare_w: float, starts: Array) -> float:
    """Start ops as soon as possible, highest priority first; `mode` holds mode numbers over all tasks.

    An op starts when its inputs have arrived, enough units are free and the peaks stay within `spare_w` above idle.
    Writes the start times and returns the makespan, or infinity if an op can never start.
    """
    count = len(mode)
    missing = np.empty(count, np.int64)
    ready = np.zeros(count)
    waiting = np.empty(count, np.int64)  # tasks whose inputs are all computed, by priority
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
        later = _NEVER
        # Start the ops that can start now.
        remaining = 0
        for index in range(waits):
            task = waiting[index]
            task_mode = mode[task]
            pool = table.pool[task_mode]
            if ready[task] > now:
                later = min(later, ready[task])
            elif free[pool] >= table.units[task_mode] and power + table.extra_w[task_mode] <= spare_w:
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
        if runs == 0 and later == _NEVER:
            return np.inf
        for index in range(runs):
            later = min(later, ends[running[index]])
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
            free[table.pool[task_mode]] += table.units[task_mode]
            power -= table.extra_w[task_mode]
            for edge in range(table.follower_first[task], table.follower_first[task + 1]):
                follower = table.followers[edge]
                target = table.pool[mode[follower]]
                moved = ends[task]
                if target != table.pool[task_mode]:
                    moved += table.bytes_out[task] * (table.hop[table.pool[task_mode]] + table.hop[target])
                ready[follower] = max(ready[follower], moved)
                missing[follower] -= 1
                if missing[follower] == 0:
                    waits = _insert(waiting, waits, follower, priority)
        runs = remaining
        if runs == 0:
            power = 0.0  # do not accumulate rounding errors
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
    """Objective of the search: energy, weighted time, and a penalty per second above the limit."""
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
    """Try `rounds` changes at one temperature; updates the current and the best value in `state`.

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
            # Two ops change modes: one may use what the other frees.
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
