"""Limited memory against every schedule of tiny problems: bounds, optima, the search, and the checker."""

import math
import random

import numpy as np
import pytest
from msgspec.structs import replace

from oracles.small_schedules import Point, best_schedules
from presilicon.base import ConfigError
from presilicon.records import HostInput, Mode, Pool, Problem, Schedule, Task, TensorMove
from presilicon.scheduling.checker import check, faults
from presilicon.scheduling.goals import Goal
from presilicon.scheduling.solve import solve
from presilicon.scheduling.solvers.anytime import relax, search
from presilicon.scheduling.solvers.exact import solve_exactly
from presilicon.scheduling.solvers.tables import assemble


def _random(seed: int) -> Problem:
    """Three ops on two devices whose memory holds two or three results."""
    draw = random.Random(seed)
    pools = tuple(
        Pool(
            name=name, units=1, idle_w=draw.choice((0.0, 13.0)), bytes_per_s=draw.choice((None, 1e9, 1e9)),
            memory_bytes=draw.choice((None, 2.0e6, 2.5e6, 3.0e6, 4.0e6)),
        )
        for name in ("gpu", "fpga")
    )  # fmt: skip

    def mode(pool: Pool) -> Mode:
        watts = pool.idle_w + draw.randint(5, 200)
        return Mode(device=pool.name, time_s=draw.randint(1, 4000) * 1e-6, average_w=watts, peak_w=watts)

    tasks = tuple(
        Task(
            id=index,
            kind="Mul",
            bytes_out=draw.choice((0, 500_000, 1_000_000, 1_500_000)),
            held_bytes=draw.choice((0, 0, 700_000)),
            deps=tuple(dep for dep in range(index) if draw.random() < 0.5),
            next_readers=(0,) if index == 2 and draw.random() < 0.6 else (),
            modes=tuple(mode(pool) for pool in draw.sample(pools, draw.choice((1, 2, 2)))),
        )
        for index in range(3)
    )
    inputs = (HostInput(bytes=400_000, readers=(0, 1)),) if draw.random() < 0.4 else ()
    return Problem(name=f"random {seed}", tasks=tasks, pools=pools, inputs=inputs)


def _schedule(problem: Problem, point: Point) -> Schedule:
    choice = [task.modes.index(mode) for task, mode in zip(problem.tasks, point.modes, strict=True)]
    moves = [
        TensorMove(task, device, direction, float(start), float(end), from_host)  # type: ignore[arg-type]
        for task, device, direction, start, end, from_host in point.moves
    ]
    return assemble(problem, np.array(choice), np.array(point.starts_s, float), moves, "all")


def _free(problem: Problem) -> Problem:
    return replace(problem, pools=tuple(replace(pool, memory_bytes=None) for pool in problem.pools))


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_optima_under_limited_memory_are_those_of_all_schedules(first: int) -> None:
    tight = 0
    for seed in range(first, first + 20):
        problem = _random(seed)
        points = best_schedules(problem)
        unlimited = best_schedules(_free(problem))
        tight += [point[:2] for point in points] != [point[:2] for point in unlimited]
        if not points:
            with pytest.raises(ConfigError):
                solve(problem, solver="anytime", time_limit_s=0.2, objective="throughput")
            continue
        for point in points:
            assert not faults(problem, _schedule(problem, point))
        for goal, least in (
            (Goal(objective="throughput"), float(points[0].makespan_s)),
            (Goal(limit_s=float(points[-1].makespan_s)), float(points[-1].energy_j)),
        ):
            relaxed = relax(problem, goal)
            assert relaxed.bound <= least * (1 + 1e-9)
            start = _schedule(problem, points[0] if goal.limit_s is None else points[-1])
            worse = _schedule(problem, points[-1 if goal.limit_s is None else 0])
            for known in (start, worse):
                proven = solve_exactly(problem, goal, start=known, bound=relaxed.bound, time_limit_s=10, workers=1)
                check(problem, proven, limit_s=goal.limit_s)
                assert goal.value(problem, proven) == pytest.approx(least, rel=1e-6)
                assert goal.bound_of(proven) == pytest.approx(least, rel=1e-4)
            found = search(problem, goal, [worse], time_limit_s=0.1, relaxed=relaxed)
            check(problem, found, limit_s=goal.limit_s)
            assert goal.value(problem, found) >= least * (1 - 1e-9)
    assert tight >= 5


def test_what_is_on_a_device_counts_until_its_last_reader_is_done() -> None:
    """Two results of 1 MB that a third op reads need 3 MB while it runs, and no schedule less."""
    mode = Mode(device="gpu", time_s=1e-3, average_w=10.0, peak_w=10.0)
    tasks = (
        Task(id=0, kind="Mul", bytes_out=10**6, modes=(mode,)),
        Task(id=1, kind="Mul", bytes_out=10**6, modes=(mode,)),
        Task(id=2, kind="Mul", bytes_out=10**6, deps=(0, 1), modes=(mode,)),
    )

    def problem(memory_bytes: float) -> Problem:
        return Problem(
            name="three", tasks=tasks, pools=(Pool(name="gpu", units=1, idle_w=1, memory_bytes=memory_bytes),)
        )

    found = solve(problem(3e6), solver="exact", time_limit_s=2).schedule
    assert faults(problem(3e6 - 1), found) == ["at 0.002000001 s, 0.003 GB are on gpu, more than its 0.003 GB"]
    for solver in ("greedy", "heft", "anytime", "exact"):
        assert not faults(problem(3e6), solve(problem(3e6), solver=solver, time_limit_s=0.2).schedule)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="GB are on gpu, more than its"):
            solve(problem(2.9e6), solver=solver, time_limit_s=0.2)  # type: ignore[arg-type]


def test_the_search_waits_with_moves_until_there_is_memory() -> None:
    """Results for the board come earlier than it has room for them."""
    draw = random.Random(3)
    tasks = []
    for index in range(24):
        is_source = index < 12
        device = "gpu" if is_source else "fpga"
        mode = Mode(device=device, time_s=draw.randint(1, 9) * 1e-4, average_w=20.0, peak_w=20.0)
        deps = () if is_source else (index - 12, *((index - 1,) if index > 12 else ()))
        tasks.append(Task(id=index, kind="Mul", bytes_out=10**6, deps=deps, modes=(mode,)))
    pools = (
        Pool(name="gpu", units=1, idle_w=1.0, bytes_per_s=1e10),
        Pool(name="fpga", units=1, idle_w=1.0, bytes_per_s=1e10, memory_bytes=4e6),
    )
    problem = Problem(name="waiting", tasks=tuple(tasks), pools=pools)
    for solver in ("greedy", "heft", "anytime"):
        found = solve(problem, objective="throughput", solver=solver, time_limit_s=0.5)  # type: ignore[arg-type]
        assert not faults(problem, found.schedule)
        assert math.isfinite(found.cost.makespan_s)
        assert faults(replace(problem, pools=(pools[0], replace(pools[1], memory_bytes=2.5e6))), found.schedule)
