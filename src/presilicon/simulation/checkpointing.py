"""Activation checkpointing: segments of a chain drop their inner activations and recompute them when needed."""

from collections.abc import Sequence
from itertools import groupby, pairwise
from math import isqrt
from typing import NamedTuple

import msgspec

from presilicon.base import ConfigError, unknown
from presilicon.records import Op, StepGraph, TensorRef

_BACKWARD = ("input_grad", "weight_grad")
_SAVED = ("activation", "weight", "state")


def even_segments(layers: Sequence[str], count: int | None = None) -> tuple[tuple[str, ...], ...]:
    """The layers of a chain in `count` runs of (nearly) equal length; about the square root of their number if None.

    With the root of n, about as many activations are kept between segments as are recomputed inside one: 2 sqrt(n)
    instead of n, for one more forward pass (Chen et al., 2016).

    >>> even_segments("abcdefg", 3)
    (('a', 'b', 'c'), ('d', 'e'), ('f', 'g'))
    >>> [len(segment) for segment in even_segments("abcdefghi")]
    [3, 3, 3]
    """
    wanted = max(1, isqrt(len(layers))) if count is None else count
    if not 1 <= wanted <= len(layers):
        raise ConfigError(f"{len(layers)} layers cannot be cut into {wanted} segments; give 1 to {len(layers)}")
    size, larger = divmod(len(layers), wanted)
    starts = [number * size + min(number, larger) for number in range(wanted + 1)]
    return tuple(tuple(layers[start:end]) for start, end in pairwise(starts))


def chain_of(graph: StepGraph) -> tuple[str, ...]:
    """The blocks that the forward pass of a captured step goes through, in order, for `even_segments` to cut.

    A block is what lies under one number in a layer's name (`stages.1.0` of `stages.1.0.conv1`), or under its first
    word where there is none. A block that the pass returns to, such as one activation that all layers share, does not
    belong in a chain and is left out: its results are kept.
    """
    backward_start = next((op.index for op in graph.ops if op.phase in _BACKWARD), len(graph.ops))
    runs = [name for name, _ in groupby(_block(op.layer) for op in graph.ops[:backward_start] if op.layer)]
    return tuple(name for name in runs if runs.count(name) == 1)


def _block(layer: str) -> str:
    parts = layer.split(".")
    first = next((index for index, part in enumerate(parts) if part.isdigit()), 0)
    last = first
    while last + 1 < len(parts) and parts[last + 1].isdigit():
        last += 1
    return ".".join(parts[: last + 1])


def checkpoint(graph: StepGraph, segments: Sequence[Sequence[str]]) -> StepGraph:
    """The same step with each segment's inner activations dropped and recomputed before they are needed.

    A segment is a run of layers of a chain; a layer's name stands for all inside it (`stages.1` for `stages.1.0.conv`).
    The inputs of a segment are kept. Its forward ops, up to the last one whose results its backward pass reads, run
    again before the first backward op there that reads anything but errors, as in torch's checkpointing. Layers in no
    segment stay as they are. Recomputing the last segment gains nothing: its backward pass follows at once.

    Raises:
        ConfigError: a layer has no forward op or is in two segments, or a segment overwrites its inputs.
    """
    member = _members(graph, segments)
    insertions: dict[int, list[Op]] = {}
    renamed: dict[_Place, dict[int, int]] = {}
    born: dict[int, int] = {}
    for op in graph.ops:
        for tensor in op.inputs + op.outputs:
            born.setdefault(tensor.id, op.index)
    fresh = 1 + max(born, default=0)
    for place in sorted(set(member.values())):
        ops = [op for op in graph.ops if member.get(op.index) == place]
        forward = [op for op in ops if op.phase == "forward"]
        backward = [op for op in ops if op.phase in _BACKWARD]
        if not forward:
            continue
        outputs = {tensor.id for op in forward for tensor in op.outputs}
        inner = outputs - _inputs_of(forward, born, segments[place.segment])
        needed = {tensor.id for op in backward for tensor in op.inputs} & inner
        if not needed:
            continue
        last = max(op.index for op in forward if any(tensor.id in needed for tensor in op.outputs))
        again = [op for op in forward if op.index <= last]
        names = {tensor.id: 0 for op in again for tensor in op.outputs if tensor.id in inner}
        renamed[place] = {storage: fresh + offset for offset, storage in enumerate(names)}
        fresh += len(names)
        first = next(op.index for op in backward if any(tensor.role in _SAVED for tensor in op.inputs))
        insertions.setdefault(first, []).extend(again)
    return msgspec.structs.replace(graph, ops=_rewrite(graph, member, insertions, renamed))


class _Place(NamedTuple):
    """A segment in the pass of a micro-batch."""

    micro_batch: int
    segment: int


def _members(graph: StepGraph, segments: Sequence[Sequence[str]]) -> dict[int, _Place]:
    """The segment of each op that is in one, and its micro-batch: each begins with the same op after a backward one."""
    segment_of: dict[str, int] = {}
    for number, segment in enumerate(segments):
        for layer in segment:
            if layer in segment_of:
                raise ConfigError(f'layer "{layer}" is in two segments; give each layer to one')
            segment_of[layer] = number
    member: dict[int, _Place] = {}
    used: set[str] = set()
    micro_batch, before = 0, "forward"
    for op in graph.ops:
        starts = op.phase == "forward" and (op.layer, op.operator) == (graph.ops[0].layer, graph.ops[0].operator)
        micro_batch += starts and before in _BACKWARD
        before = op.phase
        parts = op.layer.split(".")
        prefixes = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
        prefix = next((prefix for prefix in prefixes if prefix in segment_of), None)
        if prefix is not None:
            member[op.index] = _Place(micro_batch, segment_of[prefix])
            if op.phase == "forward":
                used.add(prefix)
    for layer in segment_of:
        if layer not in used:
            raise unknown("layer", layer, {op.layer for op in graph.ops if op.phase == "forward"} - {""})
    return member


def _inputs_of(forward: Sequence[Op], born: dict[int, int], segment: Sequence[str]) -> set[int]:
    """Storages that exist before the segment; it may overwrite statistics, and nothing else."""
    start = forward[0].index
    written: set[int] = set()
    inputs: set[int] = set()
    for op in forward:
        inputs |= {tensor.id for tensor in op.inputs if tensor.id not in written}
        for tensor in op.outputs:
            if tensor.id not in inputs and born[tensor.id] >= start:
                written.add(tensor.id)
            elif tensor.role == "activation":
                raise ConfigError(
                    f'"{op.name}" overwrites an input of the segment {segment[0]} to {segment[-1]}, which then cannot '
                    "be recomputed: make the operation out of place, or start the segment after it"
                )
    return inputs


def _rewrite(
    graph: StepGraph,
    member: dict[int, _Place],
    insertions: dict[int, list[Op]],
    renamed: dict[_Place, dict[int, int]],
) -> tuple[Op, ...]:
    """The ops in their new order, with names, storages and dependencies that fit it."""
    ops: list[Op] = []
    position: dict[int, int] = {}
    again: dict[int, int] = {}
    writers: dict[int, int] = {}

    def renumber(op: Op, name: str, names: dict[int, int], recomputed: bool) -> None:
        def rename(tensors: tuple[TensorRef, ...]) -> tuple[TensorRef, ...]:
            return tuple(msgspec.structs.replace(tensor, id=names.get(tensor.id, tensor.id)) for tensor in tensors)

        inputs, outputs = rename(op.inputs), rename(op.outputs)
        sources = {again[index] if recomputed and index in again else position[index] for index in op.depends_on}
        # Statistics that were written before are written once more.
        sources |= {writers[tensor.id] for tensor in inputs if tensor.id in writers}
        writers.update({tensor.id: len(ops) for tensor in outputs})
        (again if op.phase == "forward" and recomputed else position)[op.index] = len(ops)
        ops.append(
            msgspec.structs.replace(
                op,
                index=len(ops),
                name=name,
                inputs=inputs,
                outputs=outputs,
                depends_on=tuple(sorted(sources)),
            )
        )

    for op in graph.ops:
        for repeated in insertions.get(op.index, ()):
            renumber(repeated, f"{repeated.name}.again", renamed[member[repeated.index]], recomputed=True)
        inside = op.phase in _BACKWARD and member.get(op.index) in renamed
        renumber(op, op.name, renamed[member[op.index]] if inside else {}, recomputed=inside)
    return tuple(ops)
