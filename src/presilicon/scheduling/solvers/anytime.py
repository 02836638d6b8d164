"""A search that can be stopped at any time: simulated annealing over modes and priorities, schedules by priority."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from itertools import count

import numpy as np
from msgspec.structs import replace

from presilicon.records import Problem, Schedule
from presilicon.scheduling.checker import faults
from presilicon.scheduling.goals import Goal, Progress
from presilicon.scheduling.solvers.annealing import anneal, value_of
from presilicon.scheduling.solvers.bounds import CUTS, RelaxedSolution, energy_bound, makespan_bound
from presilicon.scheduling.solvers.placing import place
from presilicon.scheduling.solvers.tables import Array, assemble, empty_moves, read_moves, tables

COOLING = 1e-3
"""Ratio of the last temperature of a cycle to its first."""
HEAT = 1e-4
"""First temperature, as a share of the value."""
CYCLE = 4_000_000
"""Placements of ops in the first cycle; each later cycle is twice as long."""
PIECE = 40_000
"""Placements of ops between two looks at the clock."""


def relax(problem: Problem, goal: Goal, *, cuts: int = CUTS, time_limit_s: float | None = None) -> RelaxedSolution:
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
    relaxed: RelaxedSolution | None = None,
    seed: int = 0,
    workers: int = 1,
    progress: Progress | None = None,
) -> Schedule:
    """The best schedule found in the time, never worse than the best of `starts` that is within the limits.

    It starts from each of `starts` and from the relaxed optimum. Cycles of annealing follow, each twice as long as the
    last, in which `workers` searches go on side by side from the best schedule so far. What they do does not depend on
    the time limit: a longer search begins like a shorter one. When interrupted (Ctrl-C), it returns the best schedule
    so far, marked as interrupted.
    """
    began = time.perf_counter()
    relaxed = relaxed or relax(problem, goal)
    work = _Search(problem, goal, relaxed.price_w)
    interrupted = False
    for start in starts:
        work.begin_at(start)
    work.begin_from(relaxed.shares)
    searches = [work, *(work.copy() for _ in range(workers - 1))]
    heat, tries = abs(work.state[1]) * HEAT or 1e-9, max(1, PIECE // len(problem.tasks))
    pieces, piece = max(1, CYCLE // (tries * len(problem.tasks))), 0
    seeds = count(seed * 1_000_003)
    try:
        with ThreadPoolExecutor(workers) as pool:
            while (spent := (time.perf_counter() - began) / time_limit_s) < 1:
                share = piece / pieces
                runs = [pool.submit(each.run, heat * COOLING**share, share, tries, next(seeds)) for each in searches]
                for run in runs:
                    run.result()
                best = min(searches, key=lambda each: float(each.state[1]))
                piece += 1
                if piece == pieces:
                    pieces, piece = 2 * pieces, 0
                    for each in searches:
                        each.restart(best)
                if progress is not None:
                    progress(spent, float(best.state[1]))
                if best.state[1] <= relaxed.bound * (1 + 1e-9):
                    break
    except KeyboardInterrupt:
        interrupted = True
    found = min(searches, key=lambda each: float(each.state[1])).best()
    fit = [schedule for schedule in (*starts, found) if _is_within(problem, goal, schedule)]
    chosen = min(fit or [found], key=lambda schedule: goal.value(problem, schedule))
    if interrupted:
        chosen = replace(chosen, interrupted=True, notes=(*chosen.notes, INTERRUPTED))
    return goal.bounded(chosen, "anytime", relaxed.bound)


def _is_within(problem: Problem, goal: Goal, schedule: Schedule) -> bool:
    return not faults(problem, schedule, cap_w=goal.cap_w, limit_s=goal.limit_s)


class _Search:
    def __init__(self, problem: Problem, goal: Goal, price_w: float = 0.0) -> None:
        self.problem, self.table = problem, tables(problem)
        first = self.table.mode_first[:-1]
        self.priority = ranks(problem)
        self.mode = first.copy()
        self.best_mode, self.best_priority = self.mode.copy(), self.priority.copy()
        spare = np.inf if goal.cap_w is None else goal.cap_w - problem.idle_w + 1e-9
        dearest = float(np.max(self.table.extra_w, initial=0.0)) + problem.idle_w
        hard = 4 * dearest * max(1, len(problem.pools))
        energy = goal.objective == "energy"
        # For throughput, energy only breaks ties.
        scale = 1.0 if energy else 1e-6
        limit = np.inf if goal.limit_s is None else goal.limit_s
        self.goals = np.array([spare, problem.idle_w * scale, limit, 0.0 if energy else 1.0, hard, hard])
        self.lowest_w = self.goals[4] = min(2 * price_w, hard) or hard
        if not energy:
            self.table = self.table._replace(extra_j=self.table.extra_j * scale)
        self.state = np.array([np.inf, np.inf])
        self.starts, self.moves = np.empty(len(problem.tasks)), empty_moves(problem)

    def value(self, mode: Array, priority: Array) -> tuple[float, float]:
        span, excess = place(self.table, mode, priority, self.goals[0], self.starts, self.moves)
        return value_of(span, excess, self.table.extra_j[mode].sum(), *self.goals[1:4], self.goals[4:])  # type: ignore[no-any-return]

    def offer(self, mode: Array, priority: Array) -> None:
        """Use modes and priorities as the starting point, and as the best so far, if they are the best for it."""
        value, found = self.value(mode, priority)
        if value < self.state[0]:
            self.state[0] = value
            self.mode, self.priority = mode.copy(), priority.copy()
        if found < self.state[1]:
            self.state[1] = found
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

    def copy(self) -> "_Search":
        """The same search, to go on in another way."""
        other = copy(self)
        for name in ("mode", "priority", "best_mode", "best_priority", "goals", "state", "starts", "moves"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def restart(self, other: "_Search") -> None:
        """Continue from the best that another search has found."""
        self.mode, self.priority = other.best_mode.copy(), other.best_priority.copy()

    def run(self, heat: float, share: float, tries: int, seed: int) -> None:
        """Run a piece of the search, at some share of its cycle: so many changes at one temperature."""
        self.goals[4] = self.lowest_w ** (1 - share) * self.goals[5] ** share
        self.state[0] = self.value(self.mode, self.priority)[0]
        current = self.mode, self.priority, self.best_mode, self.best_priority, self.state, self.goals
        anneal(self.table, *current, heat, tries, seed)

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
