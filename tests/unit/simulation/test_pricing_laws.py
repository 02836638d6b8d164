"""Laws of what a step can cost, over random steps, designs and kinds of machines."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from presilicon.designs import load_design
from presilicon.records import Cost, StepGraph
from presilicon.simulation import simulate
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
