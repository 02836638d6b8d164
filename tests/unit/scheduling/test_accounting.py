"""Link loads and slack of a schedule."""

from msgspec.structs import replace

from presilicon.records import Mode, Pool, Problem, Schedule, Started, Task, TensorMove
from presilicon.scheduling.accounting import critical_path, link_loads, link_warnings

GPU = Mode(device="gpu", time_s=1.0, average_w=1, peak_w=1)
FPGA = Mode(device="fpga", time_s=1.0, average_w=1, peak_w=1)


def _problem(rate: float | None) -> Problem:
    deps: tuple[tuple[int, ...], ...] = ((), (0,), (0,))
    tasks = tuple(
        Task(id=index, kind="Mul", bytes_out=10**9, deps=own_deps, modes=(GPU, FPGA))
        for index, own_deps in enumerate(deps)
    )
    pools = tuple(Pool(name=name, units=1, idle_w=0, bytes_per_s=rate) for name in ("gpu", "fpga"))
    return Problem(name="three", tasks=tasks, pools=pools)


def _schedule(end_s: float, hop_s: float = 1.0) -> Schedule:
    return Schedule(
        solver="test",
        started=(Started(0, GPU, (0,), 0.0), Started(1, FPGA, (0,), end_s - 2), Started(2, FPGA, (0,), end_s - 1)),
        moves=(TensorMove(0, "gpu", "out", 1.0, 1 + hop_s), TensorMove(0, "fpga", "in", 1 + hop_s, 1 + 2 * hop_s)),
    )


def test_a_result_crosses_once_for_all_that_need_it() -> None:
    loads = link_loads(_problem(1e9), _schedule(5.0))
    assert [(load.device, load.bytes, load.share) for load in loads] == [("gpu", 10**9, 0.2), ("fpga", 10**9, 0.2)]
    assert link_warnings(_problem(1e9), _schedule(5.0)) == ()


def test_more_than_a_link_carries_is_said() -> None:
    # Both moves end after the last op, and each takes longer than half of the step.
    crowded = _schedule(5.0, 10.0)
    moved_again = replace(crowded, moves=(*crowded.moves, TensorMove(1, "gpu", "out", 1.0, 21.0)))
    (gpu,) = link_warnings(_problem(1e8), moved_again)
    assert "links of gpu" in gpu
    assert "143%" in gpu


def test_free_moves_load_nothing() -> None:
    assert link_loads(_problem(None), replace(_schedule(3.0), moves=())) == ()


def test_slack_is_zero_on_the_critical_path_and_only_there() -> None:
    modes = (Mode(device="gpu", time_s=1.0, average_w=1, peak_w=1),)
    deps: tuple[tuple[int, ...], ...] = ((), (0,), (0,), (1, 2))
    tasks = tuple(Task(id=index, kind="Mul", deps=own_deps, modes=modes) for index, own_deps in enumerate(deps))
    problem = Problem(name="diamond", tasks=tasks, pools=(Pool(name="gpu", units=1, idle_w=0),))
    path = critical_path(problem, [1.0, 3.0, 1.0, 1.0])
    assert path.length_s == 5.0
    assert path.slack_s == (0.0, 0.0, 2.0, 0.0)
    assert path.ops == (0, 1, 3)
