"""Proven lower bounds by a linear program in which ops may be split over modes, and devices shared in any proportion.

The program keeps constraints that hold for every schedule: each pool's load fits into the makespan; ops start after
their dependencies (and transfers); each link's load fits into the makespan; the average of the peaks stays below the
cap. In addition, for every op and pool,
the ops that depend on it must fit into the time after it, and the ops that it depends on into the time before it;
without this, a pool could work on the last ops from the start.
"""

from typing import Any, NamedTuple

import numpy as np

from presilicon.base import ConfigError
from presilicon.records import Problem
from presilicon.scheduling.checker import CAP_SLACK_W, LIMIT_SLACK
from presilicon.scheduling.solvers.tables import Array, Tables, tables

CUTS = 300
"""Number of ops with constraints on their followers and predecessors; evenly spread if there are more ops."""


class RelaxedSolution(NamedTuple):
    """Solution of the linear program."""

    bound: float
    """No schedule has a smaller value."""
    shares: Array
    """Share of its op that each mode gets in the relaxed optimum; modes are numbered over all tasks."""
    price_w: float = 0.0
    """Energy that a second more would save, if the makespan is limited."""


def energy_bound(
    problem: Problem,
    limit_s: float | None = None,
    cap_w: float | None = None,
    *,
    cuts: int = CUTS,
    time_limit_s: float | None = None,
) -> RelaxedSolution:
    """Lower bound on the energy of any schedule within the limits; without cuts if they take too long to solve."""
    return _solve(problem, limit_s, cap_w, cuts, time_limit_s, energy=True)


def makespan_bound(
    problem: Problem, cap_w: float | None = None, *, cuts: int = CUTS, time_limit_s: float | None = None
) -> RelaxedSolution:
    """Lower bound on the makespan of any schedule under the cap; without cuts if they take too long to solve."""
    return _solve(problem, None, cap_w, cuts, time_limit_s, energy=False)


class _Rows:
    """Inequalities `row <= right`, collected as sparse entries."""

    def __init__(self) -> None:
        self.rows: list[Array] = []
        self.columns: list[Array] = []
        self.values: list[Array] = []
        self.right: list[float] = []

    def add(self, columns: Array, values: Array, right: float) -> None:
        self.rows.append(np.full(len(columns), len(self.right)))
        self.columns.append(columns)
        self.values.append(values)
        self.right.append(right)


def _solve(
    problem: Problem, limit_s: float | None, cap_w: float | None, cuts: int, time_limit_s: float | None, *, energy: bool
) -> RelaxedSolution:
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    table = tables(problem)
    count, modes = len(problem.tasks), len(table.pool)
    # Without cuts only the load constraints remain, which are solved at once.
    edges = [(dep, task.id) for task in problem.tasks for dep in task.deps] if cuts else []
    crossing = [pair for pair in edges if _can_move(table, *pair)]
    crossings = _crossings(table) if cuts and problem.links_queue else []
    # Variables: shares of the modes, start times, edges that cross between pools, results on links, makespan.
    start, edge, link = modes, modes + count, modes + count + len(crossing)
    span = link + len(crossings)
    unit = _unit(table)
    rows = _Rows()
    if cuts:
        _add_order(table, rows, crossing, start, edge, span, unit)
        _add_links(table, rows, crossings, link, span, unit)
    spare = None if cap_w is None else spare_power(problem, cap_w)
    _add_loads(table, rows, spare, cuts, start, span, unit)
    sums = csr_array(
        (np.ones(modes), (np.repeat(np.arange(count), np.diff(table.mode_first)), np.arange(modes))),
        shape=(count, span + 1),
    )
    matrix = csr_array(
        (np.concatenate(rows.values), (np.concatenate(rows.rows), np.concatenate(rows.columns))),
        shape=(len(rows.right), span + 1),
    )
    goal = np.zeros(span + 1)
    if energy:
        goal[:modes], goal[span] = table.extra_j, problem.idle_w * unit
    else:
        goal[span] = unit
    # The solver's tolerances are absolute, so the largest coefficient is made 1.
    scale = float(goal.max()) or 1.0
    largest = np.ones(span + 1)
    if spare is not None:
        largest[:modes] = table.extra_w <= spare
    largest[start:edge] = largest[span] = _horizon(table, limit_s) / unit
    # HiGHS may call a problem infeasible that just is not; the bound below holds for the true limits all the same.
    ends = np.stack([np.zeros(span + 1), largest * (1 + 1e-7)], 1)
    options = {"time_limit": time_limit_s if cuts else None}
    solution = linprog(goal / scale, matrix, rows.right, sums, np.ones(count), ends, options=options)
    if solution.status == 2:
        limit = "" if limit_s is None else f" within {limit_s:.6g} s"
        cap = "" if cap_w is None else f" under {cap_w:g} W"
        raise ConfigError(f"there is no schedule{limit}{cap}")
    if solution.status != 0:
        return (
            _solve(problem, limit_s, cap_w, 0, None, energy=energy) if cuts else RelaxedSolution(0.0, np.zeros(modes))
        )
    # Any multipliers prove a bound for variables within their limits, so the solver's tolerances do not matter.
    below, equal = np.minimum(solution.ineqlin.marginals, 0.0), solution.eqlin.marginals
    reduced = goal / scale - matrix.T @ below - sums.T @ equal
    value = float(below @ rows.right + equal.sum() + np.minimum(reduced, 0.0) @ largest)
    price = -min(float(reduced[span]), 0.0) * scale / unit
    return RelaxedSolution(max(value * scale, 0.0), solution.x[:modes], price)


def spare_power(problem: Problem, cap_w: float) -> float:
    """Power that ops may draw above idle in a proof: with twice the checker's tolerance, beyond rounding errors."""
    return cap_w - problem.idle_w + 2 * CAP_SLACK_W


def _horizon(table: Tables, limit_s: float | None) -> float:
    """A makespan that some best schedule does not exceed: the limit, or all ops and moves one after another."""
    if limit_s is not None:
        return limit_s * (1 + LIMIT_SLACK)
    slowest = np.maximum.reduceat(table.time, table.mode_first[:-1])
    readers = np.repeat(np.arange(len(table.bytes_out)), np.diff(table.reader_first))
    moved = table.bytes_out[table.deps].sum() + table.bytes_out[readers].sum()
    moved += len(table.pool_units) * table.input_bytes.sum()
    return float(slowest.sum() + moved * 2 * table.hop.max(initial=0.0))


def _unit(table: Tables) -> float:
    """Time unit of the program in seconds, chosen so that its numbers are neither tiny nor large."""
    shortest = np.minimum.reduceat(table.time, table.mode_first[:-1])
    return max(float(shortest.sum()) / 100, 1e-12)


def _can_move(table: Tables, dep: int, task: int) -> bool:
    if table.bytes_out[dep] == 0 or not table.hop.any():
        return False
    pools = [set(table.pool[table.mode_first[op] : table.mode_first[op + 1]].tolist()) for op in (dep, task)]
    return len(pools[0] | pools[1]) > 1


def _add_order(
    table: Tables, rows: _Rows, crossing: list[tuple[int, int]], start: int, edge: int, span: int, unit: float
) -> None:
    crosses = {pair: index for index, pair in enumerate(crossing)}
    for task in range(len(table.mode_first) - 1):
        mine = np.arange(table.mode_first[task], table.mode_first[task + 1])
        times = table.time[mine] / unit
        # start + time <= makespan
        rows.add(np.append(mine, [start + task, span]), np.append(times, [1.0, -1.0]), 0.0)
        for follower in table.followers[table.follower_first[task] : table.follower_first[task + 1]]:
            columns = np.append(mine, [start + task, start + int(follower)])
            values = np.append(times, [1.0, -1.0])
            index = crosses.get((task, int(follower)))
            if index is not None:
                columns = np.append(columns, edge + index)
                values = np.append(values, _limited(table.bytes_out[task] * _least_hop(table) / unit))
            rows.add(columns, values, 0.0)
    for (dep, task), index in crosses.items():
        for pool in range(len(table.pool_units)):
            # crossing >= share of one op in the pool - share of the other
            ours, theirs = (table.mode_first[op] + np.flatnonzero(_pools(table, op) == pool) for op in (dep, task))
            columns = np.concatenate([ours, theirs, [edge + index]])
            values = np.concatenate([np.ones(len(ours)), -np.ones(len(theirs)), [-1.0]])
            rows.add(columns, values, 0.0)


def _limited(move: Any) -> Any:
    """The length of a move, cut off where HiGHS would lose its precision."""
    return np.minimum(move, 1e6)


class _Crossing(NamedTuple):
    """A result, or an input, that may cross the link of a pool."""

    task: int
    """-1 for an input."""
    pool: int
    inward: bool
    readers: tuple[int, ...]
    size: float


def _crossings(table: Tables) -> list[_Crossing]:
    crossings = []
    for task in np.flatnonzero(table.bytes_out):
        follow = table.followers[table.follower_first[task] : table.follower_first[task + 1]]
        later = table.readers[table.reader_first[task] : table.reader_first[task + 1]]
        readers = tuple(sorted({*follow.tolist(), *later.tolist()}))
        for pool in np.flatnonzero(table.hop) if readers else ():
            size = float(table.bytes_out[task])
            crossings += [_Crossing(int(task), int(pool), inward, readers, size) for inward in (False, True)]
    for number, size in enumerate(table.input_bytes.tolist()):
        readers = tuple(table.input_readers[table.input_first[number] : table.input_first[number + 1]].tolist())
        crossings += [_Crossing(-1, int(pool), True, readers, size) for pool in np.flatnonzero(table.hop)]
    return crossings


def _add_links(table: Tables, rows: _Rows, crossings: list[_Crossing], link: int, span: int, unit: float) -> None:
    """A result crosses a link if it and a reader are on different sides of it; the links carry it within the step."""
    loads: dict[tuple[int, bool], list[tuple[Array, Array]]] = {}
    for index, (task, pool, inward, readers, size) in enumerate(crossings):
        own = np.empty(0, np.int64)
        if task >= 0:
            own = table.mode_first[task] + np.flatnonzero(_pools(table, task) == pool)
        for reader in readers:
            theirs = table.mode_first[reader] + np.flatnonzero(_pools(table, reader) == pool)
            here, there = (theirs, own) if inward else (own, theirs)
            if len(here):
                columns = np.concatenate([here, there, [link + index]])
                rows.add(columns, np.concatenate([np.ones(len(here)), -np.ones(len(there)), [-1.0]]), 0.0)
        load = np.array([_limited(size * table.hop[pool] / unit)])
        loads.setdefault((pool, inward), []).append((np.array([link + index]), load))
    for (pool, _), parts in loads.items():
        columns, values = (np.concatenate(column) for column in zip(*parts, strict=True))
        rows.add(np.append(columns, span), np.append(values, -float(table.pool_units[pool])), 0.0)


def _pools(table: Tables, task: int) -> Array:
    return table.pool[table.mode_first[task] : table.mode_first[task + 1]]


def _least_hop(table: Tables) -> float:
    """Seconds per byte of the fastest move between two pools."""
    hops = np.sort(table.hop)
    return float(hops[0] + hops[1]) if len(hops) > 1 else 0.0


class Shared(NamedTuple):
    """A resource that running ops share."""

    weight: Array
    """Amount that each mode occupies while it runs."""
    capacity: float


def shared(table: Tables, spare_w: float | None) -> list[Shared]:
    """The resources: pools; under a cap also power, and constraints for ops that cannot run side by side.

    Dual-feasible functions (functions that keep every sum within one) turn a cap into stronger loads: with
    `ceil(2 w) - 1`, each op above half the spare power occupies all of it.
    """
    resources = [
        Shared(np.where(table.pool == pool, table.units, 0).astype(np.float64), float(units))
        for pool, units in enumerate(table.pool_units)
    ]
    if spare_w is None:
        return resources
    resources += [Shared(members.astype(np.float64), 1.0) for members in cliques(table, spare_w)]
    watts = np.clip(table.extra_w / spare_w, 0.0, 1.0)
    resources.append(Shared(watts, 1.0))
    for parts in range(1, 7):
        # Pieces that are only just full do not count: two ops of half the spare power run side by side.
        resources.append(Shared(np.maximum(np.ceil(watts * (parts + 1)) - 1, 0.0) / parts, 1.0))
    for edge in np.unique(np.quantile(watts, np.linspace(0.1, 0.9, 9))):
        if 0 < edge <= 0.5:
            cut_off = np.where(watts < edge, 0.0, watts)
            resources.append(Shared(np.where(watts > 1 - edge, 1.0, cut_off), 1.0))
    return resources


def cliques(table: Tables, spare_w: float) -> list[Array]:
    """Sets of modes of which no two can run at the same time: together they need too many units or too much power.

    Modes with the same pool, units and power are equivalent. A set grows greedily from each class by modes that can run
    beside none of its members, highest power first.
    """
    kinds, kind_of = np.unique(np.stack([table.pool, table.units, table.extra_w], 1), axis=0, return_inverse=True)
    pool, units, watts = kinds[:, 0].astype(np.int64), kinds[:, 1], kinds[:, 2]
    crowded = (pool[:, None] == pool) & (units[:, None] + units > table.pool_units[pool])
    apart = crowded | (watts[:, None] + watts > spare_w)
    order = np.argsort(-watts, kind="stable")
    cliques_found: set[frozenset[int]] = set()
    for seed in order:
        if not apart[seed, seed]:
            continue
        members = [int(seed)]
        for other in order:
            if other != seed and apart[other, other] and all(apart[other, member] for member in members):
                members.append(int(other))
        cliques_found.add(frozenset(members))
    return [np.isin(kind_of.reshape(-1), sorted(members)) for members in sorted(cliques_found, key=sorted)]


def _add_loads(
    table: Tables, rows: _Rows, spare_w: float | None, cuts: int, start: int, span: int, unit: float
) -> None:
    count = len(table.mode_first) - 1
    owner = np.repeat(np.arange(count), np.diff(table.mode_first))
    after, before = closures(table, count) if cuts else (np.empty(0), np.empty(0))
    resources = shared(table, spare_w)
    cut_tasks = np.unique(np.linspace(0, count - 1, min(count, cuts * 2 // len(resources))).astype(np.int64))
    for weight, capacity in resources:
        load = weight * table.time / unit
        mine = np.flatnonzero(load > 0)
        if not len(mine):
            continue
        rows.add(np.append(mine, span), np.append(load[mine], -capacity), 0.0)
        for task in cut_tasks:
            own = np.arange(table.mode_first[task], table.mode_first[task + 1])
            behind = mine[after[task, owner[mine]]]
            if len(behind) > 1:
                # load behind <= capacity (makespan - start - time)
                columns = np.concatenate([behind, own, [start + task, span]])
                values = np.concatenate([load[behind], capacity * table.time[own] / unit, [capacity, -capacity]])
                rows.add(columns, values, 0.0)
            ahead = mine[before[task, owner[mine]]]
            if len(ahead) > 1:
                rows.add(np.append(ahead, start + task), np.append(load[ahead], -capacity), 0.0)


def closures(table: Tables, count: int) -> tuple[Array, Array]:
    """Transitive closures: per task, which tasks depend on it, and on which it depends."""
    after = np.zeros((count, count), np.bool_)
    for task in range(count - 1, -1, -1):
        for follower in table.followers[table.follower_first[task] : table.follower_first[task + 1]]:
            after[task] |= after[follower]
            after[task, follower] = True
    return after, after.T.copy()
