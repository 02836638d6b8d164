"""Starting schedules for the search: the relaxed optimum, rounded, and devices of other methods with other clocks."""

import time
from collections.abc import Iterator, Sequence

import numpy as np

from presilicon.base import ConfigError
from presilicon.records import Problem, Schedule
from presilicon.scheduling.goals import Goal
from presilicon.scheduling.solvers.anytime import ranks
from presilicon.scheduling.solvers.bounds import RelaxedSolution, energy_bound
from presilicon.scheduling.solvers.placing import place
from presilicon.scheduling.solvers.tables import Array, Tables, assemble, empty_moves, read_moves, tables

REDUCTIONS = 4
"""Most linear programs at a reduced limit."""
NEAR = 0.995
"""Share of the limit that a rounded schedule has to reach for the reductions to end."""
HALVINGS = 18
SHARES = (0.2, 0.5, 0.8)
"""Thresholds on the share of an op that the relaxed optimum gives to other devices, for the op to move there."""


def rounded(
    problem: Problem, goal: Goal, relaxed: RelaxedSolution | None, cuts: int, time_limit_s: float
) -> Iterator[Schedule]:
    """The relaxed optimum with each op in its largest share, then those for reduced limits.

    Rounding makes schedules longer, so the linear program is solved for a limit at which the rounded schedule just
    meets the real one. It ends when another program might not be solved in the time.
    """
    if goal.limit_s is None:
        return
    began, table, priority = time.perf_counter(), tables(problem), ranks(problem)
    spare = np.inf if goal.cap_w is None else goal.cap_w - problem.idle_w + 1e-9
    starts, moves = np.empty(len(problem.tasks)), empty_moves(problem)
    long, fitting, share, spent = (1.0, np.inf), (0.0, 0.0), 1.0, 0.0
    for number in range(REDUCTIONS + 1):
        if relaxed is not None:
            bounds = zip(table.mode_first, table.mode_first[1:], strict=False)
            own = np.array([int(np.argmax(relaxed.shares[first:last])) for first, last in bounds])
            span, _ = place(table, table.mode_first[:-1] + own, priority, spare, starts, moves)
            if span == np.inf:
                return
            yield assemble(problem, own, starts, read_moves(problem, own, moves), "rounded")
            ratio = span / goal.limit_s
            if ratio <= 1:
                fitting = share, ratio
            else:
                long = share, ratio
            if (share == 1.0 and ratio <= 1) or NEAR <= ratio <= 1:
                return
            # Steps grow, because the program may not need all of its time.
            share = long[0] * max(1 - 2**number * (long[1] - 1), 0.8)
            if fitting[0]:
                share = fitting[0] + (long[0] - fitting[0]) * (1 - fitting[1]) / (long[1] - fitting[1])
        begin = time.perf_counter()
        if number == REDUCTIONS or time_limit_s - (begin - began) < 1.5 * spent:
            return
        try:
            relaxed = energy_bound(problem, goal.limit_s * share, goal.cap_w, cuts=cuts, time_limit_s=time_limit_s)
        except ConfigError:  # nothing is that short
            share, relaxed = (share + long[0]) / 2, None
        spent = time.perf_counter() - begin


def replayed(problem: Problem, schedule: Schedule, cap_w: float | None) -> Schedule:
    """The same modes, started in the same order as soon as there is memory for their results."""
    table = tables(problem)
    own = np.array([task.modes.index(slot.mode) for task, slot in zip(problem.tasks, schedule.started, strict=True)])
    order = np.argsort(np.argsort([slot.start_s for slot in schedule.started], kind="stable"))
    starts, moves = np.empty(len(own)), empty_moves(problem)
    spare = np.inf if cap_w is None else cap_w - problem.idle_w + 1e-9
    span, _ = place(table, table.mode_first[:-1] + own, 1.0 - order / len(own), spare, starts, moves)
    if span == np.inf:
        return schedule
    return assemble(problem, own, starts, read_moves(problem, own, moves), schedule.solver)


def beginnings(
    problem: Problem, goal: Goal, shares: Array, others: Sequence[Schedule], home: str
) -> Iterator[Schedule]:
    """Schedules with the devices of the relaxed optimum, rounded by several thresholds, and those of other schedules.

    On its device, each op gets the clock that minimizes its energy plus its time at a common price; the price is the
    lowest at which the makespan limit is met.
    """
    table = tables(problem)
    number = {pool.name: index for index, pool in enumerate(problem.pools)}
    owner = np.repeat(np.arange(len(problem.tasks)), np.diff(table.mode_first))
    away = np.bincount(owner, weights=np.where(table.pool != number[home], shares, 0.0), minlength=len(problem.tasks))
    per_pool = np.zeros((len(problem.tasks), len(problem.pools)))
    np.add.at(per_pool, (owner, table.pool), shares)
    assignments: list[Array] = []
    for least in SHARES:
        elsewhere = per_pool.copy()
        elsewhere[:, number[home]] = -1.0
        assignments.append(np.where(away > least, np.argmax(elsewhere, 1), number[home]))
    assignments += [np.array([number[slot.mode.device] for slot in other.started]) for other in others]
    for pools in assignments:
        schedule = _priced(problem, table, goal, pools, owner)
        if schedule is not None:
            yield schedule


def _priced(problem: Problem, table: Tables, goal: Goal, pools: Array, owner: Array) -> Schedule | None:
    spare = np.inf if goal.cap_w is None else goal.cap_w - problem.idle_w + 1e-9
    allowed = (table.pool == pools[owner]) & (table.extra_w <= spare)
    # If the device cannot run the op, any other may.
    none = np.bincount(owner, weights=allowed, minlength=len(pools)) == 0
    allowed |= none[owner] & (table.extra_w <= spare)
    priority, starts, moves = ranks(problem), np.empty(len(pools)), empty_moves(problem)
    limit = np.inf if goal.limit_s is None else goal.limit_s
    best: tuple[float, Array] | None = None

    def attempt(price: float) -> float:
        nonlocal best
        value = np.where(allowed, table.extra_j + price * table.time, np.inf)
        mode = np.lexsort((value, owner))[table.mode_first[:-1]]  # the least of each task
        span, excess = place(table, mode, priority, spare, starts, moves)
        span = span if excess <= 0.0 else np.inf
        energy = float(table.extra_j[mode].sum()) + problem.idle_w * span
        worth = energy if goal.objective == "energy" else span
        if span <= limit and (best is None or worth < best[0]):
            best = worth, mode
        return span

    low, high = 0.0, 1e3 * (1.0 + float(np.max(table.extra_w, initial=0.0)))
    attempt(high)
    if attempt(low) > limit or goal.objective == "throughput":
        for _ in range(HALVINGS):
            # Useful prices span orders of magnitude.
            middle = (max(low, 1e-2) * high) ** 0.5
            if attempt(middle) > limit:
                low = middle
            else:
                high = middle
    if best is None:
        return None
    place(table, best[1], priority, spare, starts, moves)
    own = best[1] - table.mode_first[:-1]
    return assemble(problem, own, starts, read_moves(problem, own, moves), "priced")
