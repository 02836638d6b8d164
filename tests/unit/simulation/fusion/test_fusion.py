"""Fused steps against a replay with an explicit buffer, brute force and linear programming; bounds; the option."""

import random
from itertools import pairwise
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from oracles.fusion import ReplayError, best_stays, least_traffic, replay, walk_pipeline, walk_slices
from presilicon.base import ConfigError
from presilicon.designs import Design, MachineStep, StepFormats, load_design
from presilicon.records import Gemm, Op, StepFacts, StepGraph, TensorRef
from presilicon.simulation import executed_ops, simulate
from presilicon.simulation.fusion.groups import NONE, Group
from presilicon.simulation.fusion.parts import style_of
from presilicon.simulation.fusion.schedule import Transfers, ValueTransfer, keep_on_chip
from presilicon.simulation.systolic.plan import Planner, pipelined_cycles
from presilicon.simulation.systolic.work import systolic_rates
from presilicon.workloads import capture_workload, load_workload

SMALL = ["machine.rows=4", "machine.cols=4", "machine.vector_lanes=8", "machine.sram_kib=1"]


def planner_of(graph: StepGraph, design: Design) -> Planner:
    formats = StepFormats(design.numerics, StepFacts(), graph)
    step = MachineStep(
        graph=graph,
        executed=tuple(executed_ops(graph, formats, StepFacts())),
        design=design,
        formats=formats,
        technology=design.technology,
    )
    assert design.technology is not None
    return Planner(step, design.machine, systolic_rates(design, design.machine, design.technology))


def draw_step(draw: random.Random, length: int) -> StepGraph:
    """A random step: products by weights, maps of one or two inputs, norms, sums, gradients of weights, updates."""
    m = draw.choice([4, 8, 16])
    ops: list[Op] = []
    tensors = [TensorRef(0, (m, draw.choice([4, 8])), "activation")]
    weights: list[TensorRef] = []
    fresh = iter(range(1, 1000))

    def add(kind: str, inputs, outputs, gemm: Gemm | None = None, phase="forward", operator="aten.op") -> None:
        ops.append(
            Op(index=len(ops), name=f"op{len(ops)}", kind=kind, operator=operator, phase=phase, layer="l",
               inputs=tuple(inputs), outputs=tuple(outputs), flops=10, gemm=gemm)
        )  # fmt: skip

    for _ in range(length):
        x = draw.choice(tensors[-4:])
        rows, width = x.shape
        match draw.choice(["product", "product", "map", "map", "pair", "norm", "sum", "gradient", "overwrite"]):
            case "product":
                n = draw.choice([4, 8])
                weights.append(TensorRef(next(fresh), (width, n), "weight"))
                y = TensorRef(next(fresh), (rows, n), "activation")
                add("gemm", (x, weights[-1]), (y,), Gemm(rows, width, n))
                tensors.append(y)
            case "map":
                tensors.append(TensorRef(next(fresh), x.shape, "activation"))
                add("elementwise", (x,), (tensors[-1],))
            case "pair":
                other = draw.choice([tensor for tensor in tensors if tensor.shape == x.shape])
                tensors.append(TensorRef(next(fresh), x.shape, "activation"))
                add("elementwise", (x, other), (tensors[-1],))
            case "norm":
                tensors.append(TensorRef(next(fresh), x.shape, "activation"))
                add("normalization", (x,), (tensors[-1],), operator="aten.native_batch_norm.default")
            case "sum":
                add("reduction", (x,), (TensorRef(next(fresh), (), "activation"),))
            case "gradient":
                other = draw.choice(tensors)
                gradient = TensorRef(next(fresh), (width, other.shape[1]), "gradient")
                add("gemm", (x, other), (gradient,), Gemm(width, rows, other.shape[1]), phase="weight_grad")
                if weights and weights[-1].elements == gradient.elements:
                    master = TensorRef(weights[-1].id, weights[-1].shape, "master")
                    add("optimizer", (gradient, master), (master,), phase="update")
            case "overwrite":
                add("elementwise", (x,), (x,))
    return StepGraph(name="random", batch_size=m, ops=tuple(ops), parameters=tuple(weights))


def check_plans(graph: StepGraph, design: Design) -> int:
    """Replay all plans of a step; how many there were."""
    planner = planner_of(graph, design)
    formats = StepFormats(design.numerics, StepFacts(), graph)
    executed = executed_ops(graph, formats, StepFacts())
    permanent = {tensor.id for tensor in (*graph.parameters, *graph.state)}
    initial = {tensor.id for tensor in graph.parameters}
    seen: set[int] = set()
    for op in executed:
        initial |= {tensor.id for tensor in op.inputs if tensor.id not in seen}
        seen |= {tensor.id for tensor in op.outputs}
    plans = planner.plans()
    for plan in plans:
        sliced = {position for group in plan.groups for position in group.sliced}
        moved = replay(
            executed, plan, planner.values,
            lambda op, tensor: formats.bytes_of(tensor, op.layer, op.product_phase),
            design.machine.buffer.kib * 1024,  # type: ignore[attr-defined]
            is_sum=lambda op, sliced=sliced: (
                style_of(op) == "sum" or (op.index in sliced and op.phase == "weight_grad")
            ),
            live_out=permanent | initial,
        )  # fmt: skip
        spilled = sum(work.spills for work in plan.works)
        dram_bytes = sum(own.dram for own in plan.moved)
        assert dram_bytes == pytest.approx(moved + spilled)
        bounds = planner.bound_traffic()
        assert dram_bytes >= bounds.buffered_bytes * (1 - 1e-9) >= bounds.compulsory_bytes * (1 - 1e-9)
    return len(plans)


def test_random_steps_replay_on_an_explicit_buffer_and_stay_above_the_bound() -> None:
    draw = random.Random(1)
    plans = 0
    for _ in range(200):
        graph = draw_step(draw, draw.randint(3, 14))
        for fusion in ("ops", "resident"):
            settings = [*SMALL, f"machine.sram_kib={draw.choice([1, 2, 4])}", f"machine.fusion={fusion}"]
            plans += check_plans(graph, load_design("fp32-systolic", settings))
    assert plans >= 600


@pytest.mark.parametrize("workload", ["digits-cnn", "digits-mlp", "shakespeare-gpt"])
@pytest.mark.parametrize("kib", [256, 4096])
def test_captured_steps_replay_on_an_explicit_buffer(workload, kib) -> None:
    graph = capture_workload(load_workload(workload), batch_size=8)
    settings = [f"machine.sram_kib={kib}", "machine.rows=16", "machine.cols=16"]
    check_plans(graph, load_design("fp32-systolic", settings))


def mutated(plan, name: str):
    """The plan with one lie in it."""
    loads, stores, groups = list(plan.transfers.loads), list(plan.transfers.stores), list(plan.groups)
    match name:
        case "a load left out":
            loads.remove(max(loads, key=lambda load: load.size_bytes))
        case "a store left out":
            stores.remove(max(stores, key=lambda store: store.size_bytes))
        case "groups in another order":
            groups.reverse()
        case "a fuller buffer":
            groups = [replace(group, reserved_bytes=1e9) for group in groups]
    return replace(plan, transfers=Transfers(loads, stores), groups=tuple(groups))


@pytest.mark.parametrize("lie", ["a load left out", "a store left out", "groups in another order", "a fuller buffer"])
def test_the_replay_finds_a_plan_that_cheats(lie, monkeypatch) -> None:
    graph = capture_workload(load_workload("digits-cnn"), batch_size=8)
    design = load_design("fp32-systolic", ["machine.sram_kib=64", "machine.rows=16", "machine.cols=16"])
    plans = planner_of(graph, design).plans()
    monkeypatch.setattr(Planner, "plans", lambda self: [mutated(plan, lie) for plan in plans])
    with pytest.raises((ReplayError, AssertionError)):
        check_plans(graph, design)


def draw_uses(draw: random.Random, slots: int):
    uses = []
    for _ in range(draw.randint(1, 7)):
        at = sorted(draw.sample(range(slots), draw.randint(2, min(4, slots))))
        size = float(draw.randint(1, 9))
        uses.append((size, size, draw.random() < 0.3, [(slot, size * draw.choice([1, 1, 2])) for slot in at]))
    return uses


def saved_by_keeping(reserved, uses, capacity: float) -> float:
    groups = [
        Group(members=(), statistics=(), tiled=NONE, sliced=(), slices=1, late=(), reserved_bytes=taken)
        for taken in reserved
    ]
    loads = [
        ValueTransfer(value, slot, 0, load)
        for value, (_, _, _, slots) in enumerate(uses)
        for slot, load in slots[1:]
    ]  # fmt: skip
    stores = [ValueTransfer(value, slots[0][0], 0, store) for value, (_, store, _, slots) in enumerate(uses)]

    values = SimpleNamespace(
        size_bytes=[size for size, _, _, _ in uses],
        outlives=[needed for _, _, needed, _ in uses],
        pinned=[False] * len(uses),
    )
    left, free = keep_on_chip(groups, values, Transfers(loads, stores), capacity)  # type: ignore[arg-type]
    assert min(free) >= -1e-9
    before = sum(transfer.size_bytes for transfer in (*loads, *stores))
    return before - sum(transfer.size_bytes for transfer in (*left.loads, *left.stores))


def test_what_stays_saves_no_more_than_the_best_choice_and_nearly_as_much() -> None:
    draw = random.Random(2)
    saved = best = 0.0
    for _ in range(150):
        slots = draw.randint(3, 8)
        reserved = [float(draw.randint(0, 6)) for _ in range(slots)]
        uses, capacity = draw_uses(draw, slots), float(draw.randint(6, 20))
        ours, most = saved_by_keeping(reserved, uses, capacity), best_stays(reserved, uses, capacity)
        assert ours <= most + 1e-6
        saved, best = saved + ours, best + most
    assert 0.9 * best < saved < best


def test_the_best_choice_by_hand() -> None:
    # Three bytes are free in the middle: all of the value with two uses of its load, and one byte of the other.
    uses = [(2.0, 2.0, True, [(0, 2.0), (2, 4.0)]), (2.0, 2.0, True, [(0, 2.0), (2, 2.0)])]
    assert best_stays([0.0, 1.0, 0.0], uses, 4.0) == pytest.approx(4 + 1)
    assert saved_by_keeping([0.0, 1.0, 0.0], uses, 4.0) == pytest.approx(4 + 1)


def a_wide_step(width: int, middle: str) -> StepGraph:
    """A chain of maps, sums over the last of them, and maps that need the others and the sums."""
    x = TensorRef(0, (16, 8), "activation")
    made = [TensorRef(number, (16, 8), "activation") for number in range(1, 2 * width + 1)]
    between = TensorRef(99, (16, 8) if middle == "norm" else (), "activation")
    kind, operator = ("normalization", "aten.native_batch_norm.default") if middle == "norm" else ("reduction", "sum")
    chain = [x, *made]
    steps = [("elementwise", "map", (chain[number],), made[number]) for number in range(width)]
    steps.append((kind, operator, (made[width - 1],), between))
    steps += [("elementwise", "map", (made[number], between), made[width + number]) for number in range(width - 1)]
    ops = [
        Op(index=at, name=f"op{at}", kind=kind, operator=operator, phase="forward", layer="", inputs=inputs,
           outputs=(output,), flops=1)
        for at, (kind, operator, inputs, output) in enumerate(steps)
    ]  # fmt: skip
    return StepGraph(name="wide", batch_size=16, ops=tuple(ops))


def least_and_bounds(graph: StepGraph, buffer_bytes: float):
    written = {tensor.id for op in graph.ops for tensor in op.outputs}
    live_out = written - {tensor.id for op in graph.ops for tensor in op.inputs}
    planner = planner_of(graph, load_design("fp32-systolic", SMALL))
    planner._buffer_bytes = buffer_bytes
    return (
        least_traffic(graph.ops, lambda op, tensor: 4.0 * tensor.elements, buffer_bytes, live_out),
        planner.bound_traffic(),
    )


def test_no_order_and_no_choice_of_data_to_keep_falls_below_the_bounds() -> None:
    draw = random.Random(3)
    tried = 0
    while tried < 25:
        graph = draw_step(draw, 5)
        written = [tensor.id for op in graph.ops for tensor in op.outputs]
        before = {0, *(tensor.id for tensor in graph.parameters)}
        if len(set(written)) < len(written) or len(graph.ops) > 6 or before & set(written):
            continue
        tried += 1
        for buffer_bytes in (600.0, 1600.0):
            least, bounds = least_and_bounds(graph, buffer_bytes)
            assert least >= bounds.buffered_bytes
        least, bounds = least_and_bounds(graph, 1e9)
        assert least == pytest.approx(bounds.compulsory_bytes)


@pytest.mark.parametrize(("middle", "crossing", "width"), [("norm", 512 * 4, 4), ("sum", 512 * 4 + 4, 5)])
def test_a_buffer_that_is_too_small_for_what_crosses_a_sum_raises_the_bound(middle, crossing, width) -> None:
    for buffer_bytes in (1540.0, 2100.0):
        least, bounds = least_and_bounds(a_wide_step(width, middle), buffer_bytes)
        assert bounds.buffered_bytes <= least < float("inf")
        expected = bounds.compulsory_bytes + 2 * max(crossing - buffer_bytes, 0)
        assert bounds.buffered_bytes == pytest.approx(expected)


@pytest.mark.parametrize("workload", ["digits-cnn", "fashion-resnet", "shakespeare-gpt"])
def test_each_level_of_fusion_moves_less_and_never_less_than_the_bounds(workload) -> None:
    graph = capture_workload(load_workload(workload), batch_size=16)
    traffic = []
    for fusion in ("none", "ops", "resident"):
        cost = simulate(graph, load_design("bf16-systolic", [f"machine.fusion={fusion}", "machine.sram_kib=256"]))
        assert cost.dram_bounds is not None
        assert cost.bytes_dram >= cost.dram_bounds.buffered_bytes * (1 - 1e-9)
        if fusion == "none":
            assert cost.bytes_dram >= cost.dram_bounds.separate_bytes * (1 - 1e-9)
        assert sum(op.time_s for op in cost.ops) == pytest.approx(cost.time_s)
        assert sum(op.energy_j for op in cost.ops) == pytest.approx(cost.energy_j)
        assert not any(cost.lanes())
        traffic.append(cost.bytes_dram)
    assert traffic[0] > traffic[1] > traffic[2]


@pytest.mark.parametrize("workload", ["digits-cnn", "fashion-resnet", "shakespeare-gpt"])
def test_a_larger_buffer_never_moves_more_and_is_hardly_ever_slower(workload) -> None:
    graph = capture_workload(load_workload(workload), batch_size=16)
    for objective in ("time", "product", "energy"):
        costs = [
            simulate(graph, load_design("bf16-systolic", [f"machine.sram_kib={kib}", f"machine.objective={objective}"]))
            for kib in (256, 512, 1024, 2048, 4096, 8192, 16384)
        ]
        for smaller, larger in pairwise(costs):
            assert larger.time_s <= smaller.time_s * 1.025
            # The fastest plan may move more, behind longer computing.
            assert objective == "time" or larger.bytes_dram <= smaller.bytes_dram * (1 + 1e-9)
        assert objective != "time" or costs[-1].bytes_dram < costs[0].bytes_dram / 1.5


@pytest.mark.parametrize(("design", "workload"), [("edge-fp8", "fashion-cnn"), ("bf16-systolic", "shakespeare-gpt")])
def test_more_bandwidth_is_never_slower(design, workload) -> None:
    """Joined products let array and vector unit work at the same time, also where transfers cost nothing."""
    graph = capture_workload(load_workload(workload))
    times = [
        simulate(graph, load_design(design, [f"machine.dram_gb_s={gb_s}", "machine.objective=time"])).time_s
        for gb_s in (30, 100, 200, 300, 500, 1000, 3000)
    ]
    assert all(faster <= slower * (1 + 1e-9) for slower, faster in pairwise(times))


@pytest.mark.parametrize(("design", "workload"), [("edge-fp32", "digits-cnn"), ("fp8-systolic", "fashion-cnn")])
def test_fusion_follows_the_objective(design, workload) -> None:
    graph = capture_workload(load_workload(workload))
    fastest, best, leanest = (
        simulate(graph, load_design(design, [f"machine.objective={objective}"]))
        for objective in ("time", "product", "energy")
    )
    assert fastest.time_s < min(best.time_s, leanest.time_s)
    assert leanest.energy_j < fastest.energy_j
    assert best.time_s * best.energy_j < fastest.time_s * fastest.energy_j


def test_a_step_that_fits_moves_what_it_must() -> None:
    graph = capture_workload(load_workload("digits-cnn"), batch_size=8)
    cost = simulate(graph, load_design("fp32-systolic", ["machine.sram_kib=65536"]))
    assert cost.dram_bounds is not None
    assert cost.bytes_dram == pytest.approx(cost.dram_bounds.compulsory_bytes)


def test_slices_of_a_group_fit_in_what_it_reserves() -> None:
    graph = capture_workload(load_workload("digits-cnn"), batch_size=64)
    settings = ["machine.sram_kib=96", "machine.rows=16", "machine.cols=16", "machine.dram_gb_s=1"]
    design = load_design("fp32-systolic", settings)
    checked = 0
    for plan in planner_of(graph, design).plans():
        for group in plan.groups:
            if group.sliced and group.slices > 1:
                held, streams = [], {}
                for position in group.sliced:
                    op = graph.ops[position]
                    a, b, y = op.inputs[0], op.inputs[1], op.outputs[0]
                    whole = y if op.phase == "weight_grad" else b
                    held.append(4.0 * whole.elements)
                    for tensor in {a, b, y} - {whole}:
                        lines = 1 if group.slices <= 64 or op.convolution is None else tensor.shape[2]
                        streams[tensor.id] = (4.0 * tensor.elements, graph.batch_size * lines)
                assert walk_slices(held, list(streams.values()), group.slices) <= group.reserved_bytes * (1 + 1e-9)
                assert group.reserved_bytes <= 96 * 1024
                checked += 1
    assert checked


def test_slices_take_as_long_as_a_walk_through_both_units() -> None:
    draw = random.Random(4)
    ratios = []
    for _ in range(400):
        stages = [(draw.random() * draw.choice([0, 1, 1]), draw.random()) for _ in range(draw.randint(1, 5))]
        slices = draw.choice([1, 2, 4, 8, 32])
        ratio = walk_pipeline(stages, slices) / pipelined_cycles(stages, slices)
        if slices == 1:
            assert ratio == pytest.approx(1)
        ratios.append(ratio)
    ratios.sort()
    assert ratios[0] > 0.85
    assert ratios[200] == pytest.approx(1, abs=0.01)
    assert ratios[380] < 1.15


def test_batch_normalization_reads_its_data_twice_unless_it_fits() -> None:
    x, y = (TensorRef(number, (64, 64), "activation") for number in (0, 1))
    norm = Op(
        index=0, name="norm", kind="normalization", operator="aten.native_batch_norm.default", phase="forward",
        layer="", inputs=(x,), outputs=(y,), flops=64,
    )  # fmt: skip
    graph = StepGraph(name="norm", batch_size=64, ops=(norm,))
    size = 4 * 64 * 64
    assert simulate(graph, load_design("fp32-systolic", ["machine.sram_kib=1024"])).bytes_dram == 2 * size
    for fusion in ("none", "ops", "resident"):
        settings = [*SMALL, "machine.sram_kib=8", f"machine.fusion={fusion}"]
        assert simulate(graph, load_design("fp32-systolic", settings)).bytes_dram == 3 * size


def test_statistics_are_gathered_with_the_producer_and_the_result_with_the_consumer() -> None:
    graph = capture_workload(load_workload("fashion-resnet"), batch_size=64)
    design = load_design("bf16-systolic", ["machine.sram_kib=512", "machine.fusion=ops"])
    (plan,) = planner_of(graph, design).plans()
    names = [*(op.name for op in graph.ops), "update.round_weights"]
    norms = {name for name in names if "native_batch_norm" in name}
    gathered = {names[position] for group in plan.groups for position in group.statistics}
    assert gathered == norms
    home = {names[position]: slot for slot, group in enumerate(plan.groups) for position in group.members}
    for slot, group in enumerate(plan.groups):
        for position in group.statistics:
            assert home[names[position]] > slot


def test_an_unknown_level_of_fusion_is_refused() -> None:
    with pytest.raises(ConfigError, match="fusion"):
        load_design("bf16-systolic", ["machine.fusion=all"])
