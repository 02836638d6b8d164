"""Small problems, where every placement and every order can be tried: solvers and bounds against all of them."""

import random
from itertools import permutations, product

import pytest

from presilicon.records import Mode, Pool, Problem, Schedule, Started, Task, TensorMove
from presilicon.scheduling.accounting import cost
from presilicon.scheduling.checker import check, faults
from presilicon.scheduling.solve import solve
from presilicon.scheduling.solvers.bounds import energy_bound, makespan_bound
from presilicon.scheduling.solvers.heft import heft


def _problem(seed: int, ops: int = 5) -> Problem:
    draw = random.Random(seed)
    tasks = []
    for place in range(ops):
        gpu = draw.randint(2, 9)
        modes = [
            Mode(device="gpu", time_s=gpu / 1000, average_w=200, peak_w=220),
            Mode(device="fpga", units=draw.choice((1, 2)), time_s=draw.randint(1, 18) / 1000, average_w=70, peak_w=80),
        ]
        deps = tuple(dep for dep in range(place) if draw.random() < 0.4)
        tasks.append(
            Task(
                id=place, kind="Mul", bytes_out=draw.choice((0, 10**6)), deps=deps, modes=tuple(modes), name=str(place)
            )
        )
    pools = (
        Pool(name="gpu", units=1, idle_w=40, bytes_per_s=1e9),
        Pool(name="fpga", units=2, idle_w=10, bytes_per_s=1e9),
    )
    return Problem(name=f"random {seed}", tasks=tuple(tasks), pools=pools, links_queue=False)


def _every_schedule(problem: Problem, cap_w: float | None):
    """Each placement with each order of the ops: an op begins as early as those before it in the order leave room.

    Among these is a shortest schedule of every placement, and one of least energy.
    """
    count = len(problem.tasks)
    orders = [
        order
        for order in permutations(range(count))
        if all(order.index(dep) < order.index(task.id) for task in problem.tasks for dep in task.deps)
    ]
    for modes in product(*(task.modes for task in problem.tasks)):
        for order in orders:
            started: dict[int, Started] = {}
            for task in order:
                mode = modes[task]
                ready = max(
                    (
                        started[dep].end_s
                        + problem.move_s(problem.tasks[dep].bytes_out, started[dep].mode.device, mode.device)
                        for dep in problem.tasks[task].deps
                    ),
                    default=0.0,
                )
                for begin in sorted({ready, *(each.end_s for each in started.values() if each.end_s > ready)}):
                    units = _free(problem, started, mode, begin, cap_w)
                    if units is not None:
                        started[task] = Started(task, mode, units, begin)
                        break
                else:
                    break
            if len(started) == count:
                yield Schedule(
                    solver="all", started=tuple(started[task] for task in range(count)), moves=_moves(problem, started)
                )


def _moves(problem: Problem, started: dict[int, Started]) -> tuple[TensorMove, ...]:
    """Every result as soon as it is computed, beside all others."""
    moves = []
    for task in problem.tasks:
        own, end = started[task.id].mode.device, started[task.id].end_s
        targets = {started[follower].mode.device for follower in problem.followers[task.id]} - {own}
        if targets and task.bytes_out:
            at_host = end + task.bytes_out / 1e9
            moves.append(TensorMove(task.id, own, "out", end, at_host))
            moves += [TensorMove(task.id, name, "in", at_host, at_host + task.bytes_out / 1e9) for name in targets]
    return tuple(moves)


def _free(
    problem: Problem, started: dict[int, Started], mode: Mode, begin: float, cap_w: float | None
) -> tuple[int, ...] | None:
    end = begin + mode.time_s
    beside = [each for each in started.values() if each.start_s < end - 1e-12 and each.end_s > begin + 1e-12]
    taken = {unit for each in beside if each.mode.device == mode.device for unit in each.units}
    units = tuple(unit for unit in range(problem.pool[mode.device].units) if unit not in taken)[: mode.units]
    if len(units) < mode.units:
        return None
    if cap_w is not None:
        for at in [begin, *(each.start_s for each in beside if each.start_s > begin)]:
            running = [each.mode for each in beside if each.start_s <= at + 1e-12 < each.end_s] + [mode]
            extra = sum(each.peak_w - each.units * problem.pool[each.device].idle_w for each in running)
            if problem.idle_w + extra > cap_w + 1e-9:
                return None
    return units


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cap_w", [None, 270.0])
def test_exact_finds_the_best_of_all(seed: int, cap_w: float | None) -> None:
    problem = _problem(seed)
    schedules = list(_every_schedule(problem, cap_w))
    shortest = min(each.makespan_s for each in schedules)
    found = solve(problem, objective="throughput", cap_w=cap_w, solver="exact", time_limit_s=8)
    assert found.cost.makespan_s == pytest.approx(shortest, abs=1e-9)
    assert makespan_bound(problem, cap_w).bound <= shortest * (1 + 1e-9)
    limit = 1.2 * shortest
    least = min(cost(problem, each).energy_per_step_j for each in schedules if each.makespan_s <= limit)
    found = solve(problem, limit_s=limit, cap_w=cap_w, solver="exact", time_limit_s=8)
    assert found.cost.energy_per_step_j == pytest.approx(least, rel=1e-6)
    assert found.gap is not None
    assert found.gap < 1e-4
    assert energy_bound(problem, limit, cap_w).bound <= least * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_none_of_all_is_wrong_and_none_is_better_than_the_bounds(seed: int) -> None:
    problem = _problem(seed, ops=4)
    bound_s, bound_j = makespan_bound(problem).bound, energy_bound(problem).bound
    seen = 0
    for schedule in _every_schedule(problem, None):
        claimed = cost(problem, schedule)
        check(problem, schedule, claimed=claimed)
        assert claimed.makespan_s >= bound_s * (1 - 1e-9)
        assert claimed.energy_per_step_j >= bound_j * (1 - 1e-9)
        seen += 1
    assert seen >= 16
    check(problem, heft(problem))


def test_the_checker_can_fail() -> None:
    problem = _problem(1, ops=4)
    schedule = next(_every_schedule(problem, None))
    moved = [Started(each.task, each.mode, each.units, each.start_s * 0.5) for each in schedule.started]
    assert faults(problem, Schedule(solver="wrong", started=tuple(moved)))
