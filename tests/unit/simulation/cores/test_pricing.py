"""Steps on several cores: exact with one, never slower with more, and nothing computed or moved twice or not at all."""

import random
from itertools import pairwise

import pytest
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import Design, MachineStep, StepFormats, load_design
from presilicon.records import Gemm, Op, StepFacts, StepGraph, TensorRef
from presilicon.simulation import area, executed_ops, simulate
from presilicon.simulation.cores.description import Cores
from presilicon.simulation.cores.division import Division, one_core
from presilicon.simulation.cores.network import Flow, Network
from presilicon.simulation.cores.pipeline import CorePipeline
from presilicon.simulation.cores.splits import CoreGrid, grids, share_of_op
from presilicon.simulation.cores.stages import PipelinePass, balance, order_of_blocks, stages_of
from presilicon.simulation.systolic.pricing import price_systolic
from presilicon.simulation.systolic.work import systolic_rates
from presilicon.workloads import capture_workload, load_workload

HOP_J = 1e-12


def mlp(widths: list[int], batch: int, micro_batches: int = 1) -> StepGraph:
    """Linear layers with activations: forward, backward and update, with the micro-batches one after another."""
    ops: list[Op] = []
    fresh = iter(range(1, 10_000))
    rows, layers = batch // micro_batches, list(pairwise(widths))
    weights = [TensorRef(next(fresh), (k, n), "weight") for k, n in layers]
    totals = [TensorRef(next(fresh), (k, n), "gradient") for k, n in layers]

    def add(name: str, kind: str, phase: str, layer: str, inputs, outputs, gemm: Gemm | None = None) -> None:
        flops = gemm.flops if gemm else sum(tensor.elements for tensor in outputs)
        ops.append(
            Op(index=len(ops), name=f"{name}.{len(ops)}", kind=kind, operator=f"aten.{name}", phase=phase, layer=layer,
               inputs=tuple(inputs), outputs=tuple(outputs), flops=flops, gemm=gemm)
        )  # fmt: skip

    for number in range(micro_batches):
        x = TensorRef(next(fresh), (rows, widths[0]), "activation")
        inputs = []
        for layer, ((k, n), weight) in enumerate(zip(layers, weights, strict=True)):
            y, z = (TensorRef(next(fresh), (rows, n), "activation") for _ in range(2))
            inputs.append(x)
            add("mm", "gemm", "forward", f"fc{layer}", (x, weight), (y,), Gemm(rows, k, n))
            add("tanh", "elementwise", "forward", f"act{layer}", (y,), (z,))
            x = z
        error = TensorRef(next(fresh), x.shape, "error")
        add("loss", "loss", "input_grad", "", (x,), (error,))
        for layer, (k, n) in reversed(list(enumerate(layers))):
            before = TensorRef(next(fresh), (rows, k), "error")
            gradient = totals[layer] if number == 0 else TensorRef(next(fresh), (k, n), "gradient")
            add("mm", "gemm", "weight_grad", f"fc{layer}", (inputs[layer], error), (gradient,), Gemm(k, rows, n))
            if number:
                add("add", "elementwise", "weight_grad", f"fc{layer}", (totals[layer], gradient), (totals[layer],))
            if layer:
                add("mm", "gemm", "input_grad", f"fc{layer}", (error, weights[layer]), (before,), Gemm(rows, n, k))
                error = before
    for layer, (weight, total) in enumerate(zip(weights, totals, strict=True)):
        master = TensorRef(weight.id, weight.shape, "master")
        add("sgd", "optimizer", "update", f"fc{layer}", (total, master), (master,))
    return StepGraph(name="mlp", batch_size=batch, ops=tuple(ops), parameters=tuple(weights))


def chip(count: int = 1, *settings: str) -> Design:
    base = [
        "machine.rows=16",
        "machine.cols=16",
        "machine.sram_kib=64",
        "machine.dram_gb_s=200",
        "machine.objective=time",
    ]
    return load_design("bf16-systolic", [*base, f"machine.cores.count={count}", *(f"machine.{s}" for s in settings)])


def step_of(graph: StepGraph, design: Design) -> MachineStep:
    formats = StepFormats(design.numerics, StepFacts(), graph)
    executed = tuple(executed_ops(graph, formats, StepFacts()))
    return MachineStep(graph=graph, executed=executed, design=design, formats=formats, technology=design.technology)


STEPS = [mlp([96, 64, 200, 40], 64), mlp([512, 512], 8), mlp([33, 47, 10], 100), mlp([64] * 9, 32, 4)]


@pytest.mark.parametrize("step", STEPS, ids=str)
@pytest.mark.parametrize("fusion", ["none", "ops", "resident"])
def test_one_core_is_exactly_the_single_machine(step, fusion):
    design = chip(1, f"fusion={fusion}")
    whole = step_of(step, design)
    alone = price_systolic(whole, design.machine)
    divided = Division(whole, design.machine, Network("mesh", 1, 1), "none", HOP_J).price()
    assert divided.time_s == alone.time_s
    assert divided.energy_by_component_j == alone.energy_by_component_j | {"network": 0.0}
    assert divided.ops == alone.ops
    assert divided.dram_bounds == alone.dram_bounds


@pytest.mark.parametrize("network", ["mesh", "ring", "all-to-all"])
@pytest.mark.parametrize("parallel", ["data", "tile", "layer", "best"])
def test_more_cores_are_never_slower_and_never_faster_than_their_number(network, parallel):
    for step in STEPS:
        costs = [
            simulate(step, chip(count, f"cores.network={network}", f"cores.parallel={parallel}", "fusion=ops"))
            for count in (1, 2, 4, 8)
        ]
        for few, many in pairwise(costs):
            assert many.time_s <= few.time_s * (1 + 1e-9)
        assert costs[-1].time_s < costs[0].time_s or parallel == "layer"
        for count, cost in zip((2, 4, 8), costs[1:], strict=True):
            assert cost.cores is not None
            assert cost.cores.used <= cost.cores.count == count
            assert cost.cores.alone_s == pytest.approx(costs[0].time_s)
            assert (cost.cores.bytes_noc > 0) == (cost.cores.used > 1)


def test_best_is_the_fastest_way_and_tiles_include_samples():
    for step in STEPS:
        ways = {way: simulate(step, chip(4, f"cores.parallel={way}")).time_s for way in ("data", "tile", "layer")}
        assert simulate(step, chip(4)).time_s == min(ways.values())
        assert ways["tile"] <= ways["data"]
    few_samples = {way: simulate(mlp([512, 512], 2), chip(8, f"cores.parallel={way}")) for way in ("data", "tile")}
    assert few_samples["tile"].time_s < 0.7 * few_samples["data"].time_s
    assert few_samples["tile"].cores.parallel == "tile"


@pytest.mark.parametrize("parallel", ["data", "tile", "layer"])
def test_wider_links_and_more_bandwidth_are_never_slower(parallel):
    for step in STEPS:
        for setting, values in (("cores.link_bytes", (0.25, 1, 8, 64)), ("dram_gb_s", (5, 20, 200))):
            times = [
                simulate(step, chip(4, f"cores.parallel={parallel}", "fusion=none", f"{setting}={value}")).time_s
                for value in values
            ]
            assert all(more <= less * (1 + 1e-9) for less, more in pairwise(times))


def test_slow_links_bound_ops_and_then_cores_stay_idle():
    step = STEPS[0]
    slow = chip(4, "cores.parallel=data", "cores.link_bytes=2")
    price = Division(step_of(step, slow), slow.machine, Network("mesh", 2, 2), "data", HOP_J).price()
    assert any(op.bound == "network" for op in price.ops)
    assert price.time_s >= price.cores.busiest_s > 0
    assert simulate(step, chip(4, "cores.parallel=data", "cores.link_bytes=0.001")).cores.used == 1


@pytest.mark.parametrize("parallel", ["data", "tile", "layer"])
def test_traffic_is_never_below_what_one_core_must_move(parallel):
    draw = random.Random(7)
    for _ in range(6):
        widths = [draw.randint(5, 150) for _ in range(draw.randint(2, 4))]
        micro_batches = draw.choice([1, 2, 4])
        step = mlp(widths, draw.randint(2, 16) * micro_batches, micro_batches)
        alone = simulate(step, chip(1))
        for count in (2, 6, 9):
            cost = simulate(step, chip(count, f"cores.parallel={parallel}"))
            assert cost.bytes_dram >= alone.dram_bounds.compulsory_bytes * (1 - 1e-9)
            assert cost.bytes_dram >= cost.dram_bounds.compulsory_bytes * (1 - 1e-9)
            assert [op.name for op in cost.ops] == [op.name for op in alone.ops]
            assert [op.flops for op in cost.ops] == [op.flops for op in alone.ops]
            assert cost.utilization <= 1


def test_gradients_are_added_up_over_the_network():
    """Data parallel: each weight goes to all cores for each product that uses it, and each gradient comes back."""
    step = mlp([48, 32], 64)
    design = chip(4, "fusion=none")
    price = Division(step_of(step, design), design.machine, Network("mesh", 2, 2), "data", HOP_J).price()
    moved = {op.name: op.bytes_noc for op in price.ops}
    elements = 48 * 32
    assert moved["mm.0"] == 3 * 2 * elements  # bfloat16, to three others along a tree of three links
    assert moved["mm.3"] == 3 * 4 * elements  # float32 parts of sums
    assert sum(moved.values()) == 3 * 6 * elements
    assert price.energy_by_component_j["network"] == pytest.approx(HOP_J * sum(moved.values()))


@pytest.mark.parametrize("workload", ["digits-mlp", "digits-cnn"])
def test_a_core_with_its_samples_does_what_one_core_does_with_a_batch_of_so_many(workload):
    """The step is captured once more with the samples of one core: an independent witness of its share."""
    whole, part = (capture_workload(load_workload(workload), batch_size=batch) for batch in (64, 16))
    plain = ("fusion=none", "dram_gb_s=1000000", "sram_kib=1024")  # so that mappings have nothing to trade
    design = chip(4, *plain)
    price = Division(step_of(whole, design), design.machine, Network("mesh", 2, 2), "data", HOP_J).price()
    alone = simulate(part, chip(1, *plain))
    compared = 0
    for own, op, single in zip(whole.ops, price.ops, alone.ops, strict=False):
        assert op.name == single.name
        if own.phase != "update" and (own.gemm is not None or own.kind in ("elementwise", "pooling")):
            compared += 1
            assert op.cycles == single.cycles, op.name
    assert compared > 8
    updates = [
        (op.cycles, single.cycles) for op, single in zip(price.ops, alone.ops, strict=True) if op.phase == "update"
    ]
    assert sum(own for own, _ in updates) <= sum(single for _, single in updates) / 3  # each owns a quarter


@pytest.mark.parametrize("cores", [2, 4, 6])
def test_shares_of_products_cover_them(cores):
    for op in (op for op in STEPS[2].ops if op.gemm):
        for grid in grids(op, cores):
            assert grid.m * grid.k * grid.n == cores
            share = share_of_op(op, cores, grid)
            assert cores * share.gemm.macs >= op.gemm.macs
            assert all(cores * own.elements >= all_.elements for own, all_ in zip(share.inputs, op.inputs, strict=True))
    assert share_of_op(STEPS[2].ops[0], 1, CoreGrid()).gemm == STEPS[2].ops[0].gemm


def test_memory_that_cores_share_is_reached_over_the_network():
    step = STEPS[0]
    private, shared = (
        simulate(step, chip(4, "cores.parallel=data", "sram_kib=256", f"cores.memory={memory}", "fusion=none"))
        for memory in ("private", "shared")
    )
    assert shared.cores.bytes_noc > 2 * private.cores.bytes_noc
    assert shared.time_s >= private.time_s
    sizes = [area(chip(4, f"cores.memory={memory}")).parts_mm2["sram"] for memory in ("private", "shared")]
    assert sizes[0] == pytest.approx(4 * sizes[1])
    one, four = (area(chip(count)).parts_mm2 for count in (1, 4))
    assert four["registers"] == pytest.approx(4 * one["registers"])
    assert four["network"] > 0
    assert "network" not in one


# Layers on cores.


def pipeline_of(step: StepGraph, design: Design, rows: int, cols: int) -> CorePipeline:
    whole = step_of(step, design)
    return CorePipeline(
        whole, design.machine, Network("mesh", rows, cols), price_systolic(whole, chip().machine), HOP_J
    )


def test_stages_wait_for_data_and_do_one_thing_at_a_time():
    pipeline = pipeline_of(STEPS[3], chip(4), 2, 2)
    spans, values = pipeline._schedule(), pipeline._values
    begins, ends = {}, {}
    for stage, own in zip(pipeline._stages, spans, strict=True):
        for before, after in pairwise(own):
            assert after.start_s >= before.start_s + before.time_s
        for group, span in zip(stage.plan.groups, own, strict=True):
            for index in group.members:
                begins[stage.positions[index]] = span.start_s
                ends[stage.positions[index]] = span.start_s + span.time_s
    crossings = set()
    for value, writer in enumerate(values.writer):
        for reader in pipeline._readers(value) if writer >= 0 else ():
            if pipeline._stage_of[writer] != pipeline._stage_of[reader]:
                crossings.add(value)
                assert begins[reader] >= ends[writer] + values.size_bytes[value] * pipeline._link_s
    assert len(crossings) == 2 * 3 * 4  # activations and errors, three borders, four micro-batches


def test_a_pipeline_takes_as_long_as_its_passes_and_bubbles():
    """Equal stages: m micro-batches through p stages take m + p - 1 passes forward and back."""
    micro_batches, stages = 8, 4
    design = chip(4, "fusion=none", "cores.link_bytes=1000000", "dram_gb_s=100000")
    pipeline = pipeline_of(mlp([64] * 5, 8 * 32, micro_batches), design, 2, 2)
    assert sorted(set(pipeline._stage_of)) == [0, 1, 2, 3]
    spans = pipeline._schedule()
    busy = [sum(span.time_s for span in own) for own in spans]
    last = max(own[-1].start_s + own[-1].time_s for own in spans)
    slowest = max(busy) / micro_batches
    assert max(busy) < last <= slowest * (micro_batches + stages - 1)


def test_layers_without_micro_batches_gain_no_time_and_say_so():
    assert simulate(mlp([64] * 5, 64), chip(4, "cores.parallel=layer", "fusion=none")).cores.used in (1, 2, 4)
    one, many = (
        simulate(mlp([96] * 9, 256, count), chip(4, "cores.parallel=layer", "fusion=none")) for count in (1, 8)
    )
    assert one.cores.alone_s / one.time_s < 1.6 < many.cores.alone_s / many.time_s


def test_stages_are_balanced_as_no_other_cut_is():
    draw = random.Random(3)
    for _ in range(40):
        costs = [draw.randint(1, 30) for _ in range(draw.randint(1, 8))]
        stages = draw.randint(1, 4)
        numbers = balance(costs, stages)
        assert numbers == sorted(numbers)
        assert numbers[0] == 0
        own = max(sum(c for c, n in zip(costs, numbers, strict=True) if n == stage) for stage in set(numbers))
        assert own == _least_of_all_cuts(costs, min(stages, len(costs)))


def _least_of_all_cuts(costs: list[int], stages: int) -> int:
    if stages == 1:
        return sum(costs)
    return min(
        max(sum(costs[:cut]), _least_of_all_cuts(costs[cut:], stages - 1)) for cut in range(1, len(costs) - stages + 2)
    )


def test_every_pass_is_run_once_and_backward_after_forward():
    for stage in range(4):
        order = order_of_blocks(stage, 4, 6)
        assert len(order) == len(set(order)) == 13
        for number in range(6):
            assert order.index(PipelinePass("forward", number)) < order.index(PipelinePass("backward", number))
    ops = STEPS[3].ops
    stages = stages_of(ops, dict.fromkeys(range(len(ops)), 1.0), 4)
    assert {stage for op, stage in zip(ops, stages, strict=True) if op.layer == ""} == {3}
    assert all(len({s for o, s in zip(ops, stages, strict=True) if o.layer == op.layer}) == 1 for op in ops)


# Bad input.


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (["cores.count=0"], "count"),
        (["cores.count=5000"], "count"),
        (["cores.network=torus"], "torus"),
        (["cores.parallel=both"], "both"),
        (["cores.link_bytes=0"], "link_bytes"),
        (["cores.pj_bit_hop=-1"], "pj_bit_hop"),
        (["cores.memory=own"], "own"),
        (["cores.rows=2"], "rows"),
    ],
)
def test_what_cannot_be_is_refused(settings, text):
    with pytest.raises(ConfigError, match=text):
        chip(2, *settings)


def test_a_table_without_wires_needs_the_energy_of_a_hop():
    design = chip(2)
    bare = replace(design.technology, wire=None)
    with pytest.raises(ConfigError, match=r"machine\.cores\.pj_bit_hop must be given"):
        simulate(STEPS[0], design, technology=bare)
    simulate(STEPS[0], chip(2, "cores.pj_bit_hop=0.1"), technology=bare)
    with pytest.raises(ConfigError, match=r"machine\.sram_kib: .* of it hold data in use"):
        simulate(STEPS[0], chip(2, "sram_kib=1"))
    with pytest.raises(ConfigError, match="for a chip with one core"):
        load_design("eyeriss", ["machine.cores.count=2"])
    assert Cores().count == 1


def test_what_layers_send_to_one_another_is_written_and_read_once_and_hops_over_each_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The energy of a step, less that of the same step whose layers send nothing."""
    graph, design = mlp([64, 96, 48, 32, 8], 32, micro_batches=4), chip(4, "cores.parallel=layer")
    sent: list[list[Flow]] = []
    flows_of = CorePipeline._flows
    monkeypatch.setattr(CorePipeline, "_flows", lambda self: sent.append(flows_of(self)) or sent[-1])
    found = simulate(graph, design).energy_by_component_j
    monkeypatch.setattr(CorePipeline, "_flows", lambda self: [])
    silent = simulate(graph, design).energy_by_component_j
    assert design.technology is not None
    rates = systolic_rates(design, one_core(design.machine, 4), design.technology)
    received = {len(flows): sum(flow.size for flow in flows for _ in flow.targets) for flows in sent}
    buffer = rates.buffers[-1].name
    more = found[buffer] - silent[buffer]  # of one of the divisions that were tried
    assert sum(more == pytest.approx(2 * size * rates.sram_byte_j) for size in received.values()) == 1
    others = set(found) - {buffer, "network", "leakage"}
    assert {name: found[name] for name in others} == pytest.approx({name: silent[name] for name in others})
    assert found["network"] > silent["network"]
