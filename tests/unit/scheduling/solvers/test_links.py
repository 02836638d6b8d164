"""Moves that share links."""

import pytest
from msgspec.structs import replace

from presilicon.records import HostInput, Mode, Pool, Problem, Schedule, Task
from presilicon.scheduling.checker import check, faults
from presilicon.scheduling.solve import SOLVERS, solve

GPU, FPGA = (Mode(device=name, time_s=1.0, average_w=1.0, peak_w=1.0) for name in ("gpu", "fpga"))


def _fan(count: int = 3, **fields: object) -> Problem:
    """Ops on the GPU whose results one board needs; each result takes a second over each link."""
    tasks = [Task(id=index, kind="Mul", bytes_out=100, modes=(GPU,)) for index in range(count)]
    tasks.append(Task(id=count, kind="Add", deps=tuple(range(count)), modes=(FPGA,)))
    pools = tuple(
        Pool(name=name, units=units, idle_w=0.0, bytes_per_s=100.0) for name, units in (("gpu", 1), ("fpga", 1))
    )
    return Problem(name="fan", tasks=tuple(tasks), pools=pools, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("solver", [solver for solver in SOLVERS if solver != "auto"])
def test_results_cross_a_link_one_after_another(solver: str) -> None:
    slow = replace(
        _fan(), tasks=tuple(replace(task, modes=(replace(task.modes[0], time_s=0.1),)) for task in _fan().tasks)
    )
    found = solve(slow, objective="throughput", solver=solver, time_limit_s=2.0)  # type: ignore[arg-type]
    # 0.1 s for the first op, three seconds to the host, one more to the board, 0.1 s there.
    assert found.cost.makespan_s == pytest.approx(0.1 + 3 + 1 + 0.1)
    assert len(found.schedule.moves) == 6


def test_without_waiting_the_step_is_shorter_and_says_so() -> None:
    found = solve(_fan(links_queue=False), objective="throughput", solver="heft")
    assert found.cost.makespan_s == pytest.approx(3 + 2 + 1)


def test_a_crowded_link_is_a_fault() -> None:
    overlapping = solve(_fan(links_queue=False, inputs=(HostInput(bytes=300, readers=(3,)),)), solver="heft").schedule
    (fault,) = faults(_fan(inputs=(HostInput(bytes=300, readers=(3,)),)), overlapping)
    assert "2 tensors at once go from the host" in fault


def test_a_result_that_stays_at_home_is_a_fault() -> None:
    problem = _fan()
    schedule = solve(problem, solver="heft").schedule
    assert faults(problem, schedule) == []
    (home,) = faults(problem, replace(schedule, moves=schedule.moves[1:]))
    assert "does not go to the host over the link of gpu" in home


def test_updated_weights_reach_their_readers_before_the_step_ends() -> None:
    tasks = (
        Task(id=0, kind="Conv2D", modes=(FPGA,)),
        Task(id=1, kind="Mul", bytes_out=250, deps=(0,), next_readers=(0,), modes=(GPU,)),
    )
    problem = replace(_fan(), tasks=tasks)
    for solver in ("greedy", "heft", "anytime", "exact"):
        found: Schedule = solve(problem, objective="throughput", solver=solver, time_limit_s=1.0).schedule  # type: ignore[arg-type]
        check(problem, found)
        assert found.makespan_s == pytest.approx(2 + 5)
