"""Bounds and proven optima against every schedule of tiny problems, with powers that nearly fill the cap."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from oracles.small_schedules import Point, best_schedules
from presilicon.base import RunFailedError
from presilicon.records import HostInput, Mode, Pool, Problem, Schedule, Task, TensorMove
from presilicon.scheduling.checker import CAP_SLACK_W, LIMIT_SLACK, check
from presilicon.scheduling.goals import Goal, sound_bound
from presilicon.scheduling.solve import solve
from presilicon.scheduling.solvers import bounds, exact
from presilicon.scheduling.solvers.anytime import relax
from presilicon.scheduling.solvers.exact import solve_exactly
from presilicon.scheduling.solvers.tables import assemble

NEAR_W = Fraction(1, 10**5)
"""Sums of peaks that are this near to the cap may be decided either way by rounding."""


def _thirds(watts: float, time_s: float = 1e-3) -> Problem:
    """Three ops on three devices."""
    mode = Mode(device="gpu", time_s=time_s, average_w=watts, peak_w=watts)
    tasks = tuple(Task(id=index, kind="Mul", modes=(mode,)) for index in range(3))
    return Problem(name="thirds", tasks=tasks, pools=(Pool(name="gpu", units=3, idle_w=0.0),))


def _random(seed: int) -> tuple[Problem, float]:
    """A problem of three or four ops, and a cap that pairs and triples of them fill almost exactly."""
    draw, later = random.Random(seed), random.Random(seed + 1000)
    pools = tuple(
        Pool(
            name=name,
            units=draw.randint(1, 3),
            idle_w=draw.choice((0.0, 13.0, round(draw.uniform(1, 40), 7))),
            bytes_per_s=draw.choice((None, 1e9, 0.7e9)),
        )
        for name in ("gpu", "fpga")
    )
    spare = draw.choice((100.0, 1.0, round(draw.uniform(20, 300), 6)))
    is_round = draw.random() < 0.5  # whole microseconds, which the exact solver represents without rounding

    def mode(pool: Pool) -> Mode:
        units = draw.randint(1, pool.units)
        part = spare / draw.choice((1, 2, 3, 4, 1.5))
        nudge = draw.choice((0.0, 0.0, 1e-4, 1e-5, -1e-5, 3e-7, -1e-9))
        above = min(draw.choice((round(part, 5) + nudge, part + nudge, draw.uniform(0, spare))), spare)
        idle = units * pool.idle_w
        time_s = draw.randint(1, 5000) * 1e-6 if is_round else draw.uniform(1e-6, 5e-3)
        return Mode(
            device=pool.name,
            units=units,
            time_s=time_s,
            average_w=idle + above * draw.choice((1.0, 0.5)) * (1 - 1e-12),
            peak_w=idle + above,
        )

    tasks = tuple(
        Task(
            id=index,
            kind="Mul",
            bytes_out=draw.choice((0, 10**6, 123_457)),
            deps=tuple(dep for dep in range(index) if draw.random() < 0.25),
            next_readers=(0,) if index and later.random() < 0.2 else (),
            modes=tuple(mode(pool) for pool in draw.sample(pools, draw.randint(1, 2))),
        )
        for index in range(draw.randint(3, 4))
    )
    inputs = (HostInput(bytes=345_678, readers=(0, len(tasks) - 1)),) if later.random() < 0.4 else ()
    problem = Problem(
        name=f"random {seed}",
        tasks=tasks,
        pools=pools,
        base_w=draw.choice((0.0, 7.77)),
        links_queue=seed % 7 > 0,
        inputs=inputs,
    )
    return problem, problem.idle_w + spare


def _schedule(problem: Problem, point: Point) -> Schedule:
    choice = [task.modes.index(mode) for task, mode in zip(problem.tasks, point.modes, strict=True)]
    moves = [
        TensorMove(task, device, direction, float(start), float(end), from_host)  # type: ignore[arg-type]
        for task, device, direction, start, end, from_host in point.moves
    ]
    return assemble(problem, np.array(choice), np.array(point.starts_s, float), moves, "all")


def _optimum(points: list[Point], goal: Goal) -> float:
    if goal.objective == "throughput":
        return float(points[0].makespan_s) if points else math.inf
    limit = Fraction(goal.limit_s) * (1 + Fraction(LIMIT_SLACK))
    return min((float(point.energy_j) for point in points if point.makespan_s <= limit), default=math.inf)


def _judge(problem: Problem, goal: Goal, start: Schedule) -> bool:
    """Compare bounds and the proven schedule with all schedules; whether the optimum is unaffected by rounding."""
    cap = None if goal.cap_w is None else Fraction(goal.cap_w)
    least, strict, loose = (
        _optimum(best_schedules(problem, None if cap is None else cap + change), goal)
        for change in (Fraction(CAP_SLACK_W), -NEAR_W, NEAR_W)
    )
    relaxed = relax(problem, goal).bound
    assert relaxed <= least * (1 + 1e-9)
    proven = solve_exactly(problem, goal, start=start, bound=relaxed, time_limit_s=10, workers=1)
    check(problem, proven, cap_w=goal.cap_w, limit_s=goal.limit_s)
    bound, value = goal.bound_of(proven), goal.value(problem, proven)
    assert bound is not None
    assert bound <= least * (1 + 1e-9)
    assert least * (1 - 1e-9) <= value <= strict * (1 + 1e-9)
    if strict == loose:
        assert value == pytest.approx(least, rel=1e-9)
        assert bound == pytest.approx(least, rel=1e-4)
    return strict == loose


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_bounds_are_sound_and_optima_right_on_random_problems(first: int) -> None:
    clear = 0
    for seed in range(first, first + 10):
        problem, cap = _random(seed)
        cap_w = cap if seed % 5 else None
        points = best_schedules(problem, None if cap_w is None else Fraction(cap_w) + Fraction(CAP_SLACK_W) / 2)
        start = _schedule(problem, points[-1])
        clear += _judge(problem, Goal(objective="throughput", cap_w=cap_w), start)
        # A limit that one schedule meets exactly, or any above the shortest.
        limit = float(points[len(points) // 2].makespan_s) * (1.0 if seed % 2 else 1.1)
        clear += _judge(problem, Goal(limit_s=limit, cap_w=cap_w), _schedule(problem, points[0]))
    assert clear >= 10


@pytest.mark.parametrize(
    ("watts", "optimum_s"), [(33.33333, 1e-3), (100 / 3, 1e-3), (33.3334, 2e-3), (50.0, 2e-3), (50.001, 3e-3)]
)
@pytest.mark.parametrize("time_s", [1e-3, 1.23456789e-3])
def test_three_ops_under_a_cap_are_proven_as_short_as_they_are(watts: float, optimum_s: float, time_s: float) -> None:
    problem = _thirds(watts, time_s)
    assert float(best_schedules(problem, Fraction(100) + NEAR_W)[0].makespan_s) == pytest.approx(
        optimum_s / 1e-3 * time_s
    )
    found = solve(problem, objective="throughput", cap_w=100.0, solver="exact", time_limit_s=0.4)
    assert found.cost.makespan_s == pytest.approx(optimum_s / 1e-3 * time_s)
    assert found.bound == pytest.approx(optimum_s / 1e-3 * time_s, rel=1e-5)


def test_a_move_that_takes_longer_than_any_step_is_forbidden() -> None:
    fast, slow = (
        Mode(device=name, time_s=time_s, average_w=1.0, peak_w=1.0) for name, time_s in (("a", 1e-3), ("b", 2e-3))
    )
    tasks = (
        Task(id=0, kind="Mul", bytes_out=10**15, modes=(fast, slow)),
        Task(id=1, kind="Mul", deps=(0,), modes=(slow,)),
    )
    pools = (Pool(name="a", units=1, idle_w=0.0, bytes_per_s=1.0), Pool(name="b", units=1, idle_w=0.0))
    problem = Problem(name="slow link", tasks=tasks, pools=pools)
    start = _schedule(problem, best_schedules(problem)[0])
    assert _judge(problem, Goal(objective="throughput"), start)


@pytest.mark.parametrize("solver", ["greedy", "heft", "anytime", "exact"])
def test_an_op_that_takes_no_time_must_fit_under_the_cap_too(solver: str) -> None:
    tasks = (
        Task(
            id=0,
            kind="Mul",
            modes=(
                Mode(device="gpu", time_s=0.0, average_w=60.0, peak_w=80.0),
                Mode(device="fpga", time_s=2e-3, average_w=20.0, peak_w=20.0),
            ),
        ),
        Task(id=1, kind="Mul", deps=(0,), modes=(Mode(device="gpu", time_s=1e-3, average_w=30.0, peak_w=30.0),)),
    )
    pools = (Pool(name="gpu", units=1, idle_w=10.0), Pool(name="fpga", units=1, idle_w=10.0))
    problem = Problem(name="no time", tasks=tasks, pools=pools)
    found = solve(problem, objective="throughput", cap_w=60.0, solver=solver, time_limit_s=0.4)  # type: ignore[arg-type]
    assert found.cost.makespan_s == pytest.approx(float(best_schedules(problem, Fraction(60))[0].makespan_s)) == 3e-3


def test_a_proof_with_demands_rounded_up_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake that proved 2 ms for three ops of 33.33333 W."""
    whole = exact.whole_watts
    monkeypatch.setattr(exact, "whole_watts", lambda watts, spare, scale, *, up: whole(watts, spare, 1e3, up=True))
    problem = _thirds(33.33333)
    serial = _schedule(problem, best_schedules(problem, Fraction(99))[0])
    with pytest.raises(AssertionError):
        _judge(problem, Goal(objective="throughput", cap_w=100.0), serial)
    with pytest.raises(RunFailedError, match="excludes a valid schedule"):
        solve(problem, objective="throughput", cap_w=100.0, solver="exact", time_limit_s=0.4)


def test_a_linear_program_that_asks_too_much_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    resources = bounds.shared
    monkeypatch.setattr(
        bounds, "shared", lambda table, spare: [bounds.Shared(w, 0.99 * c) for w, c in resources(table, spare)]
    )
    problem = _thirds(33.33333)
    start = _schedule(problem, best_schedules(problem, Fraction(100))[0])
    with pytest.raises(AssertionError):
        _judge(problem, Goal(objective="throughput", cap_w=100.0), start)
    with pytest.raises(RunFailedError, match=r"bound of 0\.00101\d+ is above 0\.001"):
        solve(problem, objective="throughput", cap_w=100.0, solver="heft")


def test_a_bound_may_exceed_the_value_by_rounding_errors_only() -> None:
    assert sound_bound(0.9, 1.0) == 0.9
    assert sound_bound(1.0 + 1e-10, 1.0) == 1.0
    with pytest.raises(RunFailedError, match="internal error"):
        sound_bound(1.0 + 1e-8, 1.0)
