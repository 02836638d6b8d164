"""Laws of what a step can cost, over random steps, designs and kinds of machines."""

import random
from collections import Counter
from contextlib import suppress
from functools import cache, partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn

from presilicon.base import ConfigError
from presilicon.designs import Design, MachineStep, StepFormats, load_design
from presilicon.records import Cost, Gemm, Op, OperatorWork, StepFacts, StepGraph, TensorRef
from presilicon.simulation import executed_ops, simulate, simulate_gemm
from presilicon.simulation.caterpillar.pricing import pipeline_of
from presilicon.simulation.cores.description import Cores
from presilicon.simulation.systolic.memories import Memory
from presilicon.simulation.systolic.plan import Planner
from presilicon.simulation.systolic.slices import slice_work
from presilicon.simulation.systolic.work import systolic_rates
from presilicon.workloads import capture

KINDS = ("bf16-systolic", "edge-fp8", "bf16-mesh", "caterpillar-small", "h200", "tpu-v2")


def dram_bytes(cost: Cost) -> float:
    """DRAM bytes of a step."""
    return sum(op.bytes_dram for op in cost.ops)


def perceptron(*widths: int) -> nn.Module:
    """Linear layers with activations between them."""
    pairs = pairwise(widths)
    return nn.Sequential(*[layer for pair in pairs for layer in (nn.Linear(*pair), nn.ReLU())])


def inference(model: nn.Module, *shape: int) -> StepGraph:
    """The forward pass in evaluation."""
    return capture(model.eval(), torch.empty(*shape), training=False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_without_an_update_has_no_op_of_one(kind) -> None:
    graph = inference(perceptron(256, 64, 64), 4, 256)
    cost = simulate(graph, load_design(kind))
    assert {op.phase for op in cost.ops} == {"forward"}


@pytest.mark.parametrize("kind", ["bf16-systolic", "edge-fp8", "bf16-mesh"])
def test_inference_costs_the_same_whatever_the_format_of_master_weights(kind) -> None:
    graph, design = inference(perceptron(512, 512, 512), 1, 512), load_design(kind)
    narrow = load_design(kind, [f"numerics.master={design.numerics.weight.format}"])
    cost, other = simulate(graph, design), simulate(graph, narrow)
    assert (cost.time_s, dram_bytes(cost)) == (other.time_s, dram_bytes(other))


class Affine(nn.Module):
    """A scale and an offset per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale, self.offset = nn.Parameter(torch.ones(channels, 1, 1)), nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.offset


def convolutions(norm: type[nn.Module], channels: int) -> nn.Module:
    """Convolutions with a normalization after each."""
    layers = [(nn.Conv2d(channels, channels, 3, padding=1, bias=False), norm(channels), nn.ReLU()) for _ in range(2)]
    return nn.Sequential(*[layer for block in layers for layer in block])


@pytest.mark.parametrize("fusion", ["none", "ops", "resident"])
@pytest.mark.parametrize("channels", [16, 64])
def test_a_batch_norm_in_evaluation_costs_at_most_its_affine_map(fusion, channels) -> None:
    design = load_design("edge-fp8", [f"machine.fusion={fusion}", "machine.objective=time"])
    for training in (False, True):
        graphs = [
            capture(convolutions(norm, channels).eval(), torch.empty(4, channels, 28, 28), training=training)
            for norm in (nn.BatchNorm2d, Affine)
        ]
        norm, affine = (simulate(graph, design) for graph in graphs)
        statistics_bytes = 2 * 2 * 3 * channels * 4  # statistics and scale of two layers, forward and backward
        assert dram_bytes(norm) <= dram_bytes(affine) + statistics_bytes
        assert norm.time_s <= affine.time_s * 1.005  # the statistics take some of the buffer
        assert norm.energy_j <= affine.energy_j


def classifier(draw: random.Random) -> nn.Module:
    """Convolutions with normalizations and poolings that need whole samples."""
    channels = draw.choice([8, 16, 32])
    norm = draw.choice([nn.GroupNorm(4, channels), nn.InstanceNorm2d(channels, affine=True), nn.Identity()])
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), norm, nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(2 * channels, 10),
    )  # fmt: skip


def planner_of(graph: StepGraph, design: Design) -> Planner:
    """The planner of a step on a machine with one core."""
    formats = StepFormats(design.numerics, StepFacts(), graph)
    executed = executed_ops(graph, formats, StepFacts())
    technology = design.technology
    step = MachineStep(
        graph=graph, executed=executed, design=design, formats=formats, technology=technology, convention="exact"
    )
    return Planner(step, design.machine, systolic_rates(design, design.machine, technology))


@pytest.mark.parametrize("seed", range(4))
def test_slices_of_a_micro_batch_are_its_samples(seed) -> None:
    draw = random.Random(seed)
    model, parts, size = classifier(draw), draw.choice([4, 8]), draw.choice([2, 4])
    graph = capture(model, torch.empty(parts * size, 3, 32, 32), accumulate=parts)
    assert (graph.micro_batches, graph.samples_per_pass) == (parts, size)
    planner = planner_of(graph, load_design("edge-fp8", [f"machine.sram_kib={draw.choice([64, 128])}"]))
    for group in [group for plan in planner.plans() for group in plan.groups if group.sliced]:
        if any(planner.styles[position] == "samples" for position in group.members):
            assert group.slices <= size


@pytest.mark.parametrize("kind", ["edge-fp8", "h200", "caterpillar-small"])
@pytest.mark.parametrize("seed", range(2))
def test_products_of_micro_batches_take_as_long_as_those_of_single_ones(kind, seed) -> None:
    draw = random.Random(seed)
    model, parts, size = perceptron(64, 32, 16), draw.choice([2, 4]), draw.choice([2, 4])
    settings = ["machine.fusion=none"] if kind == "edge-fp8" else []
    whole, one = (
        simulate(capture(model, torch.empty(count * size, 64), accumulate=count), load_design(kind, settings))
        for count in (parts, 1)
    )
    first, other = (
        sum(op.compute_s for op in cost.ops if op.phase != "update" and ".addmm" in op.name) for cost in (whole, one)
    )
    assert first == pytest.approx(parts * other)


def normalized_images() -> nn.Module:
    """A CNN with group normalizations and poolings after its convolutions."""
    blocks = [
        (nn.Conv2d(into, out, 3, padding=1), nn.GroupNorm(8, out), nn.ReLU(), nn.MaxPool2d(2))
        for into, out in ((3, 32), (32, 64), (64, 128))
    ]
    return nn.Sequential(*[layer for block in blocks for layer in block], nn.Flatten(), nn.Linear(2048, 10))


@cache
def capture_micro_batches(count: int, size: int) -> StepGraph:
    """A step of that CNN, its gradients added up over some micro-batches."""
    return capture(normalized_images(), torch.empty(count * size, 3, 32, 32), accumulate=count)


@pytest.mark.parametrize(("fusion", "kib"), [("none", 128), ("ops", 256), ("resident", 128), ("resident", 2048)])
def test_micro_batches_cost_what_as_many_small_batches_do(fusion, kib) -> None:
    parts, size, design = 8, 4, load_design("edge-fp8", [f"machine.fusion={fusion}", f"machine.sram_kib={kib}"])
    graphs = [capture_micro_batches(count, size) for count in (parts, 1)]
    cycles, moved = [Counter[str](), Counter[str]()], [Counter[str](), Counter[str]()]
    for graph, count, taken, crossed in zip(graphs, (1, parts), cycles, moved, strict=True):
        for op, cost in zip(graph.ops, simulate(graph, design).ops, strict=False):
            is_sum_of_gradients = op.operator == "aten.add_.Tensor"
            if op.layer and op.phase != "update" and not is_sum_of_gradients:
                taken[f"{op.layer} {op.phase} {op.kind}"] += count * cost.cycles
                crossed[op.phase] += count * cost.bytes_dram
    # Weights and their gradients may stay in the buffer between micro-batches, or from a batch to its update.
    kept = parts * 4 * graphs[0].parameter_elements
    assert cycles[0] == cycles[1]
    for phase, size_bytes in moved[0].items():
        assert size_bytes == pytest.approx(moved[1][phase], rel=1e-9, abs=0 if fusion == "none" else kept), phase
    planner = planner_of(graphs[0], design)
    for group in [group for plan in planner.plans() for group in plan.groups if group.sliced]:
        assert group.slices <= size or not any(planner.styles[position] == "samples" for position in group.members)


def with_memories(*memories: Memory, preset: str = "bf16-systolic", **machine: object) -> Design:
    """A design with other memories and other fields of its machine."""
    design = load_design(preset)
    return replace(design, machine=replace(design.machine, memories=memories, objective="time", **machine))


def some_gemm(draw: random.Random) -> Gemm:
    """A product of any size."""
    return Gemm(*(draw.choice([64, 100, 256, 384, 1000, 1024, 2048]) for _ in range(3)))


@pytest.mark.parametrize("seed", range(4))
def test_a_single_buffer_transfers_and_computes_in_turn(seed) -> None:
    draw = random.Random(seed)
    rows, gb_s = draw.choice([32, 128]), draw.choice([5.0, 20.0, 100.0])
    gemm = some_gemm(draw)
    design = with_memories(Memory(name="buffer", kib=512, doubled=False), dram_gb_s=gb_s, rows=rows, cols=rows)
    cost = simulate_gemm(gemm, design)
    assert cost.time_s == pytest.approx(cost.compute_s + cost.bytes_dram / (gb_s * 1e9))
    graph = capture(perceptron(256, 256, 256), torch.empty(64, 256))
    step = simulate(graph, design)
    assert step.time_s >= dram_bytes(step) / (gb_s * 1e9) + max(op.compute_s for op in step.ops)


def test_cells_wait_while_an_inner_memory_is_filled_that_is_not_doubled() -> None:
    def cycles(doubled: bool, kib: float) -> int:
        inner = Memory(name="inner", kib=kib, holds=("left", "right"), gb_s=16.0, doubled=doubled)
        outer = Memory(name="outer", kib=1 << 14, gb_s=1e6)
        return simulate_gemm(Gemm(512, 512, 512), with_memories(inner, outer, dram_gb_s=1e6)).cycles

    # The same room for data in use: filling it takes at least both operands at 16 GB/s and 0.5 GHz.
    assert cycles(doubled=False, kib=64) >= cycles(doubled=True, kib=128) + 2 * 512 * 512 * 2 / 32 - 1


@pytest.mark.parametrize("seed", range(6))
def test_no_memory_moves_more_than_its_bandwidth(seed) -> None:
    draw = random.Random(seed)
    gb_s, ports, count = draw.choice([2.0, 20.0]), draw.choice([1, 2]), draw.choice([1, 4, 16])
    memory = Memory(name="buffer", kib=1024, gb_s=gb_s, ports=ports)
    cores = Cores(count=count, memory="shared", link_bytes=1e6, pj_bit_hop=0.1, parallel=draw.choice(["data", "tile"]))
    fusion = draw.choice(["none", "ops", "resident"])
    design = with_memories(memory, dram_gb_s=50.0, rows=32, cols=32, fusion=fusion, cores=cores)
    graph = capture(perceptron(128, 256, 128, 64), torch.empty(64, 128))
    cost = simulate(graph, design)
    assert sum(op.bytes_sram for op in cost.ops) <= gb_s * 1e9 * ports * cost.time_s * (1 + 1e-9)
    assert dram_bytes(cost) <= 50e9 * cost.time_s * (1 + 1e-9)


def check_more_is_not_slower(seed: int) -> None:
    """A random product on machines of which each has more of one thing than the one before."""
    draw = random.Random(seed)
    gemm, rows = some_gemm(draw), draw.choice([32, 128])
    holds = draw.choice([("sums",), ("left", "right"), ("left", "right", "sums")])
    inner = Memory(name="inner", kib=draw.choice([64, 192]), holds=holds, gb_s=draw.choice([64.0, 256.0]))
    outer = Memory(name="outer", kib=512, gb_s=draw.choice([16.0, 64.0, 256.0]))
    given = {"dram_gb_s": draw.choice([20.0, 100.0]), "rows": rows, "cols": rows}
    largest = replace(outer, kib=1 << 15)
    chains: list[list[tuple[tuple[Memory, ...], dict[str, float]]]] = [
        [((inner, replace(outer, kib=kib)), given) for kib in (256, 512, 1024, 2048)],
        [((replace(inner, kib=kib), largest), given) for kib in (64, 128, 256, 512)],
        [((inner, replace(outer, gb_s=gb_s)), given) for gb_s in (16.0, 32.0, 64.0)],
        [((inner, outer), given | {"dram_gb_s": gb_s}) for gb_s in (10.0, 20.0, 40.0)],
        [((inner, outer), given | {"vector_lanes": lanes}) for lanes in (32, 64, 128)],
    ]
    for chain in chains:
        times = []
        for memories, fields in chain:
            with suppress(ConfigError):
                times.append(simulate_gemm(gemm, with_memories(*memories, **fields)).time_s)
        assert all(more <= less * (1 + 1e-9) for less, more in pairwise(times)), (chain, times)


@pytest.mark.parametrize("seed", [0, 105, 118])
def test_more_is_never_slower(seed) -> None:
    check_more_is_not_slower(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_more_is_never_slower_in_many_cases(seed) -> None:
    check_more_is_not_slower(seed)


class Attention(nn.Module):
    """Self-attention over normalized rows."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(width), heads
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.project(self.norm(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*parts)
        return x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))


@cache
def some_step(kind: str, training: bool) -> StepGraph:
    """A step of a small model."""
    images = (
        nn.Conv2d(8, 32, 3, padding=1),
        nn.GroupNorm(4, 32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
    )
    model, shape = {
        "perceptron": (perceptron(256, 512, 128, 64), (64, 256)),
        "wide": (perceptron(1024, 1024, 1024), (128, 1024)),
        "images": (nn.Sequential(*images), (8, 8, 16, 16)),
        "attention": (nn.Sequential(Attention(128, 4), nn.Linear(128, 512), nn.GELU()), (8, 64, 128)),
    }[kind]
    return capture(model, torch.empty(*shape), training=training)


def check_more_is_not_slower_for_a_step(seed: int) -> None:
    """A random step on machines of which each has more of one thing than the one before."""
    draw = random.Random(seed)
    kind, training = draw.choice(["perceptron", "wide", "images", "attention"]), draw.choice([True, True, False])
    graph, fusion, rows = some_step(kind, training), draw.choice(["none", "ops", "resident"]), draw.choice([16, 32, 64])
    memory = Memory(
        name="buffer", kib=draw.choice([64, 128, 256, 1024]), gb_s=draw.choice([None, 16.0, 64.0]),
        doubled=draw.choice([True, True, False]), banks=64,
    )  # fmt: skip
    given: dict[str, Any] = {
        "dram_gb_s": draw.choice([5.0, 20.0, 100.0]), "vector_lanes": draw.choice([16, 64]), "rows": rows, "cols": rows,
        "prefetch": draw.choice([True, False]), "fusion": fusion, "clock_ghz": draw.choice([0.25, 0.5, 1.0]),
    }  # fmt: skip
    cores = Cores(
        count=1, pj_bit_hop=0.1, parallel=draw.choice(["data", "tile", "layer", "best"]),
        memory=draw.choice(["private", "shared"]),
    )  # fmt: skip
    chains: dict[str, list[tuple[Memory, dict[str, Any]]]] = {
        "gb_s": [(replace(memory, gb_s=gb_s), given) for gb_s in (8.0, 16.0, 64.0, 1e5)],
        "cores": [(memory, given | {"cores": replace(cores, count=count)}) for count in (1, 2, 3, 4, 6, 8, 12, 16)],
    }
    if fusion == "none":  # which groups form depends on these, one group after the other
        sizes = [share * memory.kib for share in (0.5, 1.0, 1.5, 2.0, 4.0)]
        chains["kib"] = [(replace(memory, kib=kib), given) for kib in sizes]
        chains["dram"] = [(memory, given | {"dram_gb_s": gb_s}) for gb_s in (5.0, 10.0, 20.0, 40.0, 100.0)]
        chains["lanes"] = [(memory, given | {"vector_lanes": lanes}) for lanes in (16, 32, 48, 64, 128)]
        chains["clock"] = [(memory, given | {"clock_ghz": ghz}) for ghz in (0.25, 0.4, 0.5, 0.7, 1.0, 1.5)]
    for name, chain in chains.items():
        times = []
        for own, fields in chain:
            with suppress(ConfigError):
                # An op that waits for a memory with a rate of its own ends with a whole cycle.
                rounding_s = len(graph.ops) * 1e-9 / fields["clock_ghz"] if name == "clock" else 0.0
                times.append((simulate(graph, with_memories(own, **fields)).time_s, rounding_s))
        for (less, _), (more, rounding_s) in pairwise(times):
            assert more <= less * (1 + 1e-9) + rounding_s, (name, fusion, times)


@pytest.mark.parametrize("seed", [1, 3, 11, 19])
def test_more_is_never_slower_for_a_step(seed) -> None:
    check_more_is_not_slower_for_a_step(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_more_is_never_slower_for_many_steps(seed) -> None:
    check_more_is_not_slower_for_a_step(seed)


def custom(index: int, additions: int) -> Op:
    """A call of a user's operator with a constant of its own."""
    tensors = [TensorRef(2 * index + number, (1024,), "activation") for number in range(2)]
    work = OperatorWork(name="k", results=1024, additions=additions, lane_cycles=additions * 1024)
    return Op(
        index=index, name=f"op{index}", kind="other", operator="presilicon.k", phase="forward", layer="layer",
        inputs=(tensors[0],), outputs=(tensors[1],), flops=1024, work=work,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["bf16-systolic", "edge-fp8", "caterpillar-small", "bf16-mesh", "h200"])
def test_ops_cost_the_same_in_either_order(kind) -> None:
    costs = []
    for order in ((3, 40), (40, 3), (3,), (40,)):
        ops = tuple(custom(index, additions) for index, additions in enumerate(order))
        cost = simulate(StepGraph(name="two", batch_size=1, ops=ops), load_design(kind))
        costs.append((sum(op.cycles for op in cost.ops), sum(op.compute_s for op in cost.ops)))
    first, second, *alone = costs
    assert first == pytest.approx(second)
    assert first == pytest.approx(tuple(map(sum, zip(*alone, strict=True))))


class Gathering(nn.Module):
    """Nodes of a graph, transformed, and read along its edges."""

    def __init__(self, nodes: int, edges: int) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.register_buffer("sources", torch.zeros(edges, dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).relu()[self.sources].relu()


@pytest.mark.parametrize("fusion", ["ops", "resident"])
@pytest.mark.parametrize("seed", range(2))
def test_a_gather_needs_its_table_whole(fusion, seed) -> None:
    draw = random.Random(seed)
    nodes, edges = draw.choice([20_000, 50_000]), draw.choice([60_000, 100_000])
    graph = inference(Gathering(nodes, edges), nodes, 64)
    cost = simulate(graph, load_design("bf16-systolic", [f"machine.fusion={fusion}", "machine.sram_kib=256"]))
    # The batch is read, the table written, its rows read and the result written, but for what the buffer holds.
    assert dram_bytes(cost) >= 2 * 64 * (2 * nodes + 2 * edges) - 2 * 256 * 1024


@pytest.mark.parametrize("fusion", ["none", "ops", "resident"])
def test_a_group_norm_of_single_channels_and_one_sample_is_a_batch_norm(fusion) -> None:
    design = load_design("bf16-systolic", [f"machine.fusion={fusion}", "machine.sram_kib=128"])
    model = (nn.Conv2d(3, 16, 3, padding=1), nn.ReLU())
    group, batch = (
        simulate(capture(nn.Sequential(*model, norm, nn.ReLU()), torch.empty(1, 3, 256, 256)), design)
        for norm in (nn.GroupNorm(16, 16), nn.BatchNorm2d(16))
    )
    # A batch normalization keeps running statistics besides.
    assert dram_bytes(group) == pytest.approx(dram_bytes(batch), rel=2e-3)


@pytest.mark.parametrize("norm", [nn.GroupNorm(1, 64), nn.LayerNorm([64, 128, 128]), nn.Softmax(dim=-1)])
def test_what_a_normalization_needs_at_once_is_in_the_buffer_or_read_twice(norm) -> None:
    design = load_design("bf16-systolic", ["machine.sram_kib=128", "machine.fusion=ops"])
    shape = (2, 64 * 128 * 128) if isinstance(norm, nn.Softmax) else (2, 64, 128, 128)
    cost = simulate(inference(nn.Sequential(norm), *shape), design)
    assert dram_bytes(cost) >= 3 * 2 * 2 * 64 * 128 * 128


CARDS = ("p100", "tpu-v2", "tpu-v3", "v100", "a100")


@pytest.mark.parametrize("kind", CARDS)
def test_no_product_runs_above_the_peak_unless_an_algorithm_says_why(kind) -> None:
    design = load_design(kind)
    draw = random.Random(kind)
    for _ in range(6):
        channels, kernel = draw.choice([64, 128, 256]), draw.choice([1, 3, 5])
        model = nn.Sequential(
            nn.Conv2d(channels, channels, kernel, padding=kernel // 2), nn.ReLU(), nn.Flatten(2), nn.Linear(784, 512)
        )
        graph = capture(model, torch.empty(draw.choice([16, 64]), channels, 28, 28))
        for op, cost in zip(graph.ops, simulate(graph, design).ops, strict=False):
            assert cost.compute_s <= cost.time_s * (1 + 1e-9)
            if op.gemm is not None and cost.unit == "matrix":
                peak = max(rate.tflops for rate in design.machine.matrix.values()) * 1e12
                saved = 2.25 if cost.algorithm == "Winograd" else 1.0
                assert cost.flops_s <= peak * saved * (1 + 1e-9)
                assert saved == 1.0 or (op.convolution is not None and op.convolution.kernel == (3, 3))


def test_plain_products_keep_to_the_rate_of_their_unit() -> None:
    design = load_design("p100")
    cost = simulate(capture(perceptron(3072, 768, 3072), torch.empty(8192, 3072)), design)
    products = [op for op in cost.ops if op.utilization]
    assert products
    assert all(op.flops_s <= design.machine.matrix["float32"].tflops * 1e12 * (1 + 1e-9) for op in products)


@pytest.mark.parametrize("cap_w", [350.0, 450.0, 600.0])
def test_more_bandwidth_is_never_slower_under_a_power_cap(cap_w) -> None:
    for gemm in (Gemm(64, 8192, 8192), Gemm(256, 4096, 4096)):
        times = []
        for gb_s in (1000.0, 2000.0, 4000.0, 4800.0, 6000.0):
            settings = ["machine.measured=", f"machine.cap_w={cap_w}", f"machine.memory_gb_s={gb_s}"]
            design = load_design("h200", settings, numerics="fp32")
            cost = simulate_gemm(gemm, design)
            assert cost.energy_j <= cap_w * cost.time_s * (1 + 1e-9)
            times.append(cost.time_s)
        assert all(more <= less * (1 + 2e-3) for less, more in pairwise(times))


def test_a_power_cap_without_an_energy_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cap_w = 40 is below power_w = 120"):
        load_design("xeon-8t", ["machine.cap_w=40"])


@pytest.mark.parametrize("seed", [0, 2])
def test_the_weights_of_a_pipeline_stage_fit_its_own_cores_or_are_fetched(seed) -> None:
    draw = random.Random(seed)
    widths = [draw.choice([64, 256, 1024]) for _ in range(4)]
    graph = capture(perceptron(*widths), torch.empty(4, widths[0]), optimizer=partial(torch.optim.SGD, lr=0.1))
    preset = load_design("caterpillar-small")
    parameter_kib = 2 * graph.parameter_elements / 1024
    machine = replace(preset.machine, schedule="pipelined", cores=8, mem_a_kib=1.2 * parameter_kib / 8 / 16, nr=4)
    design = replace(preset, machine=machine)
    formats = StepFormats(design.numerics, StepFacts(), graph)
    step = MachineStep(
        graph=graph, executed=executed_ops(graph, formats, StepFacts()), design=design, formats=formats,
        technology=design.technology, convention="exact",
    )  # fmt: skip
    pipeline, costs = pipeline_of(step, machine), simulate(graph, design).ops
    fetched = 0
    for stage, cores in enumerate(pipeline.cores):
        ops = [op for op in graph.ops if pipeline.stage_of[op.index] == stage]
        weights = {tensor.id: tensor for op in ops for tensor in op.inputs if tensor.role == "weight"}
        size = sum(formats.bytes_of(tensor, "") for tensor in weights.values())
        moved = sum(costs[op.index].bytes_dram for op in ops)
        if size > cores * 16 * machine.mem_a_kib * 1024:
            fetched += 1
            assert moved >= graph.batch_size * size
    assert fetched


@pytest.mark.parametrize("parallel", ["data", "tile", "layer"])
@pytest.mark.parametrize("seed", range(3))
def test_arithmetic_takes_the_same_energy_however_a_step_is_divided(parallel, seed) -> None:
    draw = random.Random(seed)
    model = perceptron(*(draw.choice([60, 100, 128, 200]) for _ in range(4)))
    graph = capture(model, torch.empty(15 * 4, model[0].in_features), accumulate=4)
    memory, machine = Memory(name="buffer", kib=1024), {"rows": 16, "cols": 16, "fusion": "ops"}
    alone, divided = (
        simulate(graph, with_memories(memory, **machine, cores=Cores(count=count, pj_bit_hop=0.1, parallel=parallel)))
        for count in (1, draw.choice([4, 8]))
    )
    for component in ("mac", "register", "vector"):
        joules = divided.energy_by_component_j[component]
        assert joules == pytest.approx(alone.energy_by_component_j[component], rel=1e-9), component


@pytest.mark.parametrize("seed", range(3))
def test_an_array_loads_a_shared_operand_for_every_product(seed) -> None:
    draw = random.Random(seed)
    count, size = draw.choice([4, 16]), draw.choice([64, 128])
    operands = [TensorRef(number, (count, size, size), "activation") for number in range(3)]

    def product(right: TensorRef) -> StepGraph:
        op = Op(
            index=0, name="bmm", kind="gemm", operator="aten.bmm.default", phase="forward", layer="l",
            inputs=(operands[0], right), outputs=(operands[2],), flops=2 * count * size**3,
            gemm=Gemm(size, size, size, count),
        )  # fmt: skip
        return StepGraph(name="one", batch_size=count, ops=(op,))

    design = load_design("bf16-systolic")
    apart, shared = (
        simulate(product(TensorRef(1, shape, "activation")), design) for shape in ((count, size, size), (1, size, size))
    )
    assert shared.ops[0].cycles == apart.ops[0].cycles
    # The same tiles enter the array; only DRAM brings the shared one once.
    spared = apart.bytes_dram - shared.bytes_dram
    assert shared.ops[0].bytes_sram == pytest.approx(apart.ops[0].bytes_sram - spared)


def test_the_gradient_of_a_transposed_kernel_reads_what_that_of_its_mirror_does() -> None:
    plain = nn.Conv2d(32, 64, 3, stride=2, padding=1, bias=False)
    turned = nn.ConvTranspose2d(64, 32, 3, stride=2, padding=1, output_padding=1, bias=False)
    design = load_design("bf16-systolic", ["machine.fusion=none"])

    def gradient(model: nn.Module, *shape: int) -> tuple[int, float]:
        graph = capture(model, torch.empty(*shape))
        costs = [simulate(graph, design).ops[op.index] for op in graph.ops if op.gemm and op.phase == "weight_grad"]
        return costs[0].cycles, costs[0].bytes_sram

    ours, theirs = gradient(plain, 2, 32, 28, 28), gradient(turned, 2, 64, 14, 14)
    assert ours[0] == theirs[0]
    assert ours[1] == pytest.approx(theirs[1], rel=0.01)


@pytest.mark.parametrize("kind", ["eyeriss", "bf16-systolic"])
def test_a_convolution_of_depth_one_is_a_flat_one(kind) -> None:
    design = load_design(kind)
    flat = simulate(capture(nn.Conv2d(16, 32, 3, padding=1), torch.empty(4, 16, 28, 28)), design)
    deep = simulate(capture(nn.Conv3d(16, 32, (1, 3, 3), padding=(0, 1, 1)), torch.empty(4, 16, 1, 28, 28)), design)
    for one, other in zip(flat.ops, deep.ops, strict=True):
        figures = (
            (cost.cycles, cost.bytes_dram, cost.bytes_sram, pytest.approx(cost.energy_j)) for cost in (one, other)
        )
        assert next(figures) == next(figures), one.name


def products_of(
    model: nn.Module, shape: tuple[int, ...], design: Design, *, training: bool = False
) -> list[tuple[object, ...]]:
    """Cycles, traffic and energy of the products of a step."""
    graph = capture(model, torch.empty(*shape), training=training)
    costs = [cost for op, cost in zip(graph.ops, simulate(graph, design).ops, strict=False) if op.gemm]
    return [(cost.cycles, cost.bytes_dram, cost.bytes_sram, pytest.approx(cost.energy_j)) for cost in costs]


@pytest.mark.parametrize("kind", ["eyeriss", "bf16-systolic"])
def test_a_deep_convolution_of_flat_kernels_is_a_flat_one(kind) -> None:
    """Of planes, of lines along the depth, and of any two axes."""
    design, depth, side = load_design(kind, ["machine.fusion=none"]), 4, 12
    for deep, flat, shape in (
        (((1, 3, 3), (0, 1, 1)), ((3, 3), (1, 1)), (2 * depth, 8, side, side)),
        (((1, 3, 1), (0, 1, 0)), ((3, 1), (1, 0)), (2 * depth, 8, side, side)),
        (((3, 1, 1), (1, 0, 0)), ((3, 1), (1, 0)), (2, 8, depth, side * side)),
        (((3, 3, 1), (1, 1, 0)), ((3, 3), (1, 1)), (2 * side, 8, depth, side)),
    ):
        figures = products_of(nn.Conv3d(8, 16, deep[0], padding=deep[1], bias=False), (2, 8, depth, side, side), design)
        assert figures == products_of(nn.Conv2d(8, 16, flat[0], padding=flat[1], bias=False), shape, design), deep


def test_windows_share_planes_as_they_share_rows() -> None:
    """What fits in the buffer is fetched from DRAM once, however many windows read it."""
    design = load_design("eyeriss", ["machine.fusion=none"])
    [(_, moved, *_)] = products_of(nn.Conv3d(4, 8, 3, padding=1, bias=False), (1, 4, 8, 10, 12), design)
    elements = 4 * 8 * 10 * 12 + 8 * 4 * 27 + 8 * 8 * 10 * 12
    assert moved == 2 * elements  # words of 16 bits


def test_slices_take_what_their_own_mapping_does() -> None:
    graph = capture(perceptron(512, 512, 512), torch.empty(512, 512))
    design = with_memories(Memory(name="buffer", kib=128, gb_s=8.0), rows=32, cols=32)
    planner = planner_of(graph, design)
    step, machine, rates = planner._step, planner._machine, planner._rates
    seen = 0
    for position, op in enumerate(graph.ops):
        if op.gemm is None:
            continue
        works = [planner._works(share)[position] for share in (1.0, 0.5)]
        sliced = [slice_work(op, planner._product(position), work, 4, step, machine, rates) for work in works]
        assert sliced[0].cycles == sliced[1].cycles
        seen += works[0].cycles != works[1].cycles
    assert seen


class Written(nn.Module):
    """A normalization of rows as models write it out, with a mean (layer) or without one (RMS)."""

    def __init__(self, width: int, *, is_centred: bool) -> None:
        super().__init__()
        self.is_centred, self.gain = is_centred, nn.Parameter(torch.ones(width))
        self.offset = nn.Parameter(torch.zeros(width)) if is_centred else None

    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True) if self.is_centred else x
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.gain
        return x if self.offset is None else x + self.offset


NORMS = {
    "torch": (nn.RMSNorm, nn.LayerNorm),
    "written": (partial(Written, is_centred=False), partial(Written, is_centred=True)),
}


@pytest.mark.parametrize("kind", ["bf16-systolic", "edge-fp8", "caterpillar-small", "h200", "v100"])
@pytest.mark.parametrize("form", NORMS)
def test_an_rms_norm_costs_no_more_than_a_layer_norm(form, kind) -> None:
    width, rows = 256, 4096
    fusions = ("none", "ops", "resident") if kind in ("bf16-systolic", "edge-fp8") else (None,)
    for training in (False, True):
        graphs = []
        for norm in NORMS[form]:
            model = nn.Sequential(*[layer for _ in range(2) for layer in (nn.Linear(width, width), norm(width))])
            graphs.append(capture(model, torch.empty(1, rows, width), training=training))
        for fusion in fusions:
            design = load_design(kind, [f"machine.fusion={fusion}", "machine.sram_kib=512"] if fusion else [])
            rms, layer = (simulate(graph, design) for graph in graphs)
            assert dram_bytes(rms) <= dram_bytes(layer), (training, fusion)
            assert rms.energy_j <= layer.energy_j, (training, fusion)
            assert rms.time_s <= layer.time_s * (1 + 1e-9), (training, fusion)


@pytest.mark.parametrize("kind", ["h200", "v100", "xeon-8t"])
def test_a_batch_norm_in_evaluation_is_no_slower_than_in_training_on_a_card(kind) -> None:
    times = []
    for is_training in (False, True):
        model = nn.Sequential(nn.BatchNorm2d(64)).train(is_training)
        graph = capture(model, torch.empty(64, 64, 56, 56), training=False)
        times.append(simulate(graph, load_design(kind)).time_s)
    assert times[0] <= times[1]
