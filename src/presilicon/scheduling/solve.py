"""One way to all solvers: a schedule that has been checked, what it costs, and how far from the best it can be."""

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from presilicon.base.errors import ConfigError, MissingToolError, unknown
from presilicon.records import Mode, Problem, Schedule, ScheduleCost
from presilicon.scheduling.accounting import SAMPLE_S, cost, link_warnings
from presilicon.scheduling.baselines import LAG_S, best_clock, clocked_under, reactive_clock, reference_only
from presilicon.scheduling.checker import check, faults
from presilicon.scheduling.goals import Goal, Objective
from presilicon.scheduling.problems import alone
from presilicon.scheduling.solvers.greedy import DeadlockError, Rules, execute
from presilicon.scheduling.solvers.heft import heft

Solver = Literal["greedy", "heft", "anytime", "exact", "auto"]
SOLVERS: tuple[Solver, ...] = get_args(Solver)
Progress = Callable[[float, float], None]
"""Told the share of the time that is spent, and the best value so far."""
TIME_LIMIT_S = 20.0
EXACT_OPS = 150
"""Up to so many ops `auto` looks for a proof."""
SHORT = 0.25
"""The part of its time that `exact` spends at most on a first schedule by search."""
QUICK_OPS, QUICK_CUTS = 1000, 0
"""Of more ops, the quick solvers get a bound that is quick too."""
SHORTEST_LAG_S = 1e-6
OPEN = 1e-3
"""A gap that a solver leaves only when it is stopped."""
SHORT_S, SHORT_PER_OP_S = 0.5, 0.03
"""What it spends at most, and more for each op."""


class Baseline(Struct, frozen=True, kw_only=True):
    """What one kind of device does alone."""

    name: str
    cost: ScheduleCost
    clock: float | None = None
    """The one clock of all ops, where there is one."""
    iteration_w: tuple[float, ...] = ()
    """Average power of steps one after another, where they differ."""
    note: str = ""


class Solution(Struct, frozen=True, kw_only=True):
    """A schedule with all that is known about it."""

    problem: Problem
    goal: Goal
    solver: str
    time_limit_s: float
    spent_s: float
    schedule: Schedule
    cost: ScheduleCost
    baseline: Baseline
    """One kind of device runs everything, the others stay idle."""
    others: tuple[Baseline, ...]
    """The same with the clock chosen or controlled, and without the other devices' idle power."""
    reasons: tuple[str, ...]
    """For each op, why it runs where it runs; empty where it stays."""
    notes: tuple[str, ...] = ()

    @property
    def bound(self) -> float | None:
        """No schedule within the limits is better: joules, or seconds."""
        return self.goal.bound_of(self.schedule)

    @property
    def gap(self) -> float | None:
        """How far the schedule may be from the best: 0.01 is one percent."""
        value, bound = self.goal.value(self.problem, self.schedule), self.bound
        return None if not bound else max(0.0, value / bound - 1)


def solve(
    problem: Problem,
    *,
    objective: Objective = "energy",
    cap_w: float | None = None,
    limit_s: float | None = None,
    solver: Solver = "auto",
    time_limit_s: float = TIME_LIMIT_S,
    reference: str | None = None,
    candidates: Collection[int] | None = None,
    rules: Rules | None = None,
    plain: Problem | None = None,
    progress: Progress | None = None,
    sample_s: float = SAMPLE_S,
    lag_s: float = LAG_S,
    seed: int = 0,
    workers: int = 2,
) -> Solution:
    """Schedule a step.

    `energy` looks for the least energy with a makespan of at most `limit_s`, by default that of the reference device
    alone; `throughput` for the least makespan. Either may have a cap on power. `greedy` runs the step event by event
    (see `execution`), `heft` places ops where they end first, `anytime` searches, `exact` proves; `auto` proves small
    problems and searches in large ones. An interrupted search gives its best schedule so far.

    `plain` is what baselines run, where that is another problem: without a relief that comes of sharing the work.
    `sample_s` is how often power is read to count violations, `lag_s` how often a controlled clock is set.

    Raises:
        ConfigError: a time limit that is not above 0, a cap below idle power, an op that does not fit under the cap.
        MissingToolError: `exact` without OR-tools.
        RunFailedError: a solver's schedule did not pass the check.
    """
    began = time.perf_counter()
    if solver not in SOLVERS:
        raise unknown("solver", solver, SOLVERS)
    if objective not in get_args(Objective):
        raise unknown("objective", objective, get_args(Objective))
    for what, seconds in (("time limit", time_limit_s), ("sampling period", sample_s), ("lag", lag_s)):
        if not 0 < seconds < 1e9:
            raise ConfigError(f"a {what} of {seconds:g} s: expected a number of seconds above 0")
    if lag_s < SHORTEST_LAG_S:
        raise ConfigError(f"a lag of {lag_s:g} s: no clock is set more often than every {SHORTEST_LAG_S:g} s")
    if limit_s is not None and not 0 < limit_s < 1e9:
        raise ConfigError(f"a makespan limit of {limit_s:g} s: expected a number of seconds above 0")
    problem.check()
    reference = reference or problem.pools[0].name
    alone_all = reference_only(problem, reference)
    plain = problem if plain is None else plain
    baseline = alone_all if plain is problem else reference_only(plain, reference)
    if objective == "energy" and limit_s is None:
        limit_s = baseline.makespan_s
    goal = Goal(objective=objective, limit_s=limit_s, cap_w=cap_w)
    goal.check(problem)
    _check_cap(problem, cap_w)
    work = _Work(problem, plain, goal, reference, candidates, rules, progress, seed, workers, began, time_limit_s)
    found, notes = work.run(solver, alone_all)
    claimed = cost(problem, found, cap_w=cap_w, sample_s=sample_s)
    check(problem, found, cap_w=cap_w, limit_s=limit_s, claimed=claimed)
    return Solution(
        problem=problem,
        goal=goal,
        solver=solver if solver != "auto" else f"auto ({found.solver})",
        time_limit_s=time_limit_s,
        spent_s=time.perf_counter() - began,
        schedule=found,
        cost=claimed,
        baseline=Baseline(
            name=f"{reference}-only", cost=cost(plain, baseline, cap_w=cap_w, sample_s=sample_s), clock=1.0
        ),
        others=_others(plain, reference, baseline, cap_w, sample_s, lag_s),
        reasons=_reasons(problem, found, reference, work.reasons if found.solver == "greedy" else {}),
        notes=(*found.notes, *notes, *link_warnings(problem, found)),
    )


def _check_cap(problem: Problem, cap_w: float | None) -> None:
    """Every op must fit under the cap somewhere."""
    if cap_w is None:
        return

    def draws(mode: Mode) -> float:
        return problem.idle_w + mode.peak_w - mode.units * problem.pool[mode.device].idle_w

    for task in problem.tasks:
        least = min(task.modes, key=draws)
        if draws(least) > cap_w + 1e-9:
            label = f"{task.kind} {task.size}".rstrip()
            raise ConfigError(
                f"a power cap of {cap_w:g} W: op {task.name or task.id} ({label}) takes the system to at least "
                f"{draws(least):g} W, on {least.device} at {least.clock:g} of its clock"
            )


class _Work:
    def __init__(
        self,
        problem: Problem,
        plain: Problem,
        goal: Goal,
        reference: str,
        candidates: Collection[int] | None,
        rules: Rules | None,
        progress: Progress | None,
        seed: int,
        workers: int,
        began: float,
        time_limit_s: float,
    ) -> None:
        self.problem, self.plain, self.goal = problem, plain, goal
        self.reference, self.candidates = reference, candidates
        self.rules = rules or Rules(reference=reference, sensor="peak")
        self.progress, self.seed, self.workers = progress, seed, workers
        self.began, self.time_limit_s = began, time_limit_s
        self.reasons: dict[int, str] = {}

    def left_s(self) -> float:
        return max(self.time_limit_s - (time.perf_counter() - self.began), 0.05)

    def run(self, solver: Solver, alone_all: Schedule) -> tuple[Schedule, tuple[str, ...]]:
        from presilicon.scheduling.solvers.anytime import relax, search
        from presilicon.scheduling.solvers.bounds import CUTS
        from presilicon.scheduling.solvers.starts import beginnings

        try:
            quick = solver in ("greedy", "heft") and len(self.problem.tasks) > QUICK_OPS
            relaxed = relax(self.problem, self.goal, cuts=QUICK_CUTS if quick else CUTS)
        except ConfigError as error:
            if self.goal.objective == "energy" and self.goal.cap_w is not None:
                raise ConfigError(
                    f"{error}: the makespan may be no longer than that of {self.reference} alone without a cap; allow "
                    "more (--max-time), or ask for throughput"
                ) from None
            raise
        notes: list[str] = []
        if solver == "greedy":
            found = self._within(self.greedy(notes), alone_all, notes)
        elif solver == "heft":
            found = self._within(heft(self.problem, cap_w=self.goal.cap_w), alone_all, notes)
        else:
            exact = solver == "exact" or (solver == "auto" and len(self.problem.tasks) <= EXACT_OPS)
            starts = self.starts(alone_all)
            starts += beginnings(self.problem, self.goal, relaxed.shares, starts, self.reference)
            given = self.left_s()
            if exact:
                given = min(given * SHORT, SHORT_S + SHORT_PER_OP_S * len(self.problem.tasks))
            found = search(
                self.problem,
                self.goal,
                starts,
                time_limit_s=given,
                relaxed=relaxed,
                seed=self.seed,
                progress=self.progress,
            )
            if faults(self.problem, found, cap_w=self.goal.cap_w, limit_s=self.goal.limit_s):
                raise ConfigError(self._nothing(found))
            if exact and not found.interrupted:
                found = self._prove(found, relaxed.bound, solver, notes)
        bound = self.goal.bound_of(found)
        value = self.goal.value(self.problem, found)
        found = self.goal.bounded(found, found.solver, min(max(bound or 0.0, relaxed.bound), value))
        return found, tuple(notes)

    def _prove(self, found: Schedule, bound: float, solver: Solver, notes: list[str]) -> Schedule:
        from presilicon.scheduling.solvers.exact import solve_exactly

        try:
            proven = solve_exactly(
                self.problem, self.goal, start=found, bound=bound, time_limit_s=self.left_s(), workers=self.workers
            )
            value, least = self.goal.value(self.problem, proven), self.goal.bound_of(proven) or 0.0
            if value > least * (1 + OPEN) and self.left_s() > 1.0:
                # The solver takes Ctrl-C for itself, and ends as if it were done.
                return _interrupted(proven)
            return proven
        except KeyboardInterrupt:
            return _interrupted(found)
        except MissingToolError as error:
            if solver == "exact":
                raise
            notes.append(f"not proven: {error}")
            return found

    def _nothing(self, found: Schedule) -> str:
        limit = "" if self.goal.limit_s is None else f" within {self.goal.limit_s * 1e3:.6g} ms"
        cap = "" if self.goal.cap_w is None else f" under {self.goal.cap_w:g} W"
        return (
            f"no schedule{limit}{cap} was found; the nearest takes {found.makespan_s * 1e3:.6g} ms. Raise the cap or "
            "the limit, or give --time-limit more"
        )

    def starts(self, alone_all: Schedule) -> list[Schedule]:
        """Schedules to begin from, as far as they are within the limits."""
        tried = [alone_all]
        if self.goal.cap_w is not None:
            capped = clocked_under(self.problem, self.reference, self.goal.cap_w)
            tried += [] if capped is None else [capped]
        with suppress(DeadlockError, ConfigError):
            tried.append(self.greedy([]))
        with suppress(ConfigError):
            tried.append(heft(self.problem, cap_w=self.goal.cap_w))
        return tried

    def greedy(self, notes: list[str]) -> Schedule:
        """By the rules; under a cap, with the better of the two repairs unless one is asked for."""
        rules = replace(self.rules, reference=self.reference, cap_w=self.goal.cap_w)
        runs = [execute(self.problem, rules, candidates=self.candidates, judged_by=self.plain)]
        if self.goal.cap_w is not None and rules.repair == "away":
            other = replace(rules, repair="soonest")
            runs.append(execute(self.problem, other, candidates=self.candidates, judged_by=self.plain))
            if runs[1].schedule.makespan_s < runs[0].schedule.makespan_s:
                notes.append(
                    f"where nothing fits under the cap, what ends first is taken; the rule of another device first "
                    f"takes {runs[0].schedule.makespan_s * 1e3:.6g} ms"
                )
        best = min(runs, key=lambda run: run.schedule.makespan_s)
        self.reasons = {**best.kept, **best.moved}
        return best.schedule

    def _within(self, found: Schedule, alone_all: Schedule, notes: list[str]) -> Schedule:
        """The schedule itself, or that of the reference device where it is not within the limits."""
        wrong = faults(self.problem, found, cap_w=self.goal.cap_w, limit_s=self.goal.limit_s)
        if not wrong:
            return found
        fallback = alone_all
        if self.goal.cap_w is not None:
            fallback = clocked_under(self.problem, self.reference, self.goal.cap_w) or alone_all
        if faults(self.problem, fallback, cap_w=self.goal.cap_w, limit_s=self.goal.limit_s):
            raise ConfigError(f"the schedule of {found.solver} is not within the limits: {wrong[0]}")
        notes.append(f"the schedule of {found.solver} is not within the limits ({wrong[0]}): {fallback.solver} stays")
        return fallback


def _interrupted(schedule: Schedule) -> Schedule:
    from presilicon.scheduling.solvers.anytime import INTERRUPTED

    return replace(schedule, interrupted=True, notes=(*schedule.notes, INTERRUPTED))


def _others(
    problem: Problem, reference: str, alone_all: Schedule, cap_w: float | None, sample_s: float, lag_s: float
) -> tuple[Baseline, ...]:
    found = []
    clock, best = best_clock(problem, reference, alone_all.makespan_s)
    found.append(
        Baseline(
            name=f"{reference}-only-best-clock",
            cost=cost(problem, best, cap_w=cap_w, sample_s=sample_s),
            clock=clock,
            note="one clock for all ops, no slower than the highest",
        )
    )
    try:
        by_itself = alone(problem, reference)
    except ConfigError:
        return tuple(found)
    found.append(
        Baseline(
            name=f"{reference}-alone",
            cost=cost(by_itself, reference_only(by_itself, reference), cap_w=cap_w, sample_s=sample_s),
            clock=1.0,
            note="a system without the other devices: their idle power is not counted",
        )
    )
    if cap_w is not None and cap_w >= by_itself.idle_w:
        capped = clocked_under(by_itself, reference, cap_w)
        if capped is not None:
            found.append(
                Baseline(
                    name=f"{reference}-alone-clocked",
                    cost=cost(by_itself, capped, cap_w=cap_w, sample_s=sample_s),
                    note="each op at the highest clock that fits under the cap, known beforehand",
                )
            )
        controlled = reactive_clock(by_itself, reference, cap_w, sample_s=sample_s, lag_s=lag_s)
        found.append(
            Baseline(
                name=f"{reference}-alone-reactive",
                cost=controlled.cost,
                iteration_w=controlled.iteration_w,
                note=(
                    f"a controller that reacts to readings every {lag_s * 1e3:g} ms, the mean of "
                    f"{controlled.iterations} steps"
                ),
            )
        )
    return tuple(found)


def _reasons(problem: Problem, schedule: Schedule, reference: str, known: dict[int, str]) -> tuple[str, ...]:
    """Why ops run where they run: the rule that said so, or what can be read from the modes."""
    found = []
    for task, each in zip(problem.tasks, schedule.started, strict=True):
        home = next((mode for mode in task.modes if mode.device == reference), None)
        if task.id in known:
            found.append(known[task.id])
        elif each.mode.device == reference:
            found.append("" if each.mode.clock == 1.0 else f"at {each.mode.clock:g} of the clock")
        elif home is None:
            found.append(f"{reference} cannot run it")
        else:
            saved = home.energy_j - each.mode.energy_j
            ratio = each.mode.time_s / home.time_s if home.time_s else float("inf")
            found.append(f"{saved * 1e3:.4g} mJ less while it runs, {ratio:.3g} times as long")
    return tuple(found)
