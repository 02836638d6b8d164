"""Data of a training step: each writing of a storage is a value, with the op that writes it and those that read it."""

from collections.abc import Collection, Sequence

from msgspec import Struct

from presilicon.designs import StepFormats
from presilicon.records import Op, StepGraph

BEFORE = -1
"""The writer of a value that the step begins with."""


class StepValues(Struct, frozen=True, kw_only=True):
    """The values of a step by number; ops by their position in the order of execution."""

    reads: tuple[tuple[int, ...], ...]
    """The value of each input of each op."""
    writes: tuple[tuple[int, ...], ...]
    """The value of each output of each op."""
    whole: tuple[tuple[bool, ...], ...]
    """Whether each input of each op is all of its value."""
    replaced: tuple[tuple[int, ...], ...]
    """Values that an op overwrites, which must have been read before."""
    writer: tuple[int, ...]
    """Position of the op that writes a value, or `BEFORE`."""
    readers: tuple[tuple[int, ...], ...]
    """Positions of the ops that read a value."""
    size_bytes: tuple[float, ...]
    """The most bytes that an op reads or writes of it."""
    outlives: tuple[bool, ...]
    """Whether the value must be in DRAM at the end: weights, state, and results that no op of the step reads."""
    pinned: tuple[bool, ...]
    """Whether it is written in parts, so that it is taken to be in DRAM all the time."""

    def last_reader(self, value: int) -> int:
        """Position of the last op that reads a value; `BEFORE` if none does."""
        return self.readers[value][-1] if self.readers[value] else BEFORE


def find_values(graph: StepGraph, executed: Sequence[Op], formats: StepFormats) -> StepValues:
    """The values of the ops of a step.

    A write to a whole storage makes a new value. A write to a part of it changes the value that is there. The rounded
    copy of a weight is another storage than its master.
    """
    copied = {tensor.id for tensor in graph.parameters} if formats.copies_weights else set()
    permanent = {tensor.id: tensor.elements for tensor in (*graph.parameters, *graph.state)}
    walk = _Walk(copied, _whole_elements(executed) | permanent)
    for position, op in enumerate(executed):
        walk.visit(position, op, formats)
    return walk.finish(permanent.keys())


def _whole_elements(executed: Sequence[Op]) -> dict[int, int]:
    """Elements of each storage that is written: of the largest write, or read where it is written several times."""
    elements: dict[int, int] = {}
    several: set[int] = set()
    for op in executed:
        for tensor in op.outputs:
            if tensor.id in elements:
                several.add(tensor.id)
            elements[tensor.id] = max(elements.get(tensor.id, 0), tensor.elements)
    for op in executed:
        for tensor in op.inputs:
            if tensor.id in several:
                elements[tensor.id] = max(elements[tensor.id], tensor.elements)
    return elements


class _Walk:
    """The values found so far, while ops are visited in order."""

    def __init__(self, copied: set[int], elements: dict[int, int]) -> None:
        self._copied, self._elements = copied, elements
        self._current: dict[tuple[int, bool], int] = {}
        self._initial: set[tuple[int, bool]] = set()
        self._reads: list[tuple[int, ...]] = []
        self._writes: list[tuple[int, ...]] = []
        self._whole: list[tuple[bool, ...]] = []
        self._replaced: list[tuple[int, ...]] = []
        self._writer: list[int] = []
        self._readers: list[list[int]] = []
        self._size: list[float] = []
        self._pinned: list[bool] = []

    def visit(self, position: int, op: Op, formats: StepFormats) -> None:
        reads, whole, writes, replaced = [], [], [], []
        phase = op.product_phase
        for tensor in op.inputs:
            key = (tensor.id, tensor.role == "weight" and tensor.id in self._copied)
            value = self._current.get(key, -1)
            if value < 0:
                self._initial.add(key)
                value = self._new(key, BEFORE)
            self._grow(value, formats.bytes_of(tensor, op.layer, phase))
            readers = self._readers[value]
            if not readers or readers[-1] != position:
                readers.append(position)
            reads.append(value)
            whole.append(tensor.elements >= self._elements.get(tensor.id, 0))
        for tensor in op.outputs:
            key = (tensor.id, tensor.role == "weight" and tensor.id in self._copied)
            value, is_part = self._current.get(key, -1), tensor.elements < self._elements[tensor.id]
            if value >= 0 and (is_part or value in writes):
                self._pinned[value] = True
            else:
                if value >= 0:
                    replaced.append(value)
                value = self._new(key, position)
                self._pinned[value] = is_part
            self._grow(value, formats.written_bytes(tensor, op.layer))
            writes.append(value)
        self._reads.append(tuple(reads))
        self._whole.append(tuple(whole))
        self._writes.append(tuple(writes))
        self._replaced.append(tuple(replaced))

    def finish(self, permanent: Collection[int]) -> StepValues:
        last = {value: key for key, value in self._current.items()}
        outlives = []
        for value, readers in enumerate(self._readers):
            key = last.get(value)
            stays = key is not None and (key[0] in permanent or key in self._initial)
            outlives.append(self._writer[value] != BEFORE and (stays or not readers))
        return StepValues(
            reads=tuple(self._reads),
            writes=tuple(self._writes),
            whole=tuple(self._whole),
            replaced=tuple(self._replaced),
            writer=tuple(self._writer),
            readers=tuple(map(tuple, self._readers)),
            size_bytes=tuple(self._size),
            outlives=tuple(outlives),
            pinned=tuple(self._pinned),
        )

    def _new(self, key: tuple[int, bool], writer: int) -> int:
        self._current[key] = len(self._writer)
        self._writer.append(writer)
        self._readers.append([])
        self._size.append(0.0)
        self._pinned.append(False)
        return self._current[key]

    def _grow(self, value: int, size_bytes: float) -> None:
        if size_bytes > self._size[value]:
            self._size[value] = size_bytes
