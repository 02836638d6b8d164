"""A search that can be stopped at any time: simulated annealing over modes and priorities, schedules by priority."""

import time
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from presilicon.records import Problem, Schedule
from presilicon.scheduling.checker import faults
from presilicon.scheduling.goals import Goal, Progress
from presilicon.scheduling.solvers.bounds import CUTS, Relaxation, energy_bound, makespan_bound
from presilicon.scheduling.solvers.kernels import anneal, place, value_of
from presilicon.scheduling.solvers.tables import Array, assemble, empty_moves, read_moves, tables

COOLING = 1e-4
"""Ratio of the last temperature to the first."""
PIECE_S = 0.05
"""Target duration of a piece of the search, in seconds; the time limit is checked between pieces."""


def relax(problem: Problem, goal: Goal, *, cuts: int = CUTS, time_limit_s: float | None = None) -> Relaxation:
    """The bound for a goal, with the modes that the relaxed optimum prefers; fewer `cuts` are faster and weaker."""
    if goal.objective == "energy":
        return energy_bound(problem, goal.limit_s, goal.cap_w, cuts=cuts, time_limit_s=time_limit_s)
    return makespan_bound(problem, goal.cap_w, cuts=cuts, time_limit_s=time_limit_s)


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

    It starts from each of `starts` and from the relaxed optimum. When interrupted (Ctrl-C), it returns the best
    schedule so far, marked as interrupted.
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
    best_found = work.best()
    fit = [schedule for schedule in (*starts, best_found) if _is_within(problem, goal, schedule)]
    best = min(fit or [best_found], key=lambda schedule: goal.value(problem, schedule))
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
        # For throughput, energy only breaks ties.
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
        self.starts, self.moves = np.empty(len(problem.tasks)), empty_moves(problem)
        self.pace = 20

    def value(self, mode: Array, priority: Array) -> float:
        span, excess = place(self.table, mode, priority, self.goals[0], self.starts, self.moves)
        return float(value_of(span, excess, self.table.extra_j[mode].sum(), *self.goals[1:]))

    def offer(self, mode: Array, priority: Array) -> None:
        """Use modes and priorities as the starting point if they are the best so far."""
        value = self.value(mode, priority)
        if value < self.state[1]:
            self.state[1] = value
            self.best_mode, self.best_priority = mode.copy(), priority.copy()

    def begin_at(self, schedule: Schedule) -> None:
        """Offer the modes and the order of a schedule."""
        first = self.table.mode_first[:-1]
        own = [task.modes.index(slot.mode) for task, slot in zip(self.problem.tasks, schedule.started, strict=True)]
        mode = first + np.array(own, np.int64)
        times = np.array([slot.start_s for slot in schedule.started])
        order = np.empty(len(times))
        order[np.argsort(times, kind="stable")] = np.linspace(1.0, 0.0, len(times))
        self.offer(mode, order)
        self.offer(mode, ranks(self.problem))

    def begin_from(self, shares: Array) -> None:
        """Offer the modes with the largest shares in the relaxed optimum."""
        first = self.table.mode_first
        own = [int(np.argmax(shares[first[task] : first[task + 1]])) for task in range(len(first) - 1)]
        self.offer(first[:-1] + np.array(own, np.int64), ranks(self.problem))

    def restart(self) -> None:
        """Continue from the best starting point."""
        self.mode, self.priority = self.best_mode.copy(), self.best_priority.copy()
        self.state[0] = self.state[1]

    def run(self, heat: float, number: int) -> None:
        """Run a piece of the search of about `PIECE_S` seconds."""
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
        place(self.table, self.best_mode, self.best_priority, self.goals[0], self.starts, self.moves)
        own = self.best_mode - self.table.mode_first[:-1]
        return assemble(self.problem, own, self.starts, read_moves(self.problem, own, self.moves), "anytime")


def ranks(problem: Problem) -> Array:
    """Upward ranks as in HEFT, scaled to 0..1: longest path to the end of the step with each op at its mean time."""
    rank = np.zeros(len(problem.tasks))
    for task in reversed(problem.tasks):
        mean = sum(mode.time_s for mode in task.modes) / len(task.modes)
        after = max((rank[follower] for follower in problem.followers[task.id]), default=0.0)
        rank[task.id] = mean + after
    longest = float(rank.max(initial=0.0))
    return rank / longest if longest else rank
