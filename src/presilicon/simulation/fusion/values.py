"""Data of a training step: each writing of a storage is a value, with the op that writes it and those that read it."""

from collections.abc import Collection, Sequence

from msgspec import Struct

from presilicon.designs import StepFormats
from presilicon.records import Op, Role, StepGraph, TensorRef

BEFORE = -1
"""The writer of a value that the step begins with."""


class StepValues(Struct, frozen=True, kw_only=True):
    """The values of a step by number; ops by their position in the order of execution."""

    reads: tuple[tuple[int, ...], ...]
    """The value of each input of each op."""
    writes: tuple[tuple[int, ...], ...]
    """The value of each output of each op."""
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
        self._replaced: list[tuple[int, ...]] = []
        self._writer: list[int] = []
        self._readers: list[list[int]] = []
        self._size: list[float] = []
        self._pinned: list[bool] = []

    def visit(self, position: int, op: Op, formats: StepFormats) -> None:
        reads, writes, replaced = [], [], []
        for tensor in op.inputs:
            key = self._key(tensor.id, tensor.role)
            if key not in self._current:
                self._initial.add(key)
                self._new(key, BEFORE)
            value = self._current[key]
            self._grow(value, formats.bytes_of(tensor, op.layer, op.product_phase))
            if not self._readers[value] or self._readers[value][-1] != position:
                self._readers[value].append(position)
            reads.append(value)
        for tensor in op.outputs:
            key = self._key(tensor.id, tensor.role)
            if key in self._current and (self._is_part(tensor) or self._current[key] in writes):
                self._pinned[self._current[key]] = True
            else:
                replaced += [self._current[key]] if key in self._current else []
                self._new(key, position)
                self._pinned[self._current[key]] = self._is_part(tensor)
            self._grow(self._current[key], formats.written_bytes(tensor, op.layer))
            writes.append(self._current[key])
        self._reads.append(tuple(reads))
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
            replaced=tuple(self._replaced),
            writer=tuple(self._writer),
            readers=tuple(map(tuple, self._readers)),
            size_bytes=tuple(self._size),
            outlives=tuple(outlives),
            pinned=tuple(self._pinned),
        )

    def _key(self, storage: int, role: Role) -> tuple[int, bool]:
        return storage, role == "weight" and storage in self._copied

    def _is_part(self, tensor: TensorRef) -> bool:
        return tensor.elements < self._elements[tensor.id]

    def _new(self, key: tuple[int, bool], writer: int) -> None:
        self._current[key] = len(self._writer)
        self._writer.append(writer)
        self._readers.append([])
        self._size.append(0.0)
        self._pinned.append(False)

    def _grow(self, value: int, size_bytes: float) -> None:
        if size_bytes > self._size[value]:
            self._size[value] = size_bytes
