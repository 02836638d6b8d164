"""Activation checkpointing: segments of a chain forget their inner activations and compute them again when needed."""

from collections.abc import Sequence
from itertools import groupby, pairwise
from math import isqrt

import msgspec

from presilicon.base.errors import ConfigError, unknown
from presilicon.records import Op, StepGraph, TensorRef

_BACKWARD = ("input_grad", "weight_grad")
_SAVED = ("activation", "weight", "state")


def even_segments(layers: Sequence[str], count: int | None = None) -> tuple[tuple[str, ...], ...]:
    """The layers of a chain in `count` runs of (nearly) equal length; about the square root of their number if None.

    With the root of n, about as many activations are kept between segments as are made again inside one: 2 sqrt(n)
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
    """The blocks that the forward pass of a captured step goes through, in order: what `even_segments` cuts.

    A block is what lies under one number in a layer's name (`stages.1.0` of `stages.1.0.conv1`), or under its first
    word where there is none. A block that the pass comes back to, such as one activation that all layers share, has no
    place in a chain and is left out: what it makes is kept.
    """
    turn = next((op.index for op in graph.ops if op.phase in _BACKWARD), len(graph.ops))
    runs = [name for name, _ in groupby(_block(op.layer) for op in graph.ops[:turn] if op.layer)]
    return tuple(name for name in runs if runs.count(name) == 1)


def _block(layer: str) -> str:
    parts = layer.split(".")
    first = next((place for place, part in enumerate(parts) if part.isdigit()), 0)
    last = first
    while last + 1 < len(parts) and parts[last + 1].isdigit():
        last += 1
    return ".".join(parts[: last + 1])


def checkpoint(graph: StepGraph, segments: Sequence[Sequence[str]]) -> StepGraph:
    """The same step with each segment's inner activations forgotten and recomputed before they are needed.

    A segment is a run of layers of a chain; a layer's name stands for all inside it (`stages.1` for `stages.1.0.conv`).
    What a segment is given is kept. Its forward ops, up to the last one whose results its backward pass reads, run
    again before the first backward op there that reads anything but errors, as in torch's checkpointing. Layers in no
    segment stay as they are. It is of no use to recompute the last segment, whose backward pass comes at once.

    Raises:
        ConfigError: a layer has no forward op or is in two segments, or a segment writes over what it was given.
    """
    turn = next((op.index for op in graph.ops if op.phase in _BACKWARD), len(graph.ops))
    member = _members(graph, segments, turn)
    insertions: dict[int, list[Op]] = {}
    renamed: dict[int, dict[int, int]] = {}
    born: dict[int, int] = {}
    for op in graph.ops:
        for tensor in op.inputs + op.outputs:
            born.setdefault(tensor.id, op.index)
    fresh = 1 + max(born, default=0)
    for number in range(len(segments)):
        forward = [op for op in graph.ops[:turn] if member.get(op.index) == number]
        made = {tensor.id for op in forward for tensor in op.outputs} - _given(forward, born, segments[number])
        backward = [op for op in graph.ops[turn:] if op.phase in _BACKWARD and member.get(op.index) == number]
        needed = {tensor.id for op in backward for tensor in op.inputs} & made
        if not needed:
            continue
        last = max(op.index for op in forward if any(tensor.id in needed for tensor in op.outputs))
        again = [op for op in forward if op.index <= last]
        names = {tensor.id: 0 for op in again for tensor in op.outputs if tensor.id in made}
        renamed[number] = {storage: fresh + offset for offset, storage in enumerate(names)}
        fresh += len(names)
        first = next(op.index for op in backward if any(tensor.role in _SAVED for tensor in op.inputs))
        insertions.setdefault(first, []).extend(again)
    return msgspec.structs.replace(graph, ops=_rewrite(graph, turn, member, insertions, renamed))


def _members(graph: StepGraph, segments: Sequence[Sequence[str]], turn: int) -> dict[int, int]:
    """The segment of each op that is in one."""
    segment_of: dict[str, int] = {}
    for number, segment in enumerate(segments):
        for layer in segment:
            if layer in segment_of:
                raise ConfigError(f'layer "{layer}" is in two segments; give each layer to one')
            segment_of[layer] = number
    member: dict[int, int] = {}
    used: set[str] = set()
    for op in graph.ops:
        parts = op.layer.split(".")
        prefixes = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
        for prefix in prefixes:
            if prefix in segment_of:
                member[op.index] = segment_of[prefix]
                if op.index < turn:
                    used.add(prefix)
                break
    for layer in segment_of:
        if layer not in used:
            raise unknown("layer", layer, {op.layer for op in graph.ops[:turn]} - {""})
    return member


def _given(forward: Sequence[Op], born: dict[int, int], segment: Sequence[str]) -> set[int]:
    """What was there before the segment; it may write over statistics, and over nothing else."""
    start = forward[0].index
    made: set[int] = set()
    given: set[int] = set()
    for op in forward:
        given |= {tensor.id for tensor in op.inputs if tensor.id not in made}
        for tensor in op.outputs:
            if tensor.id not in given and born[tensor.id] >= start:
                made.add(tensor.id)
            elif tensor.role == "activation":
                raise ConfigError(
                    f'"{op.name}" writes over what the segment {segment[0]} to {segment[-1]} was given, so it cannot '
                    "be computed again: make the operation out of place, or start the segment after it"
                )
    return given


def _rewrite(
    graph: StepGraph,
    turn: int,
    member: dict[int, int],
    insertions: dict[int, list[Op]],
    renamed: dict[int, dict[int, int]],
) -> tuple[Op, ...]:
    """The ops in their new order, with names, storages and dependencies that fit it."""
    ops: list[Op] = []
    place: dict[int, int] = {}
    again: dict[int, int] = {}
    writers: dict[int, int] = {}

    def renumber(op: Op, name: str, names: dict[int, int], recomputed: bool) -> None:
        def rename(tensors: tuple[TensorRef, ...]) -> tuple[TensorRef, ...]:
            return tuple(TensorRef(names.get(t.id, t.id), t.shape, t.role) for t in tensors)

        inputs, outputs = rename(op.inputs), rename(op.outputs)
        sources = {again[index] if recomputed and index in again else place[index] for index in op.depends_on}
        # Statistics that were written before are written once more.
        sources |= {writers[tensor.id] for tensor in inputs if tensor.id in writers}
        writers.update({tensor.id: len(ops) for tensor in outputs})
        (again if op.phase == "forward" and recomputed else place)[op.index] = len(ops)
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
        inside = op.index >= turn and op.phase in _BACKWARD and member.get(op.index) in renamed
        renumber(op, op.name, renamed[member[op.index]] if inside else {}, recomputed=inside)
    return tuple(ops)
