"""Starting schedules for the search: devices from another method, clocks from a price on time."""

from collections.abc import Iterator, Sequence

import numpy as np

from presilicon.records import Problem, Schedule
from presilicon.scheduling.goals import Goal
from presilicon.scheduling.solvers.anytime import ranks
from presilicon.scheduling.solvers.kernels import place
from presilicon.scheduling.solvers.tables import Array, Tables, assemble, empty_moves, read_moves, tables

HALVINGS = 18
SHARES = (0.2, 0.5, 0.8)
"""Thresholds on the share of an op that the relaxed optimum gives to other devices, for the op to move there."""


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
        mode = np.array(
            [
                first + int(np.argmin(value[first:last]))
                for first, last in zip(table.mode_first, table.mode_first[1:], strict=False)
            ]
        )
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
