"""Memory over a step, and lifetimes of data, on graphs small enough for pencil and paper."""

from dataclasses import replace

import pytest

from presilicon.designs import StepFormats, load_design
from presilicon.records import Lifetime, MemoryTimeline, Op, StepFacts, StepGraph, TensorRef
from presilicon.simulation import executed_ops, memory_timeline, simulate
from presilicon.workloads import capture_workload, load_workload

SMALL = ["machine.rows=4", "machine.cols=4", "machine.clock_ghz=1"]
FP32 = load_design("fp32-systolic", SMALL)
M, K, N = 4, 6, 3


def timeline_of(graph: StepGraph, design=FP32, facts: StepFacts = StepFacts()) -> MemoryTimeline:
    cost = simulate(graph, design, facts)
    timeline = memory_timeline(graph, design, cost, facts)
    assert timeline.peak_bytes == cost.memory_bytes
    return timeline


def test_every_part_by_hand(linear_step) -> None:
    timeline = timeline_of(linear_step(M, K, N))
    x, w, y = 4 * M * K, 4 * K * N, 4 * M * N
    assert [point.weights_bytes for point in timeline.points] == [w] * 5
    # The input is read by the weight gradient, so it is an activation from the start to there; the output is not.
    assert [point.activations_bytes for point in timeline.points] == [x, x, x, 0, 0]
    # Output; output and error; error; error and input gradient; nothing.
    assert [point.transients_bytes for point in timeline.points] == [y, 2 * y, y, y + x, 0]
    assert [point.gradients_bytes for point in timeline.points] == [0, 0, w, w, w]
    assert {(point.state_bytes, point.rounded_weights_bytes) for point in timeline.points} == {(0, 0)}
    assert timeline.peak.name == "fc.weight_grad"
    assert timeline.peak.parts() == {
        "weights": w,
        "rounded_weights": 0,
        "gradients": w,
        "state": 0,
        "activations": x,
        "transients": y,
    }
    assert timeline.peak_bytes == 2 * w + x + y


def test_points_lie_on_the_simulated_schedule(linear_step) -> None:
    graph = linear_step(M, K, N)
    cost = simulate(graph, FP32)
    points = memory_timeline(graph, FP32, cost).points
    assert [(point.name, point.start_s, point.end_s) for point in points] == list(cost.timeline)


def test_narrow_formats_hold_less_and_a_rounded_copy_is_counted(linear_step) -> None:
    timeline = timeline_of(linear_step(M, K, N), load_design("fp8-systolic", SMALL))
    assert {point.rounded_weights_bytes for point in timeline.points} == {K * N}
    assert timeline.points[0].activations_bytes == M * K
    assert timeline.points[-1].name == "update.round_weights"


def test_a_step_without_backward_keeps_no_activation(linear_step) -> None:
    facts = StepFacts(backward_skipped=True, update_skipped=True)
    timeline = timeline_of(linear_step(M, K, N), facts=facts)
    assert [point.activations_bytes for point in timeline.points] == [0, 0]
    assert timeline.points[0].transients_bytes == 4 * (M * K + M * N)


def test_lifetimes_by_hand(linear_step) -> None:
    graph = linear_step(M, K, N)
    cost = simulate(graph, FP32)
    ends = [op.end_s for op in cost.ops]
    data = {each.tensor: each for each in memory_timeline(graph, FP32, cost).lifetimes}
    assert (data[1].write_s, data[1].last_read_s, data[1].writer) == (0, ends[2], "")
    assert (data[3].write_s, data[3].last_read_s) == (0, ends[1])
    assert (data[4].writer, data[4].last_reader) == ("loss", "fc.input_grad")
    assert data[4].time_s == pytest.approx(ends[3] - ends[0])
    # A weight is written by the update and read until the next one has updated it.
    assert (data[2].write_s, data[2].last_read_s) == (ends[3], cost.time_s + ends[4])
    assert data[2].size_bytes == 4 * K * N
    # Nobody reads the gradient of the input.
    assert set(data) == {1, 2, 3, 4, 6}


def test_a_rounded_weight_and_its_master_are_two_pieces_of_data(linear_step) -> None:
    graph, design = linear_step(M, K, N), load_design("fp8-systolic", SMALL)
    cost = simulate(graph, design)
    of_weight = [each for each in memory_timeline(graph, design, cost).lifetimes if each.tensor == 2]
    spans = {each.part: (each.writer, each.last_reader) for each in of_weight}
    assert spans == {
        "weights": ("fc.update", "fc.update"),
        "rounded_weights": ("update.round_weights", "fc.input_grad"),
    }


def _write(index: int, output: TensorRef, *inputs: TensorRef) -> Op:
    return Op(
        index=index, name=f"op{index}", kind="elementwise", operator="aten.op", phase="forward", layer="",
        inputs=inputs, outputs=(output,), flops=8,
    )  # fmt: skip


def test_a_second_write_starts_a_new_life_unless_it_is_partial() -> None:
    whole, part = TensorRef(1, (8,), "activation"), TensorRef(1, (4,), "activation")
    result = TensorRef(2, (8,), "activation")

    def lives(second: TensorRef) -> list[tuple[str, str]]:
        ops = (_write(0, whole), _write(1, TensorRef(3, (8,), "activation"), whole), _write(2, second))
        ops += (_write(3, result, whole),)
        timeline = timeline_of(StepGraph(name="g", batch_size=1, ops=ops))
        return [(each.writer, each.last_reader) for each in timeline.lifetimes if each.tensor == 1]

    assert lives(whole) == [("op0", "op1"), ("op2", "op3")]
    assert lives(part) == [("op0", "op3")]


def test_refresh_is_needed_only_past_the_retention_time(linear_step) -> None:
    timeline = timeline_of(linear_step(M, K, N))
    longest = timeline.longest("activations")
    assert longest is not None
    assert longest.refreshes(1.01 * longest.time_s) == 0
    assert longest.refreshes(longest.time_s / 3.5) == 3
    assert timeline.longest("state") is None
    assert isinstance(longest, Lifetime)


def test_an_empty_step_holds_nothing() -> None:
    assert timeline_of(StepGraph(name="empty", batch_size=1, ops=())).peak_bytes == 0


COURSES = {
    "fused": ("bf16-systolic", []),
    "a small buffer": ("bf16-systolic", ["machine.sram_kib=256"]),
    "cores": ("bf16-mesh", ["machine.cores.count=4", "machine.cores.parallel=tile"]),
    "layers on cores": ("bf16-mesh", ["machine.cores.count=4", "machine.cores.parallel=layer"]),
    "a card": ("h200", []),
}


@pytest.mark.parametrize("name", COURSES)
def test_memory_at_a_time_is_what_is_alive_then(name: str) -> None:
    preset, settings = COURSES[name]
    design = load_design(preset, settings)
    accumulate = 4 if name == "layers on cores" else 1
    workload = replace(load_workload("fashion-resnet"), accumulate=accumulate)
    graph = capture_workload(workload)
    cost = simulate(graph, design)
    points = memory_timeline(graph, design, cost).points
    assert max(point.total_bytes for point in points) == cost.memory_bytes
    starts = [point.start_s for point in points]
    assert starts == sorted(starts)
    resident = {tensor.id for tensor in (*graph.state, *graph.parameters)}
    formats = StepFormats(design.numerics, StepFacts(), graph)
    by_index = {op.index: op for op in executed_ops(graph, formats, StepFacts())}
    alive: dict[int, tuple[float, float, float]] = {}
    for price in sorted(cost.ops, key=lambda price: price.start_s):
        op = by_index[price.index]
        for place, tensor in enumerate((*op.inputs, *op.outputs)):
            is_given = place < len(op.inputs) and tensor.role in ("weight", "state", "activation")
            first, last, size = alive.get(tensor.id, (0.0 if is_given else price.start_s, 0.0, 0.0))
            if is_given and tensor.id not in alive and tensor.role in ("weight", "state"):
                resident.add(tensor.id)  # frozen weights and running statistics stay
            size = max(size, formats.written_bytes(tensor, op.layer))
            alive[tensor.id] = (first, max(last, price.end_s), size)
    slack = 1e-8 * cost.time_s
    for point in points[:: len(points) // 40]:
        expected = sum(
            size
            for key, (first, last, size) in alive.items()
            if key not in resident and first <= point.start_s + slack and last >= point.start_s + slack
        )
        assert point.activations_bytes + point.transients_bytes + point.gradients_bytes == pytest.approx(expected)
