"""What a training step costs on CATERPILLAR, by hand and by comparison."""

from math import ceil

import pytest

from presilicon.base import ConfigError
from presilicon.designs import MachineStep, StepFormats, curve_pj, load_design, load_technology
from presilicon.records import Gemm, Op, StepFacts, StepGraph, TensorRef
from presilicon.simulation import simulate, simulate_gemm
from presilicon.simulation.area import area
from presilicon.simulation.caterpillar.cycles import core_gemm_cycles, core_update_cycles
from presilicon.simulation.caterpillar.pricing import pipeline_of, sustained_utilization
from presilicon.simulation.execution import executed_ops


def a_design(schedule: str, *settings: str, name: str = "caterpillar-small"):
    return load_design(name, [f"machine.schedule={schedule}", *(f"machine.{setting}" for setting in settings)])


def perceptron_step(batch: int, widths: tuple[int, ...], *, momentum: bool = False) -> StepGraph:
    """Linear layers without biases, trained by plain SGD or with momentum."""
    ops: list[Op] = []
    count = len(widths) - 1
    weights = [TensorRef(100 + layer, widths[layer : layer + 2], "weight") for layer in range(count)]

    def add(name: str, phase: str, layer: int, inputs: list, outputs: list, gemm: Gemm | None, flops: int) -> None:
        kind = "gemm" if gemm else "optimizer"
        operator = "aten.mm.default" if gemm else "aten.add_.Tensor"
        ops.append(
            Op(index=len(ops), name=f"{layer}.{name}", kind=kind, operator=operator, phase=phase, layer=str(layer),
               inputs=tuple(inputs), outputs=tuple(outputs), flops=gemm.flops if gemm else flops, gemm=gemm)
        )  # fmt: skip

    for layer in range(count):
        k, n = widths[layer : layer + 2]
        x, y = TensorRef(layer, (batch, k), "activation"), TensorRef(layer + 1, (batch, n), "activation")
        add("forward", "forward", layer, [x, weights[layer]], [y], Gemm(batch, k, n), 0)
    for layer in reversed(range(count)):
        k, n = widths[layer : layer + 2]
        e, gradient = TensorRef(201 + layer, (batch, n), "error"), TensorRef(300 + layer, (k, n), "gradient")
        if layer:
            before = TensorRef(200 + layer, (batch, k), "error")
            add("input_grad", "input_grad", layer, [e, weights[layer]], [before], Gemm(batch, n, k), 0)
        x = TensorRef(layer, (k, batch), "activation")
        add("weight_grad", "weight_grad", layer, [x, e], [gradient], Gemm(k, batch, n), 0)
    for layer in range(count):
        shape = widths[layer : layer + 2]
        master, gradient = TensorRef(100 + layer, shape, "master"), TensorRef(300 + layer, shape, "gradient")
        state = TensorRef(400 + layer, shape, "state")
        if momentum:
            add("momentum", "update", layer, [state, gradient], [state], None, master.elements)
        add("update", "update", layer, [master, state if momentum else gradient], [master], None, master.elements)
    kept = tuple(TensorRef(400 + layer, widths[layer : layer + 2], "state") for layer in range(count))
    return StepGraph(
        name="mlp", batch_size=batch, ops=tuple(ops), parameters=tuple(weights), state=kept if momentum else ()
    )


def test_a_batch_by_hand() -> None:
    design = a_design("minibatch", "cores=1", "nr=4", "mem_a_kib=64", "mem_b_kib=4")
    b, k, n = 8, 100, 12
    cost = simulate(perceptron_step(b, (k, n)), design)
    forward, gradient, update = cost.ops
    assert forward.cycles == core_gemm_cycles(b, k, n, 4, 4)
    assert gradient.cycles == core_gemm_cycles(k, b, n, 4, 4)
    assert update.cycles == ceil(k * n / 16) + 4 + 2
    assert forward.utilization == pytest.approx(b * k * n / (16 * forward.cycles))
    # Only the batch comes from DRAM, when it is first used.
    assert [op.bytes_dram for op in cost.ops] == [2 * b * k, 0, 0]
    technology = load_technology("horowitz-45nm")
    left, right, sums = 16 * b * k * 3, 16 * k * n * 2, 16 * 2 * b * n
    sram = right * curve_pj(technology.sram_64bit, 64) + (left + sums) * curve_pj(technology.sram_64bit, 4)
    leakage = area(design).mm2 * 12e-3 * forward.time_s
    expected = b * k * n * (1.1 + 0.4 + 48 * 0.009) + sram / 64 + (left + right) * 0.05 + 2 * b * k * 1950 / 8
    assert forward.energy_j == pytest.approx(expected * 1e-12 + leakage)
    assert cost.energy_by_component_j["ring"] == 0


@pytest.mark.parametrize("schedule", ["sgd", "minibatch", "pipelined"])
def test_totals(schedule: str) -> None:
    graph = perceptron_step(16, (64, 48, 32, 10), momentum=True)
    cost = simulate(graph, a_design(schedule))
    assert cost == simulate(graph, a_design(schedule))
    assert len(cost.ops) == len(graph.ops)
    assert cost.energy_j == pytest.approx(sum(op.energy_j for op in cost.ops))
    assert cost.energy_j == pytest.approx(sum(cost.energy_by_component_j.values()))
    whole = sum(op.time_s for op in cost.ops)
    assert cost.time_s < whole if schedule == "pipelined" else cost.time_s == pytest.approx(whole)
    assert 0 < cost.utilization < 1
    macs = graph.flops(matrix_only=True) // 2
    assert 0 < sustained_utilization(macs, cost.time_s, a_design(schedule).machine) < cost.utilization


def test_single_samples_update_after_each() -> None:
    b, k, n = 6, 64, 40
    design = a_design("sgd", "cores=4")
    cost = simulate(perceptron_step(b, (k, n)), design)
    assert cost.ops[1].cycles == b * core_update_cycles(n // 4, k, 4, 4, 4)
    # Plain SGD adds the gradient to the weights as it is made.
    assert (cost.ops[2].cycles, cost.ops[2].energy_j) == (0, 0)
    kept = simulate(perceptron_step(b, (k, n), momentum=True), design)
    assert kept.ops[3].cycles == b * (ceil(k * n / 64) + 6)
    assert kept.ops[3].flops == b * k * n
    # As many turns as samples, whatever they are in.
    twice = simulate(perceptron_step(2 * b, (k, n)), design)
    assert twice.time_s == pytest.approx(2 * cost.time_s)
    assert twice.energy_j == pytest.approx(2 * cost.energy_j)


def test_one_port_makes_updates_slow() -> None:
    graph = perceptron_step(4, (256, 256))
    wide, narrow = (simulate(graph, a_design("sgd", f"port_words={words}")).ops[1] for words in (2, 1))
    assert 1.8 < narrow.cycles / wide.cycles <= 2


def test_batches_use_the_machine_better_than_single_samples() -> None:
    graph = perceptron_step(128, (512, 512, 512))
    sgd, batch = simulate(graph, a_design("sgd")), simulate(graph, a_design("minibatch"))
    assert sgd.utilization < batch.utilization
    assert sgd.energy_by_component_j["sram"] > 2 * batch.energy_by_component_j["sram"]


def test_the_slowest_layer_sets_the_pace() -> None:
    graph, design = perceptron_step(8, (256, 256, 256, 256, 10)), a_design("pipelined")
    formats = StepFormats(design.numerics, StepFacts())
    executed = tuple(executed_ops(graph, formats, StepFacts()))
    step = MachineStep(graph=graph, executed=executed, design=design, formats=formats, technology=design.technology)
    pipeline = pipeline_of(step, design.machine)
    assert pipeline.layers == ("0", "1", "2", "3")
    assert sum(pipeline.cores) <= design.machine.cores
    assert pipeline.cores[3] == min(pipeline.cores)
    cost = simulate(graph, design)
    assert cost.time_s == pytest.approx(8 * pipeline.slot_cycles * 1e-9)
    assert cost.time_s < simulate(graph, a_design("sgd")).time_s
    with pytest.raises(ConfigError, match="4 layers a core of its own"):
        simulate(graph, a_design("pipelined", "cores=3"))


@pytest.mark.parametrize("schedule", ["sgd", "pipelined"])
def test_weights_that_do_not_fit_come_from_dram_for_every_sample(schedule: str) -> None:
    graph = perceptron_step(8, (256, 256, 256))
    weights = 2 * 2 * 256 * 256
    batch = 2 * 8 * 256
    fits = simulate(graph, a_design(schedule))
    assert sum(op.bytes_dram for op in fits.ops) == batch
    small = simulate(graph, a_design(schedule, "mem_a_kib=0.125"))
    # Forward and update of both layers, input gradient of one: read, and in the update read and written.
    assert sum(op.bytes_dram for op in small.ops) == 8 * (weights + 2 * weights + weights / 2) + batch
    assert small.time_s > fits.time_s
    assert small.energy_j > 10 * fits.energy_j


def test_a_batch_uses_streamed_weights_for_all_samples() -> None:
    graph = perceptron_step(64, (256, 256, 256))
    per_sample = [
        sum(op.bytes_dram for op in simulate(graph, a_design(schedule, "mem_a_kib=0.125")).ops) / 64
        for schedule in ("sgd", "minibatch")
    ]
    assert per_sample[1] < per_sample[0] / 10


def test_spreading_samples_suits_small_networks() -> None:
    def seconds(width: int, over: str) -> float:
        graph = perceptron_step(128, (width, width, width))
        return simulate(graph, a_design("minibatch", f"batch_over={over}")).time_s

    assert seconds(32, "samples") < seconds(32, "outputs")
    assert seconds(512, "samples") > seconds(512, "outputs")


def test_panels_that_do_not_fit_go_around_in_slices() -> None:
    graph = perceptron_step(128, (1024, 1024))
    large = simulate(graph, a_design("minibatch", "mem_b_kib=8")).ops[0]
    small = simulate(graph, a_design("minibatch", "mem_b_kib=0.05")).ops[0]
    assert small.cycles > large.cycles
    assert small.utilization < large.utilization
    with pytest.raises(ConfigError, match=r"machine\.mem_b_kib is 0\.001.*give it at least .* or more cores"):
        simulate(graph, a_design("minibatch", "mem_b_kib=0.001"))


def test_one_product() -> None:
    cost = simulate_gemm(Gemm(64, 256, 256), a_design("minibatch"))
    assert cost.unit == "array"
    assert 0 < cost.utilization <= 1
    # Independent products are dealt to the cores.
    many = simulate_gemm(Gemm(8, 16, 16, count=64), a_design("minibatch"))
    assert many.cycles == core_gemm_cycles(8, 16, 16, 4, 4)


def test_facts_and_empty_steps() -> None:
    graph = perceptron_step(4, (32, 16))
    for schedule in ("sgd", "minibatch", "pipelined"):
        forward = simulate(graph, a_design(schedule), StepFacts(backward_skipped=True, update_skipped=True))
        assert [op.phase for op in forward.ops] == ["forward"]
    empty = StepGraph(name="empty", batch_size=1, ops=())
    assert simulate(empty, a_design("pipelined")).time_s == 0


def test_what_the_machine_does_not_know_is_refused() -> None:
    graph = perceptron_step(4, (32, 16))
    with pytest.raises(ConfigError, match=r'SCALE-Sim counts systolic arrays only.*"exact".*caterpillar'):
        simulate(graph, a_design("sgd"), convention="scale-sim")
    sliced = load_design("caterpillar-small", ["numerics.mac.slice_bits=2"])
    with pytest.raises(ConfigError, match="multiplies in one pass"):
        simulate(graph, sliced)


def test_area_is_mostly_memory() -> None:
    small, large = (area(load_design(f"caterpillar-{size}")) for size in ("small", "large"))
    assert small.parts_mm2["MEM A"] > 0.8 * small.mm2
    assert large.mm2 > 1.7 * small.mm2
    assert area(a_design("sgd", "cores=128")).mm2 == pytest.approx(2 * small.mm2)


def test_banks_make_accesses_cheaper_and_memory_larger() -> None:
    graph = perceptron_step(4, (256, 256))
    one, two = (simulate(graph, a_design("sgd", f"mem_a_banks={banks}")) for banks in (1, 2))
    assert two.energy_by_component_j["sram"] < one.energy_by_component_j["sram"]
    assert two.time_s == one.time_s
    assert area(a_design("sgd", "mem_a_banks=2")).mm2 > area(a_design("sgd")).mm2


@pytest.mark.parametrize("schedule", ["sgd", "pipelined"])
def test_a_rounded_copy_of_the_weights_is_made_by_all_cores_after_each_sample(schedule: str) -> None:
    graph = perceptron_step(4, (256, 256, 256))
    design = load_design("caterpillar-small", [f"machine.schedule={schedule}", "numerics.master=float32"])
    copy = simulate(graph, design).ops[-1]
    assert copy.name == "update.round_weights"
    assert copy.cycles == 4 * (2 * 256 * 256 // design.machine.pes + 6)
