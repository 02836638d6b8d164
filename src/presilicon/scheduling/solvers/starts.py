"""Beginnings for a search: devices as another method chose them, clocks by a price on time."""

from collections.abc import Iterator, Sequence

import numpy as np

from presilicon.records import Problem, Schedule
from presilicon.scheduling.goals import Goal
from presilicon.scheduling.solvers.anytime import ranks
from presilicon.scheduling.solvers.kernels import place
from presilicon.scheduling.solvers.tables import Array, Tables, assemble, tables

HALVINGS = 18
SHARES = (0.2, 0.5, 0.8)
"""How large a part of an op the relaxed optimum must give to other devices for the op to go there."""


def beginnings(
    problem: Problem, goal: Goal, shares: Array, others: Sequence[Schedule], home: str
) -> Iterator[Schedule]:
    """Schedules with the devices of the relaxed optimum, rounded in several ways, and of other schedules.

    On its device, each op gets the clock at which its energy and its time, at one price for all, cost least; the price
    is the lowest that keeps to the makespan.
    """
    table = tables(problem)
    number = {pool.name: index for index, pool in enumerate(problem.pools)}
    owner = np.repeat(np.arange(len(problem.tasks)), np.diff(table.mode_first))
    away = np.bincount(owner, weights=np.where(table.pool != number[home], shares, 0.0), minlength=len(problem.tasks))
    per_pool = np.zeros((len(problem.tasks), len(problem.pools)))
    np.add.at(per_pool, (owner, table.pool), shares)
    chosen: list[Array] = []
    for least in SHARES:
        elsewhere = per_pool.copy()
        elsewhere[:, number[home]] = -1.0
        chosen.append(np.where(away > least, np.argmax(elsewhere, 1), number[home]))
    chosen += [np.array([number[each.mode.device] for each in other.started]) for other in others]
    for pools in chosen:
        found = _priced(problem, table, goal, pools, owner)
        if found is not None:
            yield found


def _priced(problem: Problem, table: Tables, goal: Goal, pools: Array, owner: Array) -> Schedule | None:
    spare = np.inf if goal.cap_w is None else goal.cap_w - problem.idle_w + 1e-9
    allowed = (table.pool == pools[owner]) & (table.extra_w <= spare)
    # Where the device does not take the op, any other may.
    none = np.bincount(owner, weights=allowed, minlength=len(pools)) == 0
    allowed |= none[owner] & (table.extra_w <= spare)
    priority, starts = ranks(problem), np.empty(len(pools))
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
        span = float(place(table, mode, priority, spare, starts))
        energy = float(table.extra_j[mode].sum()) + problem.idle_w * span
        worth = energy if goal.objective == "energy" else span
        if span <= limit and (best is None or worth < best[0]):
            best = worth, mode
        return span

    low, high = 0.0, 1e3 * (1.0 + float(np.max(table.extra_w, initial=0.0)))
    attempt(high)
    if attempt(low) > limit or goal.objective == "throughput":
        for _ in range(HALVINGS):
            # Prices of interest span orders of magnitude.
            middle = (max(low, 1e-2) * high) ** 0.5
            if attempt(middle) > limit:
                low = middle
            else:
                high = middle
    if best is None:
        return None
    place(table, best[1], priority, spare, starts)
    return assemble(problem, best[1] - table.mode_first[:-1], starts, "priced")
