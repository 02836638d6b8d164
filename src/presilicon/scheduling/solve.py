"""The common entry to all solvers: a checked schedule with its cost, baselines and gap to a proven bound."""

import math
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from presilicon.base import ConfigError, MissingToolError, unknown
from presilicon.records import Mode, Problem, Schedule, ScheduleCost
from presilicon.scheduling.accounting import SAMPLE_S, cost, link_warnings
from presilicon.scheduling.baselines import LAG_S, best_clock, clocked_under, reactive_clock, reference_only
from presilicon.scheduling.checker import check, faults
from presilicon.scheduling.goals import Goal, Objective, Progress, sound_bound
from presilicon.scheduling.problems import alone
from presilicon.scheduling.solvers.greedy import DeadlockError, Rules, execute
from presilicon.scheduling.solvers.heft import heft

Solver = Literal["greedy", "heft", "anytime", "exact", "auto"]
SOLVERS: tuple[Solver, ...] = get_args(Solver)
TIME_LIMIT_S = 20.0
EXACT_OPS = 150
"""Largest number of ops for which `auto` uses the exact solver."""
RELAXING = 0.5
"""Largest share of the time that the linear program may take; then a weaker one is solved instead."""
SHORT = 0.25
"""Largest share of its time that `exact` spends on searching for a first schedule."""
QUICK_OPS = 1000
"""Above this number of ops, `greedy` and `heft` get a weaker bound that is quick to compute."""
MANY_OPS = 1200
"""Above this number of ops, the linear program gets fewer cuts."""
LONGER = 30
"""Ratio of the times of the linear program and of one with load constraints only, if there are many ops."""
SHORTEST_LAG_S = 1e-6
IMPLAUSIBLE = 2.0
"""Ratio of the times of a baseline and a design, one way or the other, above which the baseline is not plausible."""
OPEN = 1e-3
"""Gap above which a solver that ended early must have been interrupted."""
SHORT_S, SHORT_PER_OP_S = 0.5, 0.03
"""Limits on that search: seconds, and additional seconds per op."""


class Baseline(Struct, frozen=True, kw_only=True):
    """Cost of a step with one kind of device only."""

    name: str
    cost: ScheduleCost
    clock: float | None = None
    """Common clock of all ops, if there is one."""
    iteration_w: tuple[float, ...] = ()
    """Average power of consecutive steps, if they differ."""
    note: str = ""
    is_alone: bool = False
    """Whether the system has only these devices, so that the idle power of others is not counted."""


class Plausibility(Struct, frozen=True, kw_only=True):
    """Time of a step on the reference device beside the one that a design of the simulator takes for it."""

    baseline: str
    baseline_s: float
    design: str
    design_s: float

    @property
    def time_ratio(self) -> float:
        """Time of the baseline over that of the design."""
        return self.baseline_s / self.design_s

    @property
    def is_plausible(self) -> bool:
        """Whether the times differ by no more than a factor of `IMPLAUSIBLE`."""
        return 1 / IMPLAUSIBLE <= self.time_ratio <= IMPLAUSIBLE


class Solution(Struct, frozen=True, kw_only=True):
    """A schedule with its cost, bound, baselines and reasons."""

    problem: Problem
    goal: Goal
    solver: str
    time_limit_s: float
    spent_s: float
    schedule: Schedule
    cost: ScheduleCost
    baseline: Baseline
    """One kind of device runs everything; the others are idle."""
    others: tuple[Baseline, ...]
    """Variants: at the best clock, under a clock controller, and without the idle power of the other devices."""
    reasons: tuple[str, ...]
    """Per op: why it runs where it does; empty if it stays on the reference device."""
    notes: tuple[str, ...] = ()
    plausibility: Plausibility | None = None
    """None: the times of the baseline were compared with nothing."""

    @property
    def compared(self) -> Baseline | None:
        """The baseline that savings are relative to: that of the reference device if it keeps the cap, else the best.

        None if no baseline keeps the cap.
        """
        return self.baseline if self.goal.allows(self.baseline.cost) else self._best(self.others)

    @property
    def without_the_others(self) -> Baseline | None:
        """The best baseline under the cap of a system that has only the reference device; None if there is none."""
        return self._best(tuple(baseline for baseline in self.others if baseline.is_alone))

    def _best(self, baselines: Sequence[Baseline]) -> Baseline | None:
        def rank(baseline: Baseline) -> tuple[bool, float]:
            of_energy = self.goal.objective == "energy"
            value = baseline.cost.energy_per_step_j if of_energy else baseline.cost.makespan_s
            return self.goal.is_late(baseline.cost), value

        return min((each for each in baselines if self.goal.allows(each.cost)), key=rank, default=None)

    @property
    def bound(self) -> float | None:
        """Proven lower bound within the limits: joules or seconds."""
        return self.goal.bound_of(self.schedule)

    @property
    def gap(self) -> float | None:
        """Largest possible distance from the optimum, as a fraction of the bound."""
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

    The objective `energy` minimizes energy with a makespan of at most `limit_s`, by default that of the reference
    device alone; `throughput` minimizes the makespan. Both may have a power cap. The solver `greedy` runs the step
    event by event (see `solvers.greedy`), `heft` places ops where they end first, `anytime` searches, and `exact`
    proves the optimum; `auto` is `exact` for small problems and `anytime` for large ones. An interrupted search returns
    the best schedule so far.

    `plain` is the problem of the baselines if it differs: without the relief that comes from sharing the work.
    `sample_s` is the period of power readings that count violations, `lag_s` the period of the clock controller.

    Raises:
        ConfigError: a time limit is not above 0, a cap is below idle power, or an op does not fit under the cap.
        MissingToolError: `exact` needs OR-tools.
        RunFailedError: a solver's schedule did not pass the check, or a bound is above the value of a schedule.
    """
    began = time.perf_counter()
    if solver not in SOLVERS:
        raise unknown("solver", solver, SOLVERS)
    if objective not in get_args(Objective):
        raise unknown("objective", objective, get_args(Objective))
    for name, seconds in (("time limit", time_limit_s), ("sampling period", sample_s), ("lag", lag_s)):
        if not 0 < seconds < 1e9:
            raise ConfigError(f"the {name} must be above 0 s, not {seconds:g} s")
    if lag_s < SHORTEST_LAG_S:
        raise ConfigError(f"the lag must be at least {SHORTEST_LAG_S:g} s, not {lag_s:g} s")
    if limit_s is not None and not 0 < limit_s < 1e9:
        raise ConfigError(f"the makespan limit must be above 0 s, not {limit_s:g} s")
    problem.check()
    reference = reference or problem.pools[0].name
    alone_all = reference_only(problem, reference)
    plain = problem if plain is None else plain
    baseline = alone_all if plain is problem else reference_only(plain, reference)
    if not baseline.makespan_s:
        raise ConfigError(f"a step must take time on {reference}; all of its ops take 0 s there")
    if objective == "energy" and limit_s is None:
        limit_s = baseline.makespan_s
    goal = Goal(objective=objective, limit_s=limit_s, cap_w=cap_w)
    goal.check(problem)
    _check_cap(problem, cap_w)
    rules = rules or Rules(reference=reference, sensor="peak")
    work = _Work(problem, plain, goal, reference, candidates, rules, progress, seed, workers, began, time_limit_s)
    schedule, notes = work.run(solver, alone_all)
    claimed = cost(problem, schedule, cap_w=cap_w, sample_s=sample_s)
    check(problem, schedule, cap_w=cap_w, limit_s=limit_s, claimed=claimed)
    return Solution(
        problem=problem,
        goal=goal,
        solver=solver if solver != "auto" else f"auto ({schedule.solver})",
        time_limit_s=time_limit_s,
        spent_s=time.perf_counter() - began,
        schedule=schedule,
        cost=claimed,
        baseline=Baseline(
            name=f"{reference}-only", cost=cost(plain, baseline, cap_w=cap_w, sample_s=sample_s), clock=1.0
        ),
        others=_others(plain, reference, baseline, cap_w, sample_s, lag_s),
        reasons=_reasons(problem, schedule, reference, work.reasons if schedule.solver == "greedy" else {}),
        notes=(*schedule.notes, *notes, *link_warnings(problem, schedule)),
    )


def solve_best(
    problems: Sequence[Problem], *, plains: Sequence[Problem], time_limit_s: float, **options: Any
) -> Solution:
    """The best of several problems, as the configurations of a system's boards give them, with a bound for all.

    Each gets its part of the time limit. `plains` and `options` are those of `solve`.

    Raises:
        ConfigError: none has a schedule.
    """
    solutions, failed = [], []
    for problem, plain in zip(problems, plains, strict=True):
        try:
            solutions.append(solve(problem, plain=plain, time_limit_s=time_limit_s / len(problems), **options))
        except ConfigError as error:
            failed.append((problem, error))
    if not solutions:
        raise failed[0][1]
    best = min(solutions, key=lambda solution: solution.goal.value(solution.problem, solution.schedule))
    if len(problems) == 1:
        return best
    # A solver that found no schedule of a configuration has not proven that there is none.
    bounds = [solution.bound or 0.0 for solution in solutions]
    bound = min(bounds + [_relaxed_bound(problem, best.goal) for problem, _ in failed])
    held = ", ".join(f"{pool.units} x {pool.name}" for pool in best.problem.pools)
    note = f"the best of {len(problems)} configurations of the boards: {held}"
    return replace(
        best,
        schedule=best.goal.bounded(best.schedule, best.schedule.solver, bound),
        time_limit_s=time_limit_s,
        spent_s=sum(solution.spent_s for solution in solutions),
        notes=(*best.notes, note),
    )


def _relaxed_bound(problem: Problem, goal: Goal) -> float:
    """A bound on all schedules of a problem; infinite if there provably are none."""
    from presilicon.scheduling.solvers.anytime import relax

    try:
        goal.check(problem)
        _check_cap(problem, goal.cap_w)
        return relax(problem, goal, cuts=0).bound
    except ConfigError:
        return math.inf


def _check_cap(problem: Problem, cap_w: float | None) -> None:
    """Refuse a cap under which some op fits on no device."""
    if cap_w is None:
        return

    def draws(mode: Mode) -> float:
        return problem.idle_w + mode.peak_w - mode.units * problem.pool[mode.device].idle_w

    for task in problem.tasks:
        least = min(task.modes, key=draws)
        if draws(least) > cap_w + 1e-9:
            label = f"{task.kind} {task.size}".rstrip()
            raise ConfigError(
                f"the power cap must be at least {draws(least):g} W, not {cap_w:g} W: op {task.name or task.id} "
                f"({label}) takes that on {least.device} at {least.clock:g} of its clock, and more elsewhere"
            )


@dataclass
class _Work:
    problem: Problem
    plain: Problem
    goal: Goal
    reference: str
    candidates: Collection[int] | None
    rules: Rules
    progress: Progress | None
    seed: int
    workers: int
    began: float
    time_limit_s: float
    reasons: dict[int, str] = field(default_factory=dict)

    def left_s(self) -> float:
        return max(self.time_limit_s - (time.perf_counter() - self.began), 0.05)

    def has_time(self) -> bool:
        return time.perf_counter() - self.began < self.time_limit_s

    def run(self, solver: Solver, alone_all: Schedule) -> tuple[Schedule, tuple[str, ...]]:
        import scipy.optimize  # noqa: F401  # not in the time of the first linear program

        from presilicon.scheduling.solvers.anytime import relax, search
        from presilicon.scheduling.solvers.bounds import CUTS
        from presilicon.scheduling.solvers.starts import beginnings, rounded

        try:
            quick = solver in ("greedy", "heft") and len(self.problem.tasks) > QUICK_OPS
            began, cuts = (
                time.perf_counter(),
                0 if quick else min(CUTS, int(CUTS * (1200 / len(self.problem.tasks)) ** 2) + 1),
            )
            relaxed = relax(self.problem, self.goal, cuts=0)
            if cuts and LONGER * (time.perf_counter() - began) < self.left_s():
                loads = relaxed.bound
                relaxed = relax(self.problem, self.goal, cuts=cuts, time_limit_s=self.left_s() * RELAXING)
                relaxed = relaxed._replace(bound=max(relaxed.bound, loads))  # its multipliers may be rounded worse
                spent_s = time.perf_counter() - began
            else:
                cuts = 0
        except ConfigError as error:
            if self.goal.objective == "energy" and self.goal.cap_w is not None:
                raise ConfigError(
                    f"{error}: the makespan may be no longer than that of {self.reference} alone without a cap; allow "
                    "more time (--max-time), or use --objective throughput"
                ) from None
            raise
        notes: list[str] = []
        if solver == "greedy":
            schedule = self._within(self.greedy(notes), alone_all, notes)
        elif solver == "heft":
            schedule = self._within(heft(self.problem, cap_w=self.goal.cap_w), alone_all, notes)
        else:
            exact = solver == "exact" or (solver == "auto" and len(self.problem.tasks) <= EXACT_OPS)
            starts = self.starts(alone_all)
            if cuts and self.left_s() > 1.5 * spent_s:
                left_s = self.left_s() * RELAXING
                starts += rounded(self.problem, self.goal, relaxed, cuts, left_s)
            if self.has_time():
                starts += beginnings(self.problem, self.goal, relaxed.shares, starts, self.reference)
            search_s = self.left_s()
            if exact:
                search_s = min(search_s * SHORT, SHORT_S + SHORT_PER_OP_S * len(self.problem.tasks))
            schedule = search(
                self.problem,
                self.goal,
                starts,
                time_limit_s=search_s,
                relaxed=relaxed,
                seed=self.seed,
                workers=self.workers,
                progress=self.progress,
            )
            broken = faults(self.problem, schedule, cap_w=self.goal.cap_w, limit_s=self.goal.limit_s)
            if broken:
                raise ConfigError(self._nothing(schedule, broken[0]))
            if exact and not schedule.interrupted:
                schedule = self._prove(schedule, relaxed.bound, solver, notes)
        bound = max(self.goal.bound_of(schedule) or 0.0, relaxed.bound)
        bound = sound_bound(bound, self.goal.value(self.problem, schedule))
        return self.goal.bounded(schedule, schedule.solver, bound), tuple(notes)

    def _prove(self, start: Schedule, bound: float, solver: Solver, notes: list[str]) -> Schedule:
        from presilicon.scheduling.solvers.exact import solve_exactly

        try:
            proven = solve_exactly(
                self.problem, self.goal, start=start, bound=bound, time_limit_s=self.left_s(), workers=self.workers
            )
            value, least = self.goal.value(self.problem, proven), self.goal.bound_of(proven) or 0.0
            if value > least * (1 + OPEN) and self.left_s() > 1.0:
                # CP-SAT handles Ctrl-C itself, and ends as if it were done.
                return _interrupted(proven)
            return proven
        except KeyboardInterrupt:
            return _interrupted(start)
        except MissingToolError as error:
            if solver == "exact":
                raise
            notes.append(f"optimum not proven: {error}")
            return start

    def _nothing(self, nearest: Schedule, broken: str) -> str:
        limit = "" if self.goal.limit_s is None else f" within {self.goal.limit_s * 1e3:.6g} ms"
        cap = "" if self.goal.cap_w is None else f" under {self.goal.cap_w:g} W"
        return (
            f"no schedule{limit}{cap} was found. The nearest takes {nearest.makespan_s * 1e3:.6g} ms, and {broken}. "
            "Raise the cap, the limit, the memory (devices.NAME.memory_gb) or --time-limit, or use a smaller batch"
        )

    def starts(self, alone_all: Schedule) -> list[Schedule]:
        """Schedules to start the search from."""
        tried = [alone_all]
        if self.goal.cap_w is not None:
            capped = clocked_under(self.problem, self.reference, self.goal.cap_w)
            tried += [] if capped is None else [capped]
        with suppress(DeadlockError, ConfigError):
            tried.append(self.greedy([]))
        with suppress(ConfigError):
            tried += [heft(self.problem, cap_w=self.goal.cap_w)] if self.has_time() else []
        return tried

    def greedy(self, notes: list[str]) -> Schedule:
        """The greedy schedule; under a cap, with the better of the two repairs unless the rules name one."""
        rules = replace(self.rules, reference=self.reference, cap_w=self.goal.cap_w)
        runs = [execute(self.problem, rules, candidates=self.candidates, judged_by=self.plain)]
        if self.goal.cap_w is not None and rules.repair == "away":
            other = replace(rules, repair="soonest")
            runs.append(execute(self.problem, other, candidates=self.candidates, judged_by=self.plain))
            if runs[1].schedule.makespan_s < runs[0].schedule.makespan_s:
                notes.append(
                    f"where nothing fits under the cap, the mode that ends first is used; preferring another device "
                    f"would take {runs[0].schedule.makespan_s * 1e3:.6g} ms"
                )
        best = min(runs, key=lambda run: run.schedule.makespan_s)
        self.reasons = {**best.stayed, **best.moved}
        return best.schedule

    def _within(self, schedule: Schedule, alone_all: Schedule, notes: list[str]) -> Schedule:
        """The schedule if it is within the limits, otherwise that of the reference device."""
        from presilicon.scheduling.solvers.starts import replayed

        broken = faults(self.problem, schedule, cap_w=self.goal.cap_w, limit_s=self.goal.limit_s)
        if not broken:
            return schedule
        again = replayed(self.problem, schedule, self.goal.cap_w)
        if not faults(self.problem, again, cap_w=self.goal.cap_w, limit_s=self.goal.limit_s):
            notes.append(f"ops and moves of {schedule.solver} start again in its order, because else {broken[0]}")
            return again
        fallback = alone_all
        if self.goal.cap_w is not None:
            fallback = clocked_under(self.problem, self.reference, self.goal.cap_w) or alone_all
        if faults(self.problem, fallback, cap_w=self.goal.cap_w, limit_s=self.goal.limit_s):
            raise ConfigError(
                f"the schedule of {schedule.solver} is not within the limits: {broken[0]}; try --solver anytime, which "
                "searches for one that is"
            )
        notes.append(
            f"the schedule of {schedule.solver} is not within the limits ({broken[0]}); using {fallback.solver}"
        )
        return fallback


def _interrupted(schedule: Schedule) -> Schedule:
    from presilicon.scheduling.solvers.anytime import INTERRUPTED

    return replace(schedule, interrupted=True, notes=(*schedule.notes, INTERRUPTED))


def _others(
    problem: Problem, reference: str, alone_all: Schedule, cap_w: float | None, sample_s: float, lag_s: float
) -> tuple[Baseline, ...]:
    baselines = []
    clock, best = best_clock(problem, reference, alone_all.makespan_s)
    baselines.append(
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
        return tuple(baselines)
    baselines.append(
        Baseline(
            name=f"{reference}-alone",
            cost=cost(by_itself, reference_only(by_itself, reference), cap_w=cap_w, sample_s=sample_s),
            clock=1.0,
            is_alone=True,
            note="a system without the other devices: their idle power is not counted",
        )
    )
    if cap_w is not None and cap_w >= by_itself.idle_w:
        capped = clocked_under(by_itself, reference, cap_w)
        if capped is not None:
            baselines.append(
                Baseline(
                    name=f"{reference}-alone-clocked",
                    cost=cost(by_itself, capped, cap_w=cap_w, sample_s=sample_s),
                    is_alone=True,
                    note="each op at the highest clock that fits under the cap, known beforehand",
                )
            )
        controlled = reactive_clock(by_itself, reference, cap_w, sample_s=sample_s, lag_s=lag_s)
        baselines.append(
            Baseline(
                name=f"{reference}-alone-reactive",
                cost=controlled.cost,
                iteration_w=controlled.iteration_w,
                is_alone=True,
                note=(
                    f"a controller that reacts to readings every {lag_s * 1e3:g} ms, the mean of "
                    f"{controlled.iterations} steps"
                ),
            )
        )
    return tuple(baselines)


def _reasons(problem: Problem, schedule: Schedule, reference: str, known: dict[int, str]) -> tuple[str, ...]:
    """Why each op runs where it does: the greedy rule, or a comparison of its modes."""
    reasons = []
    for task, slot in zip(problem.tasks, schedule.started, strict=True):
        home = next((mode for mode in task.modes if mode.device == reference), None)
        if task.id in known:
            reasons.append(known[task.id])
        elif slot.mode.device == reference:
            reasons.append("" if slot.mode.clock == 1.0 else f"at {slot.mode.clock:g} of the clock")
        elif home is None:
            reasons.append(f"{reference} cannot run it")
        else:
            saved = home.energy_j - slot.mode.energy_j
            ratio = slot.mode.time_s / home.time_s if home.time_s else float("inf")
            reasons.append(f"{saved * 1e3:.4g} mJ less while it runs, {ratio:.3g} times as long")
    return tuple(reasons)
