"""Laws of what a step can cost, over random steps, designs and kinds of machines."""

import random
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from presilicon.designs import Design, MachineStep, StepFormats, load_design
from presilicon.records import Cost, StepFacts, StepGraph
from presilicon.simulation import executed_ops, simulate
from presilicon.simulation.systolic.plan import Planner
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
