"""Results that a compiler must compute by loops: those that are stored, and reductions, by the rules of Inductor.

Results of elementwise ops are not stored: whoever reads them computes them again from what is stored.
"""

from collections.abc import Sequence
from math import ceil, inf, prod
from typing import NamedTuple

from msgspec import Struct

from presilicon.ops import facts_of_op
from presilicon.records import Op, Role, TensorRef
from presilicon.simulation.roofline.widths import TensorWidths

_READS = 4
"""Stored tensors from which each of several readers computes a result again."""
_COLUMN, _ROW = 128, 8192
"""Elements of a column, and of a row, that are added up at once."""


class Node(Struct, frozen=True):
    """A walk through some elements."""

    op: int
    reads: dict[int, float]
    """Bytes of each value that it reads."""
    writes: dict[int, float]
    kept: int = 0
    """Results of a reduction; as many as `total` for elementwise work, 0 for a kernel that is no loop."""
    total: int = 0
    """Elements that it walks through."""
    by_columns: bool = False
    """Whether it reduces the leading axes."""
    is_part: bool = False
    """Whether it adds up parts of columns that are no slices, an order in which no elementwise work is done."""

    @property
    def reduces(self) -> bool:
        """Whether there are fewer results than elements."""
        return self.kept < self.total


class _Reduction(NamedTuple):
    results: list[int]
    """Positions among the outputs of the op; empty for statistics that are only used inside."""
    kept: int
    shape: tuple[int, ...]
    by_columns: bool


class _Use(NamedTuple):
    value: int
    tensor: TensorRef
    size_bytes: float


class Lowering:
    """The nodes of the loops of a step, in an order in which they can be computed.

    A value is what an op has written to a storage; the same storage written again is another value.

    Args:
        ops: a step.
        layouts: widths of the tensors of each op.
        fusible: whether each op becomes part of loops; others are kernels of their own.
        cores: how many cores share the work of a loop.
        channels_last: whether images lie in memory channels last.
        converted: roles of inputs of convolutions that come in another layout.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        layouts: Sequence[TensorWidths],
        fusible: Sequence[bool],
        cores: int,
        channels_last: bool,
        converted: Sequence[Role],
    ) -> None:
        self._ops, self._fusible, self._cores = ops, fusible, cores
        self._channels_last, self._converted = channels_last, converted
        self.nodes: list[Node] = []
        self._count = 0
        self._given: set[int] = set()
        """Values from before the step."""
        self._inputs: list[list[_Use]] = []
        self._outputs: list[list[int]] = []
        self._readers: dict[int, list[int]] = {}
        self._bytes: dict[int, float] = {}
        """Bytes of values, in the width in which they are read."""
        self._shapes: dict[int, tuple[int, ...]] = {}
        self._leaves: dict[int, dict[int, float]] = {}
        """Stored values from which others are computed again."""
        self._saved: dict[int, dict[int, float]] = {}
        """The same in the backward pass, where it differs."""
        self._number_values(layouts)
        for position in range(len(ops)):
            self._lower(position)

    def _number_values(self, layouts: Sequence[TensorWidths]) -> None:
        current: dict[int, int] = {}
        for position, (op, layout) in enumerate(zip(self._ops, layouts, strict=True)):
            uses = []
            for index, (tensor, bits) in enumerate(zip(op.inputs, layout.inputs, strict=True)):
                if tensor.id not in current:
                    current[tensor.id] = self._new()
                    self._given.add(current[tensor.id])
                if op.kind == "pooling" and op.phase != "forward" and index and not tensor.integer_bits:
                    continue  # the places in the windows are enough
                use = _Use(current[tensor.id], tensor, tensor.elements * bits / 8)
                uses.append(use)
                self._readers.setdefault(use.value, []).append(position)
                self._bytes[use.value] = max(self._bytes.get(use.value, 0.0), use.size_bytes)
            self._inputs.append(uses)
            self._outputs.append([self._new() for _ in op.outputs])
            current.update(zip((tensor.id for tensor in op.outputs), self._outputs[-1], strict=True))
        for op, layout, values in zip(self._ops, layouts, self._outputs, strict=True):
            for value, tensor, bits in zip(values, op.outputs, layout.outputs, strict=True):
                self._shapes[value] = tensor.shape
                self._bytes.setdefault(value, tensor.elements * bits / 8)
                if op.kind == "pooling" and tensor.integer_bits:
                    self._bytes[value] = tensor.elements  # a place in the window

    def _new(self) -> int:
        self._count += 1
        return self._count

    def _lower(self, position: int) -> None:
        op, outputs, reads = self._ops[position], self._outputs[position], self._reads(position)
        if not self._fusible[position]:
            self._lower_product(position, reads)
            return
        reduced: set[int] = set()
        statistics: dict[int, float] = {}
        for reduction in _reductions(op, self._channels_last):
            results = [outputs[index] for index in reduction.results]
            found = self._reduce(position, reads, reduction, results)
            reduced.update(results)
            if not reduction.by_columns or _is_batch_norm(op):
                statistics |= found
        if statistics:
            states = {use.value for use in self._inputs[position] if use.tensor.role == "state"}
            states |= {value for value, tensor in zip(outputs, op.outputs, strict=True) if tensor.role == "state"}
            reads = {value: size for value, size in (reads | statistics).items() if value not in states}
        added = 0
        if facts_of_op(op).captured.scatters and op.phase != "forward":
            added, zeros = op.inputs[0].elements, self._new()
            self._add_elementwise(position, {}, {zeros: self._bytes[outputs[0]]}, op.outputs[0].elements)
            reads = reads | {zeros: min(self._bytes[outputs[0]], self._bytes[self._inputs[position][0].value])}
        # Random masks come first: results are computed from them.
        for value, tensor in sorted(zip(outputs, op.outputs, strict=True), key=lambda pair: -pair[1].integer_bits):
            if value not in reduced and self._bytes[value]:
                self._compute(position, value, added or tensor.elements, reads, is_stored=added > 0)
                if op.kind == "random":
                    reads = reads | (self._leaves[value] if tensor.integer_bits else {})

    def _lower_product(self, position: int, reads: dict[int, float]) -> None:
        """Add a product, the loops that change the layout of its inputs, and the one that adds its bias."""
        op, inputs, outputs = self._ops[position], self._inputs[position], self._outputs[position]
        is_convolution = op.convolution is not None and op.phase == "forward"
        for use in inputs[:2] if is_convolution else ():
            shape = use.tensor.shape
            if use.value in self._given and use.tensor.role in self._converted and min(shape[1], prod(shape[2:])) > 1:
                self._add_elementwise(position, {use.value: use.size_bytes}, {self._new(): use.size_bytes}, prod(shape))
        if not is_convolution or len(inputs) < 3:
            self.nodes.append(Node(position, reads, dict.fromkeys(outputs, 0.0)))
            return
        product = {self._new(): self._bytes[outputs[0]]}
        self.nodes.append(Node(position, reads, product))
        biased = product | {inputs[2].value: inputs[2].size_bytes}
        self._compute(position, outputs[0], op.outputs[0].elements, biased, is_stored=False)

    def _reads(self, position: int) -> dict[int, float]:
        """Stored values that an op needs, with their bytes."""
        op = self._ops[position]
        rows = max((tensor.elements for tensor in op.inputs if tensor.integer_bits), default=0)
        most = 8.0 * rows if facts_of_op(op).captured.picks and op.phase == "forward" else inf
        reads: dict[int, float] = {}
        for value, _, size in self._inputs[position]:
            leaves = self._leaves.get(value) or {value: min(size, self._bytes[value])}
            if op.phase != "forward":
                leaves = self._saved.get(value, leaves)
            for leaf, leaf_size in leaves.items():
                reads[leaf] = max(reads.get(leaf, 0.0), min(leaf_size, most))
        return reads

    def _add_elementwise(self, op: int, reads: dict[int, float], writes: dict[int, float], elements: int) -> None:
        self.nodes.append(Node(op, reads, writes, elements, elements))

    def _reduce(
        self, position: int, reads: dict[int, float], reduction: _Reduction, results: list[int]
    ) -> dict[int, float]:
        """Add the nodes of a reduction; returns its results."""
        kept, total, by_columns = reduction.kept, prod(reduction.shape), reduction.by_columns
        written = {value: self._bytes[value] for value in results} or {self._new(): 4.0 * kept}
        parts = _parts(reduction, self._cores)
        if parts == 1:
            self.nodes.append(Node(position, reads, written, kept, total, by_columns))
            return written
        sums = {self._new(): parts * size for size in written.values()}
        shapes = [self._shapes.get(value, ()) for value in reads]
        slices = {parts * prod(shape[axis:]) for shape in shapes for axis in range(len(shape))}
        is_part = by_columns and total not in slices
        self.nodes.append(Node(position, reads, sums, kept, total, by_columns, is_part))
        if _is_batch_norm(self._ops[position]) and self._ops[position].phase == "forward":
            return self._reduce(position, sums, _Reduction([], kept, (parts, kept), True), results)
        for part, value in zip(sums, written, strict=True):
            self.nodes.append(Node(position, {part: sums[part]}, {value: written[value]}, kept, kept * parts, True))
        return written

    def _compute(self, position: int, value: int, elements: int, reads: dict[int, float], *, is_stored: bool) -> None:
        """Note how an elementwise result is computed, and store it if it must be.

        What the backward pass needs of the forward pass is stored too, unless it can be computed again from one tensor
        of that size: it is then, in the backward pass.
        """
        op, size, readers = self._ops[position], self._bytes[value], self._readers.get(value, [])
        later = [reader for reader in readers if op.phase == "forward" != self._ops[reader].phase]
        inside = [reader for reader in readers if reader not in later]
        is_stored |= not readers or any(not self._fusible[reader] for reader in readers)
        is_stored |= any(self._ops[reader].kind == "pooling" for reader in inside)
        is_stored |= len(reads) > _READS and self._uses(inside) > 1
        is_stored |= bool(later) and (op.kind in ("convolution", "pooling") or _is_random(op, size, elements))
        self._leaves[value] = {value: size} if is_stored else reads
        if is_stored:
            self._add_elementwise(position, reads, {value: size}, elements)
            if later and all(facts_of_op(self._ops[reader]).captured.reads_signs for reader in later):
                self._saved[value] = {self._new(): float(elements)}
                self._add_elementwise(position, reads, self._saved[value], elements)
        elif later:
            large = [leaf for leaf, leaf_size in reads.items() if leaf_size >= size and leaf not in self._given]
            is_repeated = len(large) < 2 and len(reads) > _READS and self._uses(later) > 1
            if len(large) > 1 or is_repeated:
                self._saved[value] = {self._new(): size}
                self._add_elementwise(later[0] if is_repeated else position, reads, self._saved[value], elements)

    def _uses(self, readers: Sequence[int]) -> int:
        """How often readers use a value: those with statistics, and most gradients, need it more than once."""
        return sum(2 if _repeats(self._ops[reader]) else 1 for reader in readers)


def _repeats(op: Op) -> bool:
    facts = facts_of_op(op)
    is_gradient = op.kind == "elementwise" and facts.is_gradient
    return facts.of_kind.has_statistics or (is_gradient and not facts.captured.reads_once)


def _is_batch_norm(op: Op) -> bool:
    return facts_of_op(op).statistics == "batch"


def _is_random(op: Op, size_bytes: float, elements: int) -> bool:
    """Whether a result consists of random numbers: a mask, of a byte for each element, or all that an op makes."""
    return op.kind == "random" and (size_bytes == elements or not op.inputs)


def _reduces(op: Op) -> bool:
    kind = facts_of_op(op).of_kind
    return kind.has_statistics or kind.style == "reduction"


def _reductions(op: Op, channels_last: bool) -> list[_Reduction]:
    """The reductions in an op."""
    if not op.outputs or not _reduces(op):
        return []
    shape = max(op.inputs + op.outputs, key=lambda tensor: tensor.elements).shape
    sizes, largest = [tensor.elements for tensor in op.outputs], prod(shape)
    small = [index for index, size in enumerate(sizes) if 0 < size < largest]
    reductions = []
    if op.kind == "softmax":
        return [_Reduction([], largest // shape[-1], shape, False)]
    if op.kind == "loss":
        rows = max((tensor.elements for tensor in op.inputs if tensor.integer_bits), default=largest)
        return [_Reduction(small, 1, (rows,), False)] if max(sizes) == 1 else []
    is_image = len(shape) > (2 if _is_batch_norm(op) else 3)  # with channels in front of pixels
    if op.kind == "reduction":
        by_columns = op.outputs[0].shape[-1:] == shape[-1:] or (is_image and channels_last)
    else:
        by_columns = channels_last or not is_image
        if op.phase == "forward":
            by_columns &= _is_batch_norm(op)
        elif not _is_batch_norm(op) and len(small) < len(sizes):
            statistics = [tensor for tensor in op.inputs if tensor.elements < largest and tensor.role != "weight"]
            rows = max((tensor.elements for tensor in statistics), default=1)
            reductions.append(_Reduction([], rows, shape, False))
    if small:
        kept = sizes[small[0]]
        reductions.append(_Reduction(small, kept, shape, by_columns and kept > 1))
    return reductions


def _parts(reduction: _Reduction, cores: int) -> int:
    """Parts of a reduction that are added up by another loop: of long columns, and of long rows where they are few."""
    length = prod(reduction.shape) // reduction.kept
    is_whole = not reduction.by_columns and reduction.kept >= 2 * cores
    return 1 if is_whole else ceil(length / (_COLUMN if reduction.by_columns else _ROW))
