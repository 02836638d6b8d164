"""Memory of captured networks: what grows with depth, and what does not."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from presilicon.designs import load_design
from presilicon.records import MemoryTimeline, StepGraph
from presilicon.simulation import memory_timeline, simulate
from presilicon.workloads import capture, capture_workload, load_workload
from presilicon.workloads.networks.resnet import BasicBlock
from presilicon.workloads.networks.reversible import reversible_chain

DESIGN = load_design("fp32-systolic", ["machine.fusion=none"])
"""Ops one by one, so that the time of a block does not depend on what it is fused with."""
CHANNELS = 16


def timeline_of(graph: StepGraph) -> MemoryTimeline:
    cost = simulate(graph, DESIGN)
    timeline = memory_timeline(graph, DESIGN, cost)
    assert timeline.peak_bytes == cost.memory_bytes
    return timeline


def residual(blocks: int) -> nn.Module:
    return nn.Sequential(*(BasicBlock(CHANNELS, CHANNELS, 1) for _ in range(blocks)))


def reversible(blocks: int) -> nn.Module:
    return reversible_chain(blocks, CHANNELS)


def between(make: Callable[[int], nn.Module], blocks: int) -> MemoryTimeline:
    """The memory of a step of `blocks` blocks between two convolutions."""
    model = nn.Sequential(nn.Conv2d(3, CHANNELS, 1), make(blocks), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return timeline_of(capture(model, torch.empty(4, 3, 16, 16)))


def test_activations_grow_with_the_depth_of_a_residual_network_and_not_of_a_reversible_one() -> None:
    peaks = {
        make: [max(point.activations_bytes for point in between(make, blocks).points) for blocks in (4, 8, 12)]
        for make in (residual, reversible)
    }
    plain = peaks[residual]
    assert plain[2] - plain[1] == plain[1] - plain[0] > 2**20
    assert len(set(peaks[reversible])) == 1
    assert peaks[reversible][0] < plain[0] / 2


def test_so_does_the_longest_lifetime_of_an_activation() -> None:
    lives = {}
    for make in (residual, reversible):
        of_blocks = []
        for blocks in (4, 8, 12):
            inner = [each for each in between(make, blocks).lifetimes if each.part == "activations" and each.writer]
            # The first convolution is part of neither chain.
            of_blocks.append(max(each.time_s for each in inner if not each.writer.startswith("0.")))
        lives[make] = of_blocks
    first, second, third = lives[residual]
    assert third - second == pytest.approx(second - first, rel=0.1)
    assert third > 2 * first
    assert lives[reversible][2] == pytest.approx(lives[reversible][0], rel=0.05)


def test_activations_are_what_autograd_saves() -> None:
    """Saved tensors counted by torch itself, on a network whose every saved activation lives into the backward pass."""
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 8))
    held: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    batch = torch.zeros(16, 32)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(batch).square().mean()
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    saved = sum(size for address, size in held.items() if address not in weights)
    timeline = timeline_of(capture(model, batch, loss=lambda out: out.square().mean()))
    turn = next(point for point in timeline.points if point.phase == "input_grad")
    assert turn.activations_bytes == saved > 0
    assert output.requires_grad


@pytest.mark.parametrize("name", ["resnet18", "bert-base", "dcgan-generator"])
def test_weights_gradients_and_state_of_real_networks(name: str) -> None:
    graph = capture_workload(load_workload(name), 2)
    timeline = timeline_of(graph)
    parameters = 4 * graph.parameter_elements
    states = sum(4 * tensor.elements for tensor in graph.state)
    frozen = 4 * 2_765_568 if name == "dcgan-generator" else 0
    assert {point.weights_bytes for point in timeline.points} == {parameters + frozen}
    assert {point.state_bytes >= states for point in timeline.points} == {True}
    # BERT's word table is also its output layer: two gradients are there when their sum is made.
    doubled = 2 * 4 * 30522 * 768 if name == "bert-base" else 0
    assert max(point.gradients_bytes for point in timeline.points) == parameters + doubled
    backward = [point.phase for point in timeline.points].index("input_grad")
    activations = [point.activations_bytes for point in timeline.points]
    assert max(activations) == max(activations[: backward + 1])
    assert activations[-1] == 0
