"""A search that can be stopped at any time: simulated annealing over modes and priorities, schedules by priority."""

import time
from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from presilicon.records import Problem, Schedule
from presilicon.scheduling.checker import faults
from presilicon.scheduling.goals import Goal
from presilicon.scheduling.solvers.bounds import CUTS, Relaxation, energy_bound, makespan_bound
from presilicon.scheduling.solvers.kernels import anneal, place, value_of
from presilicon.scheduling.solvers.tables import Array, assemble, tables

COOLING = 1e-4
"""The last temperature over the first."""
PIECE_S = 0.05
"""Between two looks at the clock."""

Progress = Callable[[float, float], None]
"""Told the share of the time that is spent, and the best value so far."""


def relax(problem: Problem, goal: Goal, *, cuts: int = CUTS) -> Relaxation:
    """The bound for a goal, with the modes that the relaxed optimum prefers; fewer `cuts` are faster and weaker."""
    if goal.objective == "energy":
        return energy_bound(problem, goal.limit_s, goal.cap_w, cuts=cuts)
    return makespan_bound(problem, goal.cap_w, cuts=cuts)


INTERRUPTED = "interrupted: the best schedule so far"
"""The note on a schedule whose search was interrupted."""


def search(
    problem: Problem,
    goal: Goal,
    starts: Sequence[Schedule],
    *,
    time_limit_s: float,
    relaxed: Relaxation | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Schedule:
    """The best schedule found in the time, never worse than the best of `starts` that is within the limits.

    It begins from each of the starts and from the relaxed optimum. Interrupted (Ctrl-C), it returns the best so far,
    and says so in its notes.
    """
    began = time.perf_counter()
    relaxed = relaxed or relax(problem, goal)
    work = _Search(problem, goal, seed)
    interrupted = False
    for start in starts:
        work.begin_at(start)
    work.begin_from(relaxed.shares)
    work.restart()
    heat = abs(work.state[1]) / 200 or 1e-9
    round_ = 0
    try:
        while (spent := (time.perf_counter() - began) / time_limit_s) < 1:
            work.run(heat * COOLING**spent, round_)
            round_ += 1
            if progress is not None:
                progress(spent, float(work.state[1]))
            if work.state[1] <= relaxed.bound * (1 + 1e-9):
                break
    except KeyboardInterrupt:
        interrupted = True
    found = work.best()
    fit = [each for each in (*starts, found) if _is_within(problem, goal, each)]
    best = min(fit or [found], key=lambda each: goal.value(problem, each))
    if interrupted:
        best = replace(best, interrupted=True, notes=(*best.notes, INTERRUPTED))
    return goal.bounded(best, "anytime", relaxed.bound)


def _is_within(problem: Problem, goal: Goal, schedule: Schedule) -> bool:
    return not faults(problem, schedule, cap_w=goal.cap_w, limit_s=goal.limit_s)


class _Search:
    def __init__(self, problem: Problem, goal: Goal, seed: int) -> None:
        self.problem, self.table, self.seed = problem, tables(problem), seed
        first = self.table.mode_first[:-1]
        self.priority = ranks(problem)
        self.mode = first.copy()
        self.best_mode, self.best_priority = self.mode.copy(), self.priority.copy()
        spare = np.inf if goal.cap_w is None else goal.cap_w - problem.idle_w + 1e-9
        dearest = float(np.max(self.table.extra_w, initial=0.0)) + problem.idle_w
        energy = goal.objective == "energy"
        # For throughput, joules only decide between equals.
        self.scale = 1.0 if energy else 1e-6
        limit = np.inf if goal.limit_s is None else goal.limit_s
        self.goals = np.array(
            [
                spare,
                problem.idle_w * self.scale,
                limit,
                4 * dearest * max(1, len(problem.pools)),
                0.0 if energy else 1.0,
            ]
        )
        if not energy:
            self.table = self.table._replace(extra_j=self.table.extra_j * self.scale)
        self.state = np.array([np.inf, np.inf])
        self.starts = np.empty(len(problem.tasks))
        self.pace = 20

    def value(self, mode: Array, priority: Array) -> float:
        span = place(self.table, mode, priority, self.goals[0], self.starts)
        return float(value_of(span, self.table.extra_j[mode].sum(), *self.goals[1:]))

    def offer(self, mode: Array, priority: Array) -> None:
        """Take a beginning if it is the best so far."""
        value = self.value(mode, priority)
        if value < self.state[1]:
            self.state[1] = value
            self.best_mode, self.best_priority = mode.copy(), priority.copy()

    def begin_at(self, schedule: Schedule) -> None:
        """The modes and the order of a schedule."""
        first = self.table.mode_first[:-1]
        own = [task.modes.index(each.mode) for task, each in zip(self.problem.tasks, schedule.started, strict=True)]
        mode = first + np.array(own, np.int64)
        times = np.array([each.start_s for each in schedule.started])
        order = np.empty(len(times))
        order[np.argsort(times, kind="stable")] = np.linspace(1.0, 0.0, len(times))
        self.offer(mode, order)
        self.offer(mode, ranks(self.problem))

    def begin_from(self, shares: Array) -> None:
        """The modes that have the largest shares."""
        first = self.table.mode_first
        own = [int(np.argmax(shares[first[task] : first[task + 1]])) for task in range(len(first) - 1)]
        self.offer(first[:-1] + np.array(own, np.int64), ranks(self.problem))

    def restart(self) -> None:
        """Go on from the best beginning."""
        self.mode, self.priority = self.best_mode.copy(), self.best_priority.copy()
        self.state[0] = self.state[1]

    def run(self, heat: float, number: int) -> None:
        """A piece of the search, as long as `PIECE_S` or so."""
        began = time.perf_counter()
        anneal(
            self.table,
            self.mode,
            self.priority,
            self.best_mode,
            self.best_priority,
            self.state,
            self.goals,
            heat * self.scale,
            self.pace,
            self.seed * 1_000_003 + number,
        )
        spent = time.perf_counter() - began
        if number > 0:  # the first call compiles
            self.pace = int(min(max(self.pace * PIECE_S / max(spent, 1e-4), 20), 50_000, self.pace * 4))

    def best(self) -> Schedule:
        place(self.table, self.best_mode, self.best_priority, self.goals[0], self.starts)
        own = self.best_mode - self.table.mode_first[:-1]
        return assemble(self.problem, own, self.starts, "anytime")


def ranks(problem: Problem) -> Array:
    """Length of the longest way to the end of the step, from 0 to 1, each op at its mean time: HEFT's upward rank."""
    found = np.zeros(len(problem.tasks))
    for task in reversed(problem.tasks):
        mean = sum(mode.time_s for mode in task.modes) / len(task.modes)
        after = max((found[follower] for follower in problem.followers[task.id]), default=0.0)
        found[task.id] = mean + after
    longest = float(found.max(initial=0.0))
    return found / longest if longest else found
