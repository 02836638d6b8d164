"""A training step divided by layers: each core has some of them, and micro-batches pass through the cores.

The order of a core is 1F1B: as many forward passes as there are cores behind it and one more, then backward and
forward passes in turn. A step has the micro-batches with which it was captured, so that training sees the same.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from presilicon.records import Op

Part = Literal["forward", "backward", "update"]


class PipelinePass(NamedTuple):
    """A pass of a micro-batch, or the update."""

    part: Part
    micro_batch: int


def blocks_of(ops: Sequence[Op]) -> list[PipelinePass]:
    """The block of each op: a forward pass after a backward one begins the next micro-batch."""
    blocks, number, before = [], 0, "forward"
    for op in ops:
        part: Part = "update" if op.phase == "update" else "forward" if op.phase == "forward" else "backward"
        if part == "forward" and before == "backward":
            number += 1
        before = part if part != "update" else before
        blocks.append(PipelinePass(part, 0 if part == "update" else number))
    return blocks


def order_of_blocks(stage: int, stages: int, micro_batches: int) -> list[PipelinePass]:
    """The blocks of a stage in the order in which it runs them.

    >>> [f"{block.part[0]}{block.micro_batch}" for block in order_of_blocks(1, 3, 4)]
    ['f0', 'f1', 'b0', 'f2', 'b1', 'f3', 'b2', 'b3', 'u0']
    """
    ahead = min(stages - stage, micro_batches)
    order = [PipelinePass("forward", number) for number in range(ahead)]
    for number in range(micro_batches):
        order.append(PipelinePass("backward", number))
        if number + ahead < micro_batches:
            order.append(PipelinePass("forward", number + ahead))
    return [*order, PipelinePass("update", 0)]


def balance(costs: Sequence[float], stages: int) -> list[int]:
    """The stage of each of a row of layers, so that the dearest stage is as cheap as it can be.

    >>> balance([1, 1, 1, 3, 1, 1], 3)
    [0, 0, 0, 1, 2, 2]
    """
    stages = min(stages, len(costs))
    sums = [0.0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    best = [sums[end] for end in range(len(sums))]  # of the first layers, in one stage
    cuts: list[list[int]] = []
    for stage in range(1, stages):
        after, cut = [float("inf")] * len(sums), [0] * len(sums)
        for end in range(stage + 1, len(sums)):
            after[end], cut[end] = min((max(best[at], sums[end] - sums[at]), at) for at in range(stage, end))
        best, cuts = after, [*cuts, cut]
    end, numbers = len(costs), [0] * len(costs)
    for stage in range(stages - 1, 0, -1):
        begin = cuts[stage - 1][end]
        numbers[begin:end] = [stage] * (end - begin)
        end = begin
    return numbers


def stages_of(ops: Sequence[Op], times_s: Mapping[int, float], stages: int) -> list[int]:
    """The stage of each op: layers in the order of the forward pass, as even in time as they can be.

    A layer that is used several times keeps all layers between its uses in its stage. What lies outside of the model
    follows its last layer.
    """
    first = PipelinePass("forward", 0)
    units = _units([op.layer for op, block in zip(ops, blocks_of(ops), strict=True) if block == first and op.layer])
    costs = [0.0] * (max(units.values(), default=-1) + 1)
    for position, op in enumerate(ops):
        if op.layer in units:
            costs[units[op.layer]] += times_s[position]
    numbers = balance(costs, stages) if costs else [0]
    return [numbers[units[op.layer]] if op.layer in units else numbers[-1] for op in ops]


def _units(layers: Sequence[str]) -> dict[str, int]:
    """Layers that belong together, by number; `layers` are in the order of their uses.

    >>> _units(["stem", "conv", "relu", "norm", "relu", "head"])
    {'stem': 0, 'conv': 1, 'relu': 2, 'norm': 2, 'head': 3}
    """
    last = {layer: at for at, layer in enumerate(layers)}
    units: dict[str, int] = {}
    number, until = -1, -1
    for at, layer in enumerate(layers):
        if at > until:
            number += 1
        until = max(until, last[layer])
        units.setdefault(layer, number)
    return units
