"""What crosses the links, and when that is more than they carry."""

from presilicon.records import Mode, Pool, Problem, Schedule, Started, Task
from presilicon.scheduling.links import link_loads, warnings

GPU = Mode(device="gpu", time_s=1.0, average_w=1, peak_w=1)
FPGA = Mode(device="fpga", time_s=1.0, average_w=1, peak_w=1)


def _problem(rate: float | None) -> Problem:
    deps: tuple[tuple[int, ...], ...] = ((), (0,), (0,))
    tasks = tuple(
        Task(id=place, kind="Mul", bytes_out=10**9, deps=each, modes=(GPU, FPGA)) for place, each in enumerate(deps)
    )
    pools = tuple(Pool(name=name, units=1, idle_w=0, bytes_per_s=rate) for name in ("gpu", "fpga"))
    return Problem(name="three", tasks=tasks, pools=pools)


def _schedule(end_s: float) -> Schedule:
    return Schedule(
        solver="test",
        started=(Started(0, GPU, (0,), 0.0), Started(1, FPGA, (0,), end_s - 2), Started(2, FPGA, (0,), end_s - 1)),
    )


def test_a_result_crosses_once_for_all_that_need_it() -> None:
    loads = link_loads(_problem(1e9), _schedule(5.0))
    assert [(load.device, load.bytes, load.share) for load in loads] == [("gpu", 10**9, 0.2), ("fpga", 10**9, 0.2)]
    assert warnings(_problem(1e9), _schedule(5.0)) == ()


def test_more_than_a_link_carries_is_said() -> None:
    (gpu, _) = warnings(_problem(1e8), _schedule(5.0))
    assert "link of gpu" in gpu
    assert "200%" in gpu


def test_free_moves_load_nothing() -> None:
    assert link_loads(_problem(None), _schedule(3.0)) == ()
