"""From a system and a graph to a problem: rows, what lies between them, models, clocks, boards."""

from typing import Any

import pytest
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import System, load_system
from presilicon.records import Mode
from presilicon.scheduling.checker import check
from presilicon.scheduling.graphs import Graph, GraphOp, parse_graph
from presilicon.scheduling.problems import OpEstimate, alone, build_problem, class_work
from presilicon.scheduling.solvers.heft import heft

IDEAL = "v100-3xs10-ideal"


def _modes(system: System, **op: object) -> tuple[Mode, ...]:
    graph = Graph(name="one", ops=(GraphOp(**{"id": 0, "kind": "Conv2D", **op}),))  # type: ignore[arg-type]
    return build_problem(system, graph).tasks[0].modes


def test_a_sized_op_takes_its_row() -> None:
    gpu, fpga = _modes(load_system(IDEAL), size="M")
    assert (gpu.device, gpu.average_w, gpu.peak_w, gpu.source) == ("gpu", 262, 272, "table")
    assert (fpga.device, fpga.units, fpga.average_w) == ("fpga", 3, 60)
    assert (gpu.time_s, fpga.time_s) == pytest.approx((2.344e-3, 1.825e-3))


def test_clock_levels_follow_the_laws() -> None:
    system = load_system(IDEAL, ["devices.gpu.clocks=[1.0, 0.5]", "devices.gpu.alpha=2"])
    full, half, _ = _modes(system, size="M")
    assert half.clock == 0.5
    assert half.time_s == pytest.approx(4 * full.time_s)
    assert half.average_w == pytest.approx(41 + (262 - 41) / 8)
    assert half.peak_w == pytest.approx(41 + (272 - 41) / 8)


@pytest.mark.parametrize(("name", "boards"), [("v100-1xs10", 1), ("v100-2xs10", 2), ("v100-4xs10", 4)])
def test_big_ops_spread_over_other_numbers_of_boards(name: str, boards: int) -> None:
    mode = _modes(load_system(name), size="M")[-1]
    assert mode.units == boards
    assert mode.time_s == pytest.approx(1.825e-3 * 3 / boards)
    assert mode.average_w == pytest.approx(60 * boards / 3)
    assert mode.source == "model"
    small = _modes(load_system(name), kind="Mul", size="M")[-1]
    assert (small.units, small.source) == (1, "table")


def test_between_the_rows_times_grow_with_the_work() -> None:
    system = load_system(IDEAL)
    works = [class_work(system, "Conv2D", size) for size in "SML"]
    at_rows = [_modes(system, flops=int(work or 0))[0] for work in works]
    assert [mode.time_s for mode in at_rows] == pytest.approx([0.568e-3, 2.344e-3, 4.088e-3], rel=1e-6)
    assert {mode.source for mode in at_rows} == {"interpolated"}
    many = [_modes(system, flops=10**exponent)[0].time_s for exponent in range(6, 15)]
    assert many == sorted(many)
    assert _modes(system, flops=10**14)[0].time_s == pytest.approx(10 * _modes(system, flops=10**13)[0].time_s)


def test_small_ops_beyond_the_table_are_bound_by_memory() -> None:
    system = load_system(IDEAL)
    gpu, fpga = _modes(system, kind="Mul", bytes_moved=10**9)
    assert gpu.time_s == pytest.approx(1e9 / 720e9, rel=0.05)
    assert fpga.time_s == pytest.approx(1e9 / (14.9e9 * 0.8), rel=0.01)


def test_kinds_that_the_table_does_not_have_are_modelled_and_said_to_be() -> None:
    system = load_system(IDEAL)
    gpu, fpga = _modes(system, kind="BatchNorm", bytes_moved=10**9)
    assert gpu.source == fpga.source == "model"
    assert gpu.time_s == pytest.approx(1e9 / 720e9)
    sized = _modes(system, kind="Relu", size="M")
    assert [mode.time_s for mode in sized] == pytest.approx([0.014e-3, 0.011e-3])
    graph = Graph(name="one", ops=(GraphOp(id=0, kind="Relu", size="M"),))
    assert any("no rows of Relu" in note for note in build_problem(system, graph).notes)


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ({"kind": "Fft", "size": "M"}, ["op 0 (Fft M)", "no device", "gpu, fpga", "Conv2D"]),
        ({"size": "XL"}, ["op 0 (Conv2D XL)", "S, M, L", "gpu"]),
        ({}, ["op 0 (Conv2D)", "no size"]),
    ],
)
def test_ops_that_cannot_run_are_named(op: dict[str, object], words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        _modes(load_system(IDEAL), **op)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_given_costs_go_before_the_table() -> None:
    graph = Graph(name="one", ops=(GraphOp(id=0, kind="Fft"),))
    problem = build_problem(load_system(IDEAL), graph, costs={"gpu": [OpEstimate(0.5, 90.0, 95.0, "simulated")]})
    assert [(mode.device, mode.time_s, mode.source) for mode in problem.tasks[0].modes] == [("gpu", 0.5, "simulated")]


def test_relief_speeds_up_the_reference_device_only(ideal) -> None:
    plain, relieved = ideal("39-M").tasks[0].modes, ideal("39-M", relief=2.0).tasks[0].modes
    assert relieved[0].time_s == plain[0].time_s / 2
    assert relieved[1] == plain[1]


def test_transfers_may_be_free(real) -> None:
    assert {pool.bytes_per_s for pool in real("39-M").pools} == {12e9}
    assert {pool.bytes_per_s for pool in real("39-M", transfers=False).pools} == {None}


def test_copies_of_the_model_stand_side_by_side(graph) -> None:
    problem = build_problem(load_system("2xv100-6xs10"), graph("39-M"))
    assert len(problem.tasks) == 78
    assert problem.batch_size == 2
    # Each op is followed by its copy, so that no op depends on a later one.
    for op, copy in zip(problem.tasks[::2], problem.tasks[1::2], strict=True):
        assert copy.deps == tuple(dep + 1 for dep in op.deps)
        assert copy.modes == op.modes


def test_one_device_alone(real) -> None:
    found = alone(real("39-M"), "gpu")
    assert [pool.name for pool in found.pools] == ["gpu"]
    assert found.idle_w == 41
    graph = Graph(name="one", ops=(GraphOp(id=0, kind="Fft"),))
    problem = build_problem(load_system(IDEAL), graph, costs={"fpga": [OpEstimate(0.5, 90.0, 95.0, "simulated")]})
    with pytest.raises(ConfigError, match="gpu cannot run it"):
        alone(problem, "gpu")


def test_an_op_that_draws_less_than_its_idle_device_is_refused() -> None:
    words = r"op 0 \(Mul M\): average power on 1 x fpga must be at least its idle power of 57 W, not 15 W"
    with pytest.raises(ConfigError, match=words):
        _modes(load_system(IDEAL, ["devices.fpga.idle_w=57"]), kind="Mul", size="M")
    graph = Graph(name="one", ops=(GraphOp(id=0, kind="Fft"),))
    with pytest.raises(
        ConfigError, match=r"op 0 \(Fft\): average power on 1 x gpu must be at least its idle power of 41 W"
    ):
        build_problem(load_system(IDEAL), graph, costs={"gpu": [OpEstimate(0.5, 40.9, 95.0, "simulated")]})


def test_a_device_of_replicas_is_not_called_like_their_host() -> None:
    system = load_system(IDEAL)
    renamed = replace(system, devices={"host": system.devices["gpu"], **system.devices})
    graph = parse_graph({"ops": [{"id": 0, "kind": "Conv2D", "size": "M", "gradient": True}]})
    assert build_problem(renamed, graph).pools[0].name == "host"
    with pytest.raises(ConfigError, match=r"devices\.host needs another name"):
        build_problem(replace(renamed, replicas=2), graph)


def test_replicas_add_up_gradients_through_the_host() -> None:
    ops = [
        {"id": 0, "kind": "Conv2D", "size": "M", "bytes_out": 400},
        {"id": 1, "kind": "Conv2DBackpropFilter", "size": "M", "bytes_out": 4096, "deps": [0], "gradient": True},
        {"id": 2, "kind": "Mul", "size": "M", "bytes_out": 4096, "deps": [1], "next_readers": [0]},
    ]
    graph = parse_graph({"ops": ops, "inputs": [{"bytes": 1000, "readers": [0]}]})
    problem = build_problem(load_system("2xv100-6xs10"), graph)
    (total,) = (task for task in problem.tasks if task.kind == "GradientSum")
    assert total.deps == (2, 3)
    assert [problem.tasks[task].deps for task in (5, 6)] == [(total.id,)] * 2
    assert [problem.tasks[task].next_readers for task in (5, 6)] == [(0,), (1,)]
    assert [(data.bytes, data.readers) for data in problem.inputs] == [(1000, (0,)), (1000, (1,))]
    schedule = heft(problem)
    check(problem, schedule)
    sent = [move for move in schedule.moves if move.task in total.deps and move.direction == "out"]
    assert {move.task for move in sent} == {2, 3}
    assert build_problem(load_system("2xv100-6xs10"), graph, transfers=False).inputs == ()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"inputs": [{"bytes": 1000, "readers": [7]}]}, r"inputs\[0\]: .* readers ids of ops"),
        ({"inputs": [{"size": 1000}]}, r"inputs\[0\] must be as"),
        ({"ops": [{"id": 0, "kind": "Mul", "next_readers": [4]}]}, "op 4, which reads its result next"),
        ({"ops": [{"id": 0, "kind": "Mul", "gradient": 1}]}, "gradient must be true or false"),
    ],
)
def test_wrong_inputs_and_readers_are_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_graph({"ops": [{"id": 0, "kind": "Mul"}], **change})
