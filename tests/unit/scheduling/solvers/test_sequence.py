"""The search as a sequence: more time continues it, and starts come near the limit."""

from itertools import count
from pathlib import Path

import pytest

from presilicon.designs import load_system
from presilicon.records import Problem
from presilicon.scheduling import build_problem, cost, read_graph, reference_only
from presilicon.scheduling.checker import faults
from presilicon.scheduling.goals import Goal
from presilicon.scheduling.solvers import anytime
from presilicon.scheduling.solvers.anytime import relax, search
from presilicon.scheduling.solvers.starts import rounded
from presilicon.scheduling.solvers.tables import tables

GRAPHS = Path(__file__).parents[4] / "benchmarks" / "graphs"


@pytest.fixture(scope="module")
def problem() -> Problem:
    return build_problem(load_system("v100-3xs10-ideal"), read_graph(GRAPHS / "step-432-M.json"))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_longer_search_begins_like_a_shorter_one(
    problem: Problem, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = reference_only(problem, "gpu")
    goal = Goal(limit_s=start.makespan_s)
    relaxed = relax(problem, goal)
    seen: dict[int, list[float]] = {}
    values = []
    for pieces in (4, 12):
        ticks = count()
        monkeypatch.setattr(anytime.time, "perf_counter", lambda ticks=ticks: float(next(ticks)))
        steps = seen[pieces] = []
        found = search(
            problem, goal, [start], time_limit_s=pieces, relaxed=relaxed, workers=workers,
            progress=lambda _, value, steps=steps: steps.append(value),
        )  # fmt: skip
        monkeypatch.undo()
        values.append(cost(problem, found).energy_per_step_j)
    assert len(seen[12]) > len(seen[4]) >= 3
    assert seen[12][: len(seen[4])] == seen[4]
    assert seen[12] == sorted(seen[12], reverse=True)
    assert values[1] <= values[0]


def test_rounding_at_a_reduced_limit_gives_shorter_schedules(problem: Problem) -> None:
    start = reference_only(problem, "gpu")
    goal = Goal(limit_s=0.86 * start.makespan_s)
    assert goal.limit_s is not None
    first, *others = rounded(problem, goal, relax(problem, goal), 50, 60.0)
    assert first.makespan_s > goal.limit_s
    assert min(each.makespan_s for each in others) < first.makespan_s
    for each in (first, *others):
        assert not faults(problem, each)
        assert cost(problem, each).energy_per_step_j < cost(problem, start).energy_per_step_j


def test_repeated_ops_are_alike_and_others_are_not(problem: Problem) -> None:
    classes = tables(problem).like_class
    kinds: dict[int, set[object]] = {}
    for task, number in zip(problem.tasks, classes, strict=True):
        kinds.setdefault(int(number), set()).add((task.kind, task.modes, len(task.deps)))
    assert all(len(members) == 1 for members in kinds.values())
    assert 1 < len(kinds) < len(problem.tasks)
