"""Checkpointing of a step graph against torch's own checkpointing, captured for real."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as checkpoint_once
from torch.utils.checkpoint import checkpoint_sequential

from presilicon.base import ConfigError
from presilicon.designs import load_design
from presilicon.records import StepGraph
from presilicon.simulation import chain_of, checkpoint, even_segments, memory_timeline, simulate
from presilicon.workloads import capture, capture_workload, load_workload
from presilicon.workloads.networks.transformer import Bert, Gpt

DESIGN = load_design("fp32-systolic")


class Chain(nn.Module):
    """Layers one after another, in so many checkpointed segments, the last of them plain; in none if 0."""

    def __init__(self, layers: list[nn.Module], segments: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.segments = segments

    def forward(self, x: Tensor) -> Tensor:
        if not self.segments:
            return self.layers(x)
        return checkpoint_sequential(self.layers, self.segments, x, use_reentrant=False)


def perceptron(blocks: int) -> list[nn.Module]:
    return [layer for _ in range(blocks) for layer in (nn.Linear(32, 32), nn.ReLU())]


def normalized(blocks: int) -> list[nn.Module]:
    return [nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU()) for _ in range(blocks)]


def convolutional(blocks: int) -> list[nn.Module]:
    return [nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()) for _ in range(blocks)]


BATCHES = {perceptron: (64, 32), normalized: (64, 32), convolutional: (4, 4, 8, 8)}
Layers = Callable[[int], list[nn.Module]]


def captured(make: Layers, blocks: int, segments: int) -> StepGraph:
    return capture(Chain(make(blocks), segments), torch.empty(BATCHES[make]))


def like_torch(graph: StepGraph, layers: int, segments: int) -> StepGraph:
    """The plain graph with torch's segments: it gives what is left over to the last one, which it leaves alone."""
    size = layers // segments
    names = [f"layers.{number}" for number in range(layers)]
    return checkpoint(graph, [names[start * size : (start + 1) * size] for start in range(segments - 1)])


def shape_of(graph: StepGraph) -> list[tuple[Any, ...]]:
    """Everything but names, with storages numbered as they appear."""
    numbers: dict[int, int] = {}

    def number(tensors: Any) -> list[tuple[Any, ...]]:
        return [(numbers.setdefault(each.id, len(numbers)), each.shape, each.role) for each in tensors]

    return [
        (op.index, op.phase, op.kind, op.operator, op.layer, number(op.inputs), number(op.outputs), op.flops, op.gemm,
         op.depends_on)
        for op in graph.ops
    ]  # fmt: skip


@pytest.mark.parametrize("make", [perceptron, normalized, convolutional])
@pytest.mark.parametrize(("blocks", "segments"), [(4, 2), (6, 3), (5, 2)])
def test_the_graph_is_the_one_that_torch_runs(make: Layers, blocks: int, segments: int) -> None:
    plain, real = captured(make, blocks, 0), captured(make, blocks, segments)
    ours = like_torch(plain, len(make(blocks)), segments)
    assert shape_of(ours) == shape_of(real)
    assert len({op.name for op in ours.ops}) == len(ours.ops)
    assert simulate(ours, DESIGN).memory_bytes == simulate(real, DESIGN).memory_bytes
    assert ours.flops() == real.flops() > plain.flops()


class Checkpointed(nn.Module):
    """A block that computes its activations twice."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint_once(self.block, x, use_reentrant=False)


@pytest.mark.parametrize("make", [Bert, Gpt])
def test_blocks_of_a_transformer_are_recomputed_as_torch_does(make: Callable[..., nn.Module]) -> None:
    sizes = {"layers": 3, "width": 16, "heads": 2, "vocabulary": 20, "places": 8}
    tokens = torch.empty(2, 8, dtype=torch.int64, device="meta")
    changed = make(**sizes)
    for number in range(2):
        changed.blocks[number] = Checkpointed(changed.blocks[number])
    plain, real = capture(make(**sizes), tokens), capture(changed, tokens)
    ours = checkpoint(plain, [["blocks.0"], ["blocks.1"]])
    # Layers are called otherwise in the changed model; all else is the same.
    assert [(*each[:4], *each[5:]) for each in shape_of(ours)] == [(*each[:4], *each[5:]) for each in shape_of(real)]
    assert simulate(ours, DESIGN).memory_bytes == simulate(real, DESIGN).memory_bytes
    assert peak_of_activations(ours) < peak_of_activations(plain)


def test_the_comparison_can_fail() -> None:
    plain, real = captured(perceptron, 6, 0), captured(perceptron, 6, 3)
    assert shape_of(like_torch(plain, 12, 2)) != shape_of(real)
    assert shape_of(plain) != shape_of(real)


def peak_of_activations(graph: StepGraph) -> float:
    timeline = memory_timeline(graph, DESIGN, simulate(graph, DESIGN))
    return max(point.activations_bytes for point in timeline.points)


def test_root_segments_keep_two_roots_for_one_more_forward_pass() -> None:
    blocks = 36
    plain = captured(perceptron, blocks, 0)
    names = [f"layers.{number}" for number in range(2 * blocks)]
    pairs = even_segments([f"layers.{2 * number}" for number in range(blocks)])
    segments = [[name for layer in pair for name in (layer, f"layers.{int(layer[7:]) + 1}")] for pair in pairs]
    assert [len(segment) for segment in segments] == [12] * 6
    whole, kept = peak_of_activations(plain), peak_of_activations(checkpoint(plain, segments))
    activation = 4 * 64 * 32
    # One per block and the batch; then the batch, six at the borders and six inside the segment at work.
    assert whole == (blocks + 1) * activation
    assert kept <= (2 * 6 + 1) * activation
    again = checkpoint(plain, segments).flops() - plain.flops()
    assert 0 < again <= plain.flops("forward")
    assert again == pytest.approx(plain.flops("forward"), rel=0.01)
    # Many small segments keep much at their borders, few large ones much inside.
    for count in (2, 36):
        other = [even_segments(names, count)[number] for number in range(count)]
        assert peak_of_activations(checkpoint(plain, other)) > kept


def test_any_segment_may_be_chosen() -> None:
    plain = captured(perceptron, 6, 0)
    middle = checkpoint(plain, [["layers.4", "layers.5", "layers.6", "layers.7"]])
    repeated = [op.name for op in middle.ops if op.name.endswith(".again")]
    assert repeated == [f"layers.{n}.forward.{kind}.again" for n, kind in enumerate(["addmm", "relu"] * 2, start=4)]
    assert peak_of_activations(plain) - peak_of_activations(middle) == 4 * 64 * 32
    assert checkpoint(plain, []).ops == plain.ops


@pytest.mark.parametrize(
    ("segments", "words"),
    [
        ([["layers.0"], ["layers.0"]], '"layers.0" is in two segments'),
        ([["layers.00"]], 'unknown layer "layers.00": did you mean'),
    ],
)
def test_impossible_segments_are_named(segments: list[list[str]], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        checkpoint(captured(perceptron, 2, 0), segments)


def test_a_segment_that_destroys_its_input_is_refused() -> None:
    layers = [nn.Linear(32, 32), nn.ReLU(inplace=True), nn.Linear(32, 32)]
    graph = capture(Chain(layers, 0), torch.empty(4, 32))
    with pytest.raises(ConfigError, match=r"layers\.1.*overwrites an input of the segment"):
        checkpoint(graph, [["layers.1", "layers.2"]])
    assert checkpoint(graph, [["layers.0", "layers.1"]]).flops() > graph.flops()


@pytest.mark.parametrize("count", [0, 8])
def test_an_impossible_number_of_segments(count: int) -> None:
    with pytest.raises(ConfigError, match=f"7 layers cannot be cut into {count} segments"):
        even_segments("abcdefg", count)


@pytest.mark.parametrize("name", ["digits-cnn", "fashion-resnet", "shakespeare-gpt"])
def test_every_micro_batch_recomputes_its_activations(name: str) -> None:
    workload = replace(load_workload(name), batch_size=8)
    plain = [capture_workload(workload, batch_size=2), capture_workload(replace(workload, accumulate=4))]
    cut = [checkpoint(graph, even_segments(chain_of(graph), 2)[:-1]) for graph in plain]
    one, four = (after.flops() - before.flops() for before, after in zip(plain, cut, strict=True))
    assert four == 4 * one > 0
    again = [sum(op.name.endswith(".again") for op in graph.ops) for graph in cut]
    assert again[1] == 4 * again[0]


def test_integers_stay_integers() -> None:
    graph = capture_workload(load_workload("shakespeare-gpt"), batch_size=2)
    cut = checkpoint(graph, even_segments(chain_of(graph), 2)[:-1])
    widths = [{tensor.integer_bits for op in step.ops for tensor in op.inputs} for step in (graph, cut)]
    assert widths[0] == widths[1] != {0}
