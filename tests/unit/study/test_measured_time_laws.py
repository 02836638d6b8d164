"""Laws of times taken from a trial: each call from when its inputs and its device were there, and links by a line."""

import random
from statistics import fmean

import pytest

from presilicon.records import Mode, Pool, Problem, Task
from presilicon.scheduling import Ran
from presilicon.study.execution import Calibration, _learn, effective_times, fit_link

LANES = ("cpu 0", "board 0", "board 1")


def some_problem(draw: random.Random, count: int) -> Problem:
    modes = tuple(Mode(device=name, time_s=1.0, average_w=1.0, peak_w=1.0) for name in ("cpu", "board"))
    tasks = tuple(
        Task(id=number, kind="op", deps=tuple(draw.sample(range(number), min(number, 2))), modes=modes)
        for number in range(count)
    )
    pools = Pool(name="cpu", units=1, idle_w=1.0), Pool(name="board", units=2, idle_w=1.0)
    return Problem(name="drawn", tasks=tasks, pools=pools)


def some_trial(draw: random.Random, problem: Problem, steps: int) -> list[Ran]:
    """Ops of two steps on any lane, moves of some of their inputs, and calls that no step has."""
    trial, now_s = [], 10.0
    for step in range(1, steps + 1):
        for task in problem.tasks:
            lane = draw.choice(LANES)
            for dep in task.deps:
                if draw.random() < 0.5:
                    kind, begin_s = draw.choice(["in", "in", "out"]), now_s + draw.uniform(-2, 1)
                    end_s, size = begin_s + draw.uniform(0, 2), draw.choice([0, 800])
                    trial.append(Ran(kind, "move", dep, step, draw.choice(LANES), begin_s, end_s, size))
            begin_s = now_s + draw.uniform(0, 1)
            now_s = begin_s + draw.uniform(0, 2)
            trial.append(Ran("op", "op", task.id, step, lane, begin_s, now_s))
            if draw.random() < 0.2:
                trial.append(Ran("op", "other", -1, step, lane, now_s, now_s + 0.1))
    return draw.sample(trial, len(trial))


def defined_times(problem: Problem, trial: list[Ran]) -> dict[tuple[int, str], list[float]]:
    """By the definition, call by call."""
    found: dict[tuple[int, str], list[float]] = {}
    for call in sorted(trial, key=lambda ran: ran.end_s):
        if call.kind != "op" or call.task < 0:
            continue
        before = [ran for ran in trial if ran.end_s < call.end_s]
        there = [min(ran.start_s for ran in trial if ran.step == call.step)]
        there += [ran.end_s for ran in before if (ran.kind, ran.lane) == ("op", call.lane) and ran.task >= 0]
        for dep in problem.tasks[call.task].deps:
            of_dep = [ran for ran in before if (ran.step, ran.task) == (call.step, dep)]
            moved = [ran.end_s for ran in of_dep if (ran.kind, ran.lane) == ("in", call.lane)]
            there += [max(moved)] if moved else [ran.end_s for ran in of_dep if ran.kind == "op"]
        found.setdefault((call.task, call.lane[:-2]), []).append(max(call.end_s - max(there), 0.0))
    return found


def test_times_are_those_of_the_definition() -> None:
    draw = random.Random(6)
    for _ in range(60):
        problem = some_problem(draw, 7)
        trial = some_trial(draw, problem, 2)
        found, expected = effective_times(problem, trial), defined_times(problem, trial)
        assert found.keys() == expected.keys()
        for key, times in expected.items():
            assert found[key] == pytest.approx(times)


def test_a_trial_replaces_times_by_means_and_links_by_lines() -> None:
    draw = random.Random(7)
    problem = some_problem(draw, 6)
    trial = some_trial(draw, problem, 3)
    pools = ("cpu", "board")
    learned = Calibration({pool: [-1.0] * 6 for pool in pools}, {}, {})
    _learn(learned, problem, trial)
    expected = defined_times(problem, trial)
    for pool in pools:
        means = [fmean(expected[task, pool]) if (task, pool) in expected else -1.0 for task in range(6)]
        assert learned.op_s[pool] == pytest.approx(means)
        moves = [
            (ran.bytes, ran.end_s - ran.start_s)
            for ran in trial
            if ran.kind != "op" and ran.bytes and ran.lane.startswith(pool)
        ]
        assert (learned.latency_s[pool], learned.bytes_per_s[pool]) == fit_link(moves)


def test_moves_on_a_line_give_the_line() -> None:
    draw = random.Random(8)
    for _ in range(50):
        latency_s, rate = draw.uniform(0, 1e-3), draw.uniform(1e3, 1e9)
        sizes = draw.sample(range(1, 10**6), draw.randint(2, 7))
        moves = [(size, latency_s + size / rate) for size in sizes for _ in range(3)]
        outliers = [(size, 99.0) for size in sizes]  # one in four: medians do not see them
        found = fit_link(draw.sample(moves + outliers, 4 * len(sizes)))
        assert found == (pytest.approx(latency_s, abs=1e-9), pytest.approx(rate, rel=1e-6))
    assert fit_link([(10, 0.5), (1000, 0.25)]) == (0.5, 1e12)  # a larger one that is faster has no slope
    latency_s, _ = fit_link([(100, 1e-3), (200, 9e-3)])
    assert latency_s == 0.0
