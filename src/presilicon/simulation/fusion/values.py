"""Data of a training step: each writing of a storage is a value, with the op that writes it and those that read it."""

from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from presilicon.designs import StepFormats
from presilicon.records import Op, Phase, Role, StepGraph, TensorRef
from presilicon.simulation.recent import Recent

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
    size_bytes: tuple[float, ...] = ()
    """The most bytes that an op reads or writes of it."""
    read_bytes: tuple[tuple[float, ...], ...] = ()
    """Bytes of each input of each op; of a product's, in the formats of its operands."""
    written_bytes: tuple[tuple[float, ...], ...] = ()
    """Bytes of each output of each op."""
    outlives: tuple[bool, ...]
    """Whether the value must be in DRAM at the end: weights, state, and results that no op of the step reads."""
    pinned: tuple[bool, ...]
    """Whether it is written in parts, so that it is taken to be in DRAM all the time."""

    def last_reader(self, value: int) -> int:
        """Position of the last op that reads a value; `BEFORE` if none does."""
        return self.readers[value][-1] if self.readers[value] else BEFORE


def find_values(
    graph: StepGraph, executed: tuple[Op, ...], formats: StepFormats, whole: tuple[Op, ...] | None = None
) -> StepValues:
    """The values of the ops of a step.

    A write to a whole storage makes a new value. A write to a part of it changes the value that is there. The rounded
    copy of a weight is another storage than its master. `whole` are the ops of which `executed` are shares: what is
    whole and what a part is decided by them.
    """
    copied = formats.copies_weights
    values = _STRUCTURES.find(whole or executed, copied, lambda: _find_structure(graph, whole or executed, copied))
    tables = _TABLES.find(executed, "", lambda: _Tables(executed))
    read, written = tables.bytes(formats)
    sizes = [0.0] * len(values.writer)
    for numbers, moved in zip((*values.reads, *values.writes), (*read, *written), strict=True):
        for value, size in zip(numbers, moved, strict=True):
            if size > sizes[value]:
                sizes[value] = size
    return replace(values, size_bytes=tuple(sizes), read_bytes=read, written_bytes=written)


class _Tables:
    """Elements of each tensor of each op, and a number for the layer, role and phase that decide about its format."""

    def __init__(self, ops: Sequence[Op]) -> None:
        keys: dict[tuple[str, Role, Phase | None], int] = {}

        def table(tensors: Sequence[TensorRef], layer: str, phase: Phase | None) -> tuple[tuple[int, int, int], ...]:
            return tuple(
                (tensor.elements, keys.setdefault((layer, tensor.role, phase), len(keys)), tensor.id)
                for tensor in tensors
            )

        self._inputs = [table(op.inputs, op.layer, op.product_phase) for op in ops]
        self._outputs = [table(op.outputs, op.layer, None) for op in ops]
        self._keys = list(keys)

    def bytes(self, formats: StepFormats) -> tuple[tuple[tuple[float, ...], ...], tuple[tuple[float, ...], ...]]:
        """Bytes of the inputs and outputs of each op."""
        size = [formats.bits_of(*key) / 8 for key in self._keys]
        copies = formats.copied_bits
        read = tuple([tuple([elements * size[key] for elements, key, _ in own]) for own in self._inputs])
        if not copies:
            return read, tuple([tuple([elements * size[key] for elements, key, _ in own]) for own in self._outputs])
        written = tuple(
            tuple(
                elements * (copies[storage] / 8 if storage in copies else size[key]) for elements, key, storage in own
            )
            for own in self._outputs
        )
        return read, written


_STRUCTURES = Recent[StepValues](32)
_TABLES = Recent[_Tables](32)


def _find_structure(graph: StepGraph, ops: Sequence[Op], copies_weights: bool) -> StepValues:
    """The values without their sizes."""
    copied = {tensor.id for tensor in graph.parameters} if copies_weights else set()
    permanent = {tensor.id: tensor.elements for tensor in (*graph.parameters, *graph.state)}
    walk = _Walk(copied, _whole_elements(ops) | permanent)
    for position, op in enumerate(ops):
        walk.visit(position, op)
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
        self._pinned: list[bool] = []

    def visit(self, position: int, op: Op) -> None:
        reads, whole, writes, replaced = [], [], [], []
        for tensor in op.inputs:
            key = (tensor.id, tensor.role == "weight" and tensor.id in self._copied)
            value = self._current.get(key, -1)
            if value < 0:
                self._initial.add(key)
                value = self._new(key, BEFORE)
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
            outlives=tuple(outlives),
            pinned=tuple(self._pinned),
        )

    def _new(self, key: tuple[int, bool], writer: int) -> int:
        self._current[key] = len(self._writer)
        self._writer.append(writer)
        self._readers.append([])
        self._pinned.append(False)
        return self._current[key]
