"""Activation checkpointing: memory saved, and the cost of recomputation."""

import re
from collections.abc import Iterator, Sequence
from math import sqrt
from typing import Any

from presilicon.designs import Design, load_design
from presilicon.records import MemoryPart, Reproduced, Reproduction, StepGraph
from presilicon.simulation import checkpoint, even_segments, memory_timeline, simulate
from presilicon.workloads import capture, capture_workload, load_workload
from presilicon_evidence.reproductions.verdicts import Rows, Statement, conclude, is_near, shown, stated

LAYERS = 100
"""Length of the chain. With 100 layers, 2 sqrt(L) of L activations are a fifth."""
NETWORKS = ("resnet50", "resnet152", "densenet201")
BATCH = 16
_HALF = "bfloat16"
NEAR = 0.1
"""Part of a published figure by which ours may differ."""

_ASSUMPTIONS = (
    "The chain: 100 linear layers of 64 with tanh, batch 4096, so that weights hardly count. An activation is what one "
    "layer hands on; tanh keeps its result, which is the next layer's input, so one is kept per layer.",
    "Segments of the chain are 10 of 10 layers; the last is not computed again, since its backward pass comes at once.",
    "The slide: batch 16, 16-bit weights and activations, a single copy of the weights, activations kept only at the "
    "input of each residual block. It does not name the network; we take ResNet-50, ResNet-152 and, with each dense "
    "layer a block, DenseNet-201. Memory is weights and activations where they are most, as the slide counts: no "
    "gradients, optimizer state or transients. The last block is not computed again.",
    "Of a block, what no backward op reads is not computed again: in a dense layer that is the second convolution.",
    "Extra compute is in FLOPs of matrix products, against a forward pass of one part and a backward pass of two.",
)


def reproduce() -> Reproduction:
    """The square-root rule on a chain, and the slide's strategy on ResNets."""
    rows = (*_chain(), *(row for name in NETWORKS for row in _network(name)))
    return Reproduction(
        name="checkpointing",
        title="Reverse checkpointing: memory saved for compute spent",
        source="ISCA tutorial, after Knowles (ScaledML 2018); the square-root rule is Chen et al. (arXiv 1604.06174)",
        rows=rows,
        assumptions=_ASSUMPTIONS,
        verdict=conclude(statements, rows),
    )


def statements(rows: Rows) -> Iterator[Statement]:
    """The square-root rule, and the slide's savings and costs for each network."""
    chain = [row for row in rows.like("") if row.quantity.startswith(("chain", "the same"))]
    yield stated("the square-root rule on a chain: activations kept, and one forward pass more", chain, NEAR)
    for name in NETWORKS:
        yield stated(
            f"memory saved by keeping only the inputs of blocks of {name}", [rows[f"{name}: memory saved"]], NEAR
        )
        costs = rows[f"{name}: more compute"], rows[f"{name}: recomputation"]
        yield Statement(
            any(is_near(row, NEAR) for row in costs),
            f"its cost in compute, as a share of the step before or of the one after, within {NEAR:.0%}",
            f"{shown(costs[0])} before, {shown(costs[1])} after; time {shown(rows[f'{name}: more time'])} more",
        )


def _chain() -> Iterator[Reproduced]:
    graph, layers = chain_graph(LAYERS)
    design = _half_precision()
    segments = even_segments(layers)
    saving = checkpoint(graph, segments[:-1])
    one = BATCH_OF_CHAIN * WIDTH * 2
    all_kept, root_kept = (_most(step, design, ("activations",)) / one for step in (graph, saving))
    yield Reproduced(f"chain of {LAYERS} layers: activations kept", "", float(LAYERS), all_kept, note="L")
    yield Reproduced(f"the same in {len(segments)} segments", "", 2 * sqrt(LAYERS), root_kept, note="2 sqrt(L)")
    before, after = (step.flops(matrix_only=True) for step in (graph, saving))
    yield Reproduced(
        "the same: more compute",
        "%",
        100 / 3,
        100 * (after / before - 1),
        note="one forward pass more; the last segment is spared",
    )


def _network(name: str) -> Iterator[Reproduced]:
    graph = capture_workload(load_workload(name), BATCH)
    design = _half_precision()
    blocks = [(block,) for block in blocks_of(graph)]
    saving = checkpoint(graph, blocks[:-1])
    parts: tuple[MemoryPart, ...] = ("weights", "rounded_weights", "activations")
    held = [_most(step, design, parts) for step in (graph, saving)]
    flops = [step.flops(matrix_only=True) for step in (graph, saving)]
    again = flops[1] - flops[0]
    time_s = [simulate(step, design).time_s for step in (graph, saving)]
    yield Reproduced(
        f"{name}: memory saved",
        "%",
        80.0,
        100 * (1 - held[1] / held[0]),
        note=f"{held[0] / 1e6:,.0f} MB to {held[1] / 1e6:,.0f} MB; {len(blocks)} blocks",
    )
    yield Reproduced(f"{name}: more compute", "%", 25.0, 100 * again / flops[0], note="of the step without checkpoints")
    yield Reproduced(f"{name}: recomputation", "%", 25.0, 100 * again / flops[1], note="of all that is then computed")
    yield Reproduced(f"{name}: more time", "%", ours=100 * (time_s[1] / time_s[0] - 1), note=f"on {design.name}")


def blocks_of(graph: StepGraph) -> tuple[str, ...]:
    """Residual blocks (`stages.1.0`) of a ResNet, dense layers (`8.layers.5`) of a DenseNet, in order."""
    names = (re.match(r"stages\.\d+\.\d+|\d+\.layers\.\d+", op.layer) for op in graph.ops if op.phase == "forward")
    return tuple(dict.fromkeys(match[0] for match in names if match))


WIDTH, BATCH_OF_CHAIN = 64, 4096


def chain_graph(length: int) -> tuple[StepGraph, tuple[str, ...]]:
    """A step of equal layers one after another, and their names."""
    import torch
    from torch import nn

    layers: list[Any] = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(length)]
    graph = capture(nn.Sequential(*layers), torch.empty(BATCH_OF_CHAIN, WIDTH, device="meta"), name="chain")
    return graph, tuple(str(number) for number in range(length))


def _most(graph: StepGraph, design: Design, parts: Sequence[MemoryPart]) -> float:
    """Largest sum of these parts of memory over the step."""
    timeline = memory_timeline(graph, design, simulate(graph, design))
    return max(sum(point.parts()[part] for part in parts) for point in timeline.points)


def _half_precision() -> Design:
    roles = ("weight", "activation", "error", "gradient", "master")
    return load_design("bf16-systolic", [f"numerics.{role}={_HALF}" for role in roles])
