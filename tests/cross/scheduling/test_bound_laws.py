"""Bounds are never above the best of all schedules, on systems of four pools with links of their own speeds."""

import random
from fractions import Fraction

import pytest

from oracles.small_schedules import best_schedules
from presilicon.records import HostInput, Mode, Pool, Problem, Task
from presilicon.scheduling.checker import CAP_SLACK_W
from presilicon.scheduling.solvers.bounds import energy_bound, makespan_bound

RATES = (1e9, 0.5e9, 0.25e9, 2e9)


def random_problem(seed: int) -> tuple[Problem, float | None]:
    """Three ops that hand on large results, on four pools; a cap that one or two of them fill."""
    draw = random.Random(seed)
    rates = draw.sample(RATES, 4)
    if draw.random() < 0.2:
        rates[0] = None
    pools = tuple(
        Pool(name=name, units=draw.randint(1, 2), idle_w=draw.choice((0.0, 5.0, 20.0)), bytes_per_s=rate)
        for name, rate in zip(("cpu", "gpu", "fpga", "npu"), rates, strict=True)
    )
    spare = draw.choice((50.0, 90.0, 200.0))

    def mode(pool: Pool) -> Mode:
        units = draw.randint(1, pool.units)
        above = draw.choice((10.0, 30.0, 45.0, 50.0))
        average = units * pool.idle_w + above
        return Mode(device=pool.name, units=units, time_s=draw.randint(1, 4) * 1e-3, average_w=average, peak_w=average)

    tasks = []
    for place in range(3):
        # Each op has pools of its own, so that results must move.
        chosen = draw.sample(pools, draw.choice((1, 1, 2)))
        tasks.append(
            Task(
                id=place, kind="Mul", bytes_out=draw.choice((10**6, 2 * 10**6)),
                deps=tuple(dep for dep in range(place) if draw.random() < 0.85),
                next_readers=(0,) if place == 2 and draw.random() < 0.4 else (), modes=tuple(map(mode, chosen)),
            )
        )  # fmt: skip
    inputs = (HostInput(bytes=10**6, readers=(draw.randrange(3),)),) if draw.random() < 0.5 else ()
    problem = Problem(name="four pools", tasks=tuple(tasks), pools=pools, base_w=draw.choice((0.0, 9.0)), inputs=inputs)
    return problem, problem.idle_w + spare if draw.random() < 0.5 else None


@pytest.mark.parametrize("first", [0, *(pytest.param(more, marks=pytest.mark.slow) for more in range(60, 300, 60))])
def test_no_schedule_beats_a_bound(first: int) -> None:
    tight = 0
    for seed in range(first, first + 60):
        problem, cap_w = random_problem(seed)
        points = best_schedules(problem, None if cap_w is None else Fraction(cap_w) + Fraction(CAP_SLACK_W))
        shortest, least = float(points[0].makespan_s), float(min(point.energy_j for point in points))
        bound_s, bound_j = makespan_bound(problem, cap_w).bound, energy_bound(problem, cap_w=cap_w).bound
        assert 0 < bound_s <= shortest * (1 + 1e-9), seed
        assert 0 < bound_j <= least * (1 + 1e-9), seed
        limit_s = shortest * random.Random(seed).choice((1.0, 1.2))
        within = min(
            float(point.energy_j)
            for point in points
            if point.makespan_s <= Fraction(limit_s) * (1 + Fraction(1, 10**9))
        )
        assert energy_bound(problem, limit_s, cap_w).bound <= within * (1 + 1e-9), seed
        tight += bound_s > 0.9 * shortest
    assert tight >= 6  # else a bound that is too high could hide
