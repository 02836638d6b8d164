"""Proven optimal schedules by constraint programming (CP-SAT of OR-tools)."""

import math
import time
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from presilicon.base import MissingToolError, RunFailedError
from presilicon.records import Problem, Schedule, TensorMove
from presilicon.scheduling.checker import LIMIT_SLACK, faults
from presilicon.scheduling.goals import TOLERANCE, Goal, sound_bound
from presilicon.scheduling.solvers.bounds import cliques, closures, shared, spare_power
from presilicon.scheduling.solvers.tables import Array, assemble, tables

TICKS = 10_000_000
"""Approximate number of ticks in a makespan, if times are not multiples of a round unit."""
DETAILED = 200
"""Above this number of ops, only load constraints on the whole step are added."""
MEMORY_PARTS = 10**6
"""Memory is counted in such parts of it, or bytes if these are larger."""
STEPS = 100_000
"""Smallest number of energy units that an idle system takes in a tick."""


def solve_exactly(
    problem: Problem, goal: Goal, *, start: Schedule, bound: float, time_limit_s: float, workers: int = 2
) -> Schedule:
    """The best schedule that CP-SAT finds within its time, with the bound that it proves.

    It starts from `start`, a schedule within the limits, and `bound`, a bound proven by another method. The proof
    allows for the rounding of times to ticks, and rounds power down. If that admits a schedule that breaks a limit,
    another is searched for in a model that rounds power up.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise MissingToolError("the exact solver needs OR-tools: pip install 'presilicon[schedule]'") from None
    began = time.perf_counter()
    model = _Model(cp_model, problem, goal, start)
    model.bound(bound)
    schedule, proven = _run(cp_model, model, time_limit_s, workers)
    if schedule is not None and faults(problem, schedule, cap_w=goal.cap_w, limit_s=goal.limit_s):
        strict = _Model(cp_model, problem, goal, start, strict=True)
        left = max(time_limit_s - (time.perf_counter() - began), 0.1)
        schedule, _ = _run(cp_model, strict, left, workers)
    best = _best(problem, goal, [start, *([] if schedule is None else [schedule])])
    return goal.bounded(best, "exact", sound_bound(max(bound, proven), goal.value(problem, best)))


def _run(cp_model: Any, model: "_Model", time_limit_s: float, workers: int) -> tuple[Schedule | None, float]:
    """A schedule if one was found, and the proven bound."""
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = workers
    solver.parameters.linearization_level = 2
    status = solver.solve(model.model)
    if status == cp_model.MODEL_INVALID or (status == cp_model.INFEASIBLE and not model.strict):
        raise RunFailedError("internal error: the proof excludes a valid schedule; please report this problem")
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, 0.0
    return model.read(solver), model.proven(solver.best_objective_bound)


def _best(problem: Problem, goal: Goal, schedules: list[Schedule]) -> Schedule:
    fit = [schedule for schedule in schedules if not faults(problem, schedule, cap_w=goal.cap_w, limit_s=goal.limit_s)]
    return min(fit or schedules[:1], key=lambda schedule: goal.value(problem, schedule))


class _Model:
    def __init__(self, cp_model: Any, problem: Problem, goal: Goal, start: Schedule, *, strict: bool = False) -> None:
        self.problem, self.goal, self.table = problem, goal, tables(problem)
        self.model, self.strict = cp_model.CpModel(), strict
        horizon = (goal.limit_s if goal.limit_s is not None else start.makespan_s) * (1 + LIMIT_SLACK)
        # Every op on a chain may be rounded up; the limit is relaxed by as much, so that no schedule is lost.
        self.tick = next((tick for tick in (1e-6, 1e-7, 1e-8) if self._is_exact(tick)), 0.0)
        self.slack = 0
        if not self.tick:
            # Every op and every move may be on a chain.
            pools = len(problem.pools)
            self.slack = (2 + pools) * len(problem.tasks) + pools * len(problem.inputs)
            self.tick = 10.0 ** math.ceil(math.log10(max(horizon, 1e-9) / TICKS))
        per_tick = problem.idle_w * self.tick
        self.joule = max(1e9, 10.0 ** math.ceil(math.log10(STEPS / per_tick))) if per_tick else 1e9
        self.end = math.floor(horizon / self.tick) + (0 if strict else self.slack)
        self.ticks = self._whole(self.table.time)
        self._pool_literals: dict[tuple[int, int], Any] = {}
        self._leaves: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._enters: dict[tuple[int, int], Any] = {}
        self._arrives: dict[tuple[int, int], Any] = {}
        self._add_ops()
        self._add_order()
        self._add_moves()
        self._add_resources()
        self._add_memory()
        self._add_cuts()
        self._add_goal()
        self._hint(start)

    def _is_exact(self, tick: float) -> bool:
        """Whether the times of all ops and moves are multiples of the tick, up to floating-point errors."""
        sizes = [task.bytes_out for task in self.problem.tasks] + [data.bytes for data in self.problem.inputs]
        moves = [self.problem.hop_s(size, pool.name) for size in sizes for pool in self.problem.pools]
        ticks = np.concatenate([self.table.time, moves]) / tick
        return bool(np.all(np.abs(ticks - np.round(ticks)) <= 1e-12 * np.maximum(ticks, 1.0)))

    def _whole(self, times: Any) -> Any:
        """Times in ticks, rounded up (if all are multiples, only by floating-point errors); too long is forbidden."""
        ticks = (np.ceil if self.slack else np.round)(times / self.tick)
        return np.minimum(ticks, self.end + 1).astype(np.int64)

    def _modes(self, task: int) -> range:
        return range(int(self.table.mode_first[task]), int(self.table.mode_first[task + 1]))

    def _add_ops(self) -> None:
        model = self.model
        self.chosen = [model.new_bool_var(f"m{mode}") for mode in range(len(self.table.pool))]
        self.start, self.span = [], model.new_int_var(0, self.end, "makespan")
        self.finish, self.intervals = [], []
        for task in range(len(self.problem.tasks)):
            modes = self._modes(task)
            model.add_exactly_one(self.chosen[mode] for mode in modes)
            begin = model.new_int_var(0, self.end, f"s{task}")
            length = sum(int(self.ticks[mode]) * self.chosen[mode] for mode in modes)
            self.start.append(begin)
            self.finish.append(begin + length)
            for mode in modes:
                self.intervals.append(
                    model.new_optional_fixed_size_interval_var(begin, int(self.ticks[mode]), self.chosen[mode], "")
                )
            model.add(self.span >= begin + length)

    def _add_order(self) -> None:
        for task in self.problem.tasks:
            for dep in task.deps:
                self.model.add(self.start[task.id] >= self.finish[dep])

    def _add_moves(self) -> None:
        """Results cross links one at a time, and followers wait for them; data of the next step crosses too."""
        self.moves: dict[tuple[int, int], Any] = {}
        """Start of each move by task and pool (their number for the way to the host); inputs follow the tasks."""
        carried: dict[tuple[int, str], list[Any]] = {}

        def hop(task: int, slot: int, pool: int, way: str, size: int, present: Any) -> Any:
            """The end of an optional move over a link; it begins when the returned start says."""
            length = int(self._whole(np.float64(self.problem.hop_s(size, self.problem.pools[pool].name))))
            begin = self.moves.setdefault((task, slot), self.model.new_int_var(0, self.end, ""))
            interval = self.model.new_optional_fixed_size_interval_var(begin, length, present, "")
            carried.setdefault((pool, way), []).append(interval)
            self.model.add(self.span >= begin + length).only_enforce_if(present)
            return begin + length

        for task in self.problem.tasks:
            readers = sorted({*self.problem.followers[task.id], *task.next_readers})
            if task.bytes_out and readers and self.table.hop.any():
                self._add_crossings(task.id, readers, hop)
        for number, data in enumerate(self.problem.inputs):
            for pool in np.flatnonzero(self.table.hop).tolist() if data.bytes else []:
                present = self.model.new_bool_var("")
                for reader in data.readers:
                    theirs = self._in_pool(reader, pool)
                    if theirs is not None:
                        self.model.add_implication(theirs, present)
                key = len(self.problem.tasks) + number, pool
                self._enters[key] = present
                self._arrives[key] = hop(*key, pool, "in", data.bytes, present)
        for (pool, _), intervals in carried.items() if self.problem.links_queue else ():
            units = int(self.table.pool_units[pool])
            if units == 1:
                self.model.add_no_overlap(intervals)
            else:
                self.model.add_cumulative(intervals, [1] * len(intervals), units)

    def _add_crossings(self, task: int, readers: list[int], hop: Any) -> None:
        model, size, pools = self.model, self.problem.tasks[task].bytes_out, range(len(self.problem.pools))
        at_host = model.new_int_var(0, self.end, "")
        model.add(at_host >= self.finish[task])
        for pool in pools:
            mine = self._in_pool(task, pool)
            if mine is None or not self.table.hop[pool]:
                continue
            leaves = model.new_bool_var("")
            for reader in readers:
                theirs = self._in_pool(reader, pool)
                model.add_bool_or([leaves, ~mine, *([] if theirs is None else [theirs])])
            end = hop(task, len(pools), pool, "out", size, leaves)
            self._leaves[task, pool] = leaves, end
            model.add(self.moves[task, len(pools)] >= self.finish[task]).only_enforce_if(leaves)
            model.add(at_host >= end).only_enforce_if(leaves)
        for pool in pools:
            mine = self._in_pool(task, pool)
            for reader in readers:
                theirs = self._in_pool(reader, pool)
                if theirs is None:
                    continue
                away = [theirs] if mine is None else [theirs, ~mine]
                if not self.table.hop[pool]:
                    if reader in self.problem.followers[task]:
                        model.add(self.start[reader] >= at_host).only_enforce_if(away)
                    continue
                key = (task, pool)
                if key not in self.moves:
                    self._enters[key] = model.new_bool_var("")
                    end = hop(task, pool, pool, "in", size, self._enters[key])
                    self._arrives[key] = end
                    model.add(self.moves[key] >= at_host).only_enforce_if(self._enters[key])
                model.add_bool_or([self._enters[key], *(~literal for literal in away)])
                if reader in self.problem.followers[task]:
                    model.add(self.start[reader] >= self._arrives[key]).only_enforce_if(away)

    def _in_pool(self, task: int, pool: int) -> Any:
        """A literal: the op runs on that pool; None if it cannot."""
        key = (task, pool)
        if key not in self._pool_literals:
            mine = [self.chosen[mode] for mode in self._modes(task) if self.table.pool[mode] == pool]
            literal = None
            if len(mine) == 1:
                literal = mine[0]
            elif mine:
                literal = self.model.new_bool_var(f"p{task}.{pool}")
                self.model.add(sum(mine) == literal)
            self._pool_literals[key] = literal
        return self._pool_literals[key]

    def _add_resources(self) -> None:
        for pool, units in enumerate(self.table.pool_units):
            mine = [mode for mode in range(len(self.chosen)) if self.table.pool[mode] == pool]
            intervals = [self.intervals[mode] for mode in mine]
            if units == 1:
                self.model.add_no_overlap(intervals)
            else:
                self.model.add_cumulative(intervals, [int(self.table.units[mode]) for mode in mine], int(units))
        if self.goal.cap_w is not None:
            spare_w = spare_power(self.problem, self.goal.cap_w)
            # Microwatts, unless energies could then exceed 64 bits.
            scale = 1e6 if spare_w * self.end * len(self.problem.tasks) < 1e12 else 1e3
            rounded_w = self.goal.cap_w - self.problem.idle_w if self.strict else spare_w
            spare, demands = whole_watts(self.table.extra_w, rounded_w, scale, up=self.strict)
            for mode, demand in enumerate(demands):
                if demand > spare:
                    self.model.add(self.chosen[mode] == 0)
            self.model.add_cumulative(self.intervals, [min(demand, spare) for demand in demands], spare)
            for members in cliques(self.table, spare_w):
                self.model.add_no_overlap([self.intervals[mode] for mode in np.flatnonzero(members)])

    def _add_memory(self) -> None:
        """The tensors on a pool fit into its memory; see `checker._full` for how long a tensor stays."""
        model, count = self.model, len(self.problem.tasks)
        rows = [(task.bytes_out, self.problem.followers[task.id], task.next_readers) for task in self.problem.tasks]
        rows += [(data.bytes, (), data.readers) for data in self.problem.inputs]
        for pool in np.flatnonzero(np.isfinite(self.table.memory)).tolist():
            intervals: list[Any] = []
            sizes: list[int] = []

            def stay(begin: Any, ends: list[tuple[Any, Any]], present: Any, size: int) -> None:
                """A tensor that is there from `begin` until every end whose literal holds (None: always)."""
                end = model.new_int_var(0, self.end, "")
                for literal, at_least in ends:
                    bound = model.add(end >= at_least)
                    if literal is not None:
                        bound.only_enforce_if(literal)
                length = model.new_int_var(0, self.end, "")
                intervals.append(model.new_optional_interval_var(begin, length, end, present, ""))  # noqa: B023
                sizes.append(size)  # noqa: B023

            for row, (size, followers, later) in enumerate(rows):
                linked, mine = bool(self.table.hop[pool]), self._in_pool(row, pool) if row < count else None
                uses = [(self._in_pool(reader, pool), self.finish[reader]) for reader in followers]
                uses = [use for use in uses if use[0] is not None]
                nexts = [(self._in_pool(reader, pool), self.finish[reader]) for reader in later]
                nexts = [use for use in nexts if use[0] is not None]
                stays = [(literal, self.span) for literal, _ in nexts]
                if mine is not None:
                    left = self._leaves.get((row, pool))
                    out = [] if left is None else [left]
                    stay(self.start[row], [(None, self.finish[row]), *out, *uses, *stays], mine, size)
                if linked and (row, pool) in self._enters:
                    came = self._enters[row, pool], self._arrives[row, pool]
                    stay(self.moves[row, pool], [came, *uses, *stays], came[0], size)
                there = [literal for literal, _ in nexts]
                if there and (linked or mine is not None):
                    old = model.new_bool_var("")
                    for literal in there:
                        # Without a link, only what was computed there stays there.
                        model.add_bool_or([~literal, old] if linked or mine is None else [~literal, ~mine, old])
                    stay(0, nexts, old, size)
            for task in self.problem.tasks:
                mine = self._in_pool(task.id, pool)
                if task.held_bytes and mine is not None:
                    stay(0, [(None, self.span)], mine, task.held_bytes)
            # Like power: rounded down for a proof, up for a schedule that must be valid.
            unit = max(1.0, float(self.table.memory[pool]) / MEMORY_PARTS)
            demands = np.array(sizes) / unit
            demands = np.ceil(demands) if self.strict else np.floor(demands)
            room = float(self.table.memory[pool]) / unit
            model.add_cumulative(intervals, demands.astype(int).tolist(), int(room if self.strict else math.ceil(room)))

    def _add_cuts(self) -> None:
        """Add the load constraints of `bounds.py`, which CP-SAT does not infer."""
        table = self.table
        count = len(self.problem.tasks)
        after, before = closures(table, count)
        owner = np.repeat(np.arange(count), np.diff(table.mode_first))
        spare = None if self.goal.cap_w is None else spare_power(self.problem, self.goal.cap_w)
        for weight, capacity in shared(table, spare):
            # Weights are counted in thousandths, rounded down; whole units stay whole.
            scale = 1 if capacity == int(capacity) and np.all(weight == np.round(weight)) else 1000
            load = np.floor(weight * scale + 1e-9).astype(np.int64) * self.ticks
            room = math.ceil(capacity * scale - 1e-9)
            mine = np.flatnonzero(load)
            if not len(mine):
                continue
            self.model.add(self._sum(load, mine) <= room * self.span)
            if count > DETAILED:
                continue
            for task in range(count):
                behind = mine[after[task, owner[mine]]]
                if len(behind) > 1:
                    self.model.add(self._sum(load, behind) <= room * (self.span - self.finish[task]))
                ahead = mine[before[task, owner[mine]]]
                if len(ahead) > 1:
                    self.model.add(self._sum(load, ahead) <= room * self.start[task])

    def _sum(self, load: Array, modes: Array) -> Any:
        return sum(int(load[mode]) * self.chosen[mode] for mode in modes)

    def _add_goal(self) -> None:
        if self.goal.objective == "energy":
            per_tick = round(self.problem.idle_w * self.tick * self.joule)
            self.per_tick = per_tick
            extra = sum(
                math.floor(float(self.table.extra_j[mode]) * self.joule) * var for mode, var in enumerate(self.chosen)
            )
            self.objective = per_tick * self.span + extra
        else:
            self.objective = self.span
        self.model.minimize(self.objective)

    def bound(self, value: float) -> None:
        """Nothing is below `value`, joules or seconds."""
        if self.goal.objective == "energy":
            # The objective counts the idle energy of a rounded makespan, and rounded energies.
            away = (
                len(self.problem.tasks)
                + abs(self.per_tick / self.joule - self.problem.idle_w * self.tick) * self.end * self.joule
            )
            self.model.add(self.objective >= math.floor(value * (1 - TOLERANCE) * self.joule - away) - 1)
        else:
            self.model.add(self.objective >= math.floor(value * (1 - TOLERANCE) / self.tick) - self.slack)

    def proven(self, value: float) -> float:
        """A bound of the model as joules or seconds that hold for exact times."""
        if self.goal.objective == "energy":
            rounding = abs(self.per_tick / self.joule - self.problem.idle_w * self.tick) * self.end
            lost = self.slack * self.problem.idle_w * self.tick
            return float(value) / self.joule - lost - rounding
        return (float(value) - self.slack) * self.tick

    def _hint(self, start: Schedule) -> None:
        for task, slot in zip(self.problem.tasks, start.started, strict=True):
            for mode in self._modes(task.id):
                self.model.add_hint(
                    self.chosen[mode], task.modes[mode - int(self.table.mode_first[task.id])] == slot.mode
                )
            self.model.add_hint(self.start[task.id], math.ceil(slot.start_s / self.tick - 1e-6))

    def read(self, solver: Any) -> Schedule:
        """The solver's schedule with exact times: each op as early as its order allows."""
        choice = np.array(
            [
                next(mode for mode in self._modes(task) if solver.boolean_value(self.chosen[mode]))
                for task in range(len(self.problem.tasks))
            ]
        )
        ticks = np.array([solver.value(begin) for begin in self.start])
        own = choice - self.table.mode_first[:-1]
        begins = {key: int(solver.value(begin)) for key, begin in self.moves.items()}
        activities = [
            Activity(int(ticks[task]), int(self.ticks[mode]), float(self.table.time[mode]), task, -1, "")
            for task, mode in enumerate(choice)
        ]
        for (row, slot), size, device in carried(self.problem, self.table.pool[choice]):
            length_s = self.problem.hop_s(size, device)
            activities.append(
                Activity(begins[row, slot], int(self._whole(np.float64(length_s))), length_s, row, slot, device)
            )
        starts, moves = retimed(activities, len(self.problem.tasks), len(self.problem.pools))
        return assemble(self.problem, own, starts, moves, "exact")


class Activity(NamedTuple):
    """An op or a move in ticks."""

    start: int
    length: int
    time_s: float
    row: int
    """Its task; of data from the host, its number after those of the tasks."""
    slot: int
    """-1 for an op; else the pool it is moved to, or the number of pools for the host."""
    device: str


def carried(problem: Problem, pools: Array) -> Iterator[tuple[tuple[int, int], int, str]]:
    """The moves that follow from the pools of all ops: key, size and the pool whose link carries it."""
    names = [pool.name for pool in problem.pools]
    rows = [(task.bytes_out, {*problem.followers[task.id], *task.next_readers}) for task in problem.tasks]
    rows += [(data.bytes, set(data.readers)) for data in problem.inputs]
    for row, (size, readers) in enumerate(rows):
        own = int(pools[row]) if row < len(problem.tasks) else -1
        targets = {int(pools[reader]) for reader in readers} - {own}
        if targets and own >= 0 and problem.hop_s(size, names[own]):
            yield (row, len(names)), size, names[own]
        for target in sorted(targets):
            if problem.hop_s(size, names[target]):
                yield (row, target), size, names[target]


def whole_watts(extra_w: Array, spare_w: float, scale: float, *, up: bool) -> tuple[int, list[int]]:
    """Spare power and demands as integers: demands rounded down for a proof, up for a schedule that must be valid.

    Floating-point errors of a demand, below a nanowatt, are not rounded up to a whole unit.
    """
    demands = np.ceil((extra_w - 1e-9) * scale) if up else np.floor(extra_w * scale)
    return math.floor(spare_w * scale), [max(0, int(demand)) for demand in demands]


def retimed(activities: list[Activity], count: int, pools: int) -> tuple[Array, list[TensorMove]]:
    """Exact starts of ops, and moves, in the order of a schedule in ticks: each after all that ended before it there.

    So nothing is later than there, and what did not overlap does not: order, devices, links, power and memory hold.
    """
    order = sorted(activities, key=lambda activity: (activity.start, activity.length, activity.row, activity.slot))
    ticks, ends = np.empty(len(order)), np.zeros(len(order))
    starts, moves = np.zeros(count), []
    for index, (start, length, time_s, row, slot, device) in enumerate(order):
        ticks[index] = start + length
        begin = float(np.max(ends[:index], where=ticks[:index] <= start, initial=0.0))
        ends[index] = begin + time_s
        if slot < 0:
            starts[row] = begin
        else:
            from_host = row >= count
            way: Literal["out", "in"] = "out" if slot == pools else "in"
            moves.append(TensorMove(row - count * from_host, device, way, begin, begin + time_s, from_host))
    return starts, sorted(moves, key=lambda move: (move.start_s, move.task))
