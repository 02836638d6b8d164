"""Bits of every tensor that an op touches, as a framework lays them out."""

from collections.abc import Sequence
from typing import NamedTuple

from presilicon.designs import Numerics, StepFormats
from presilicon.records import Op, TensorRef

_FULL = ("aten.native_layer_norm", "aten.native_group_norm", "aten._softmax", "aten._log_softmax", "aten.nll_loss")
"""Operators that mixed precision runs in full precision."""


class Layout(NamedTuple):
    """Bits of the elements of an op's inputs and outputs, and the numbers that must be converted for it."""

    inputs: tuple[float, ...]
    outputs: tuple[float, ...]
    casts: tuple[tuple[int, float], ...] = ()
    """Elements, and bits read and written for each, of every conversion."""

    def main_bits(self, op: Op) -> float:
        """Bits of the elements of the largest tensor, which decide how fast a kernel moves data."""
        tensors = zip(op.inputs + op.outputs, self.inputs + self.outputs, strict=True)
        return max(((tensor.elements, bits) for tensor, bits in tensors), default=(0, 32.0))[1]

    def size_bytes(self, op: Op, without: frozenset[int] = frozenset()) -> float:
        """Bytes read and written, leaving out some storages."""
        tensors = zip(op.inputs + op.outputs, self.inputs + self.outputs, strict=True)
        return sum(tensor.elements * bits for tensor, bits in tensors if tensor.id not in without) / 8


def lay_out_tensors(ops: Sequence[Op], numerics: Numerics, formats: StepFormats) -> list[Layout]:
    """The layout of each op.

    With one copy of the weights, every tensor has the bits of its role. With rounded weights beside master weights the
    step runs in mixed precision, by the rules of torch.autocast: products read and write the narrow format, layer and
    group normalization, softmax and losses the wide one; mixed inputs are promoted; gradients of weights are converted
    for the optimizer.
    """
    if not formats.copies_weights:
        return [Layout(_bits(op.inputs, op, formats), _bits(op.outputs, op, formats)) for op in ops]
    narrow = numerics.activation.bits_per_element
    wide = numerics.master.bits_per_element
    mixed = _Mixed(narrow, wide)
    return [mixed.layout(op) for op in ops]


def _bits(tensors: Sequence[TensorRef], op: Op, formats: StepFormats) -> tuple[float, ...]:
    return tuple(
        8 * formats.bytes_of(tensor, op.layer, op.product_phase) / max(tensor.elements, 1) for tensor in tensors
    )


class _Mixed:
    """Follows a step in mixed precision, op by op."""

    def __init__(self, narrow: float, wide: float) -> None:
        self._narrow, self._wide = narrow, wide
        self._width: dict[int, float] = {}
        self._converted: set[int] = set()
        """Storages that have a narrow copy; the backward pass uses that of the forward pass."""
        self._narrowed: set[str] = set()
        self._widened: set[str] = set()
        """Layers whose input was converted to the narrow or to the wide format in the forward pass: the error that they
        hand back is converted the other way."""

    def layout(self, op: Op) -> Layout:
        """The layout of the next op."""
        input_bits = tuple(self._width.get(tensor.id, self._wide) for tensor in op.inputs)
        if op.phase == "update":
            outputs = tuple(self._narrow if tensor.role == "weight" else self._wide for tensor in op.outputs)
            return Layout(tuple(self._wide for _ in op.inputs), outputs)
        if op.gemm:
            return self._product(op, input_bits)
        if op.operator.startswith(_FULL):
            casts, output_bits = self._full(op, input_bits)
            input_bits = tuple(self._wide for _ in input_bits)
            self._note(op, output_bits)
            return Layout(input_bits, tuple(self._wide for _ in op.outputs), casts)
        if op.kind == "normalization":
            output_bits = input_bits[0]
        else:
            pairs = zip(op.inputs, input_bits, strict=True)
            output_bits = max((bits for tensor, bits in pairs if tensor.elements > 1), default=self._wide)
        self._note(op, output_bits)
        return Layout(input_bits, tuple(output_bits for _ in op.outputs))

    def _full(self, op: Op, input_bits: tuple[float, ...]) -> tuple[tuple[tuple[int, float], ...], float]:
        """Conversions around an op in full precision, and the bits of its results for later ops."""
        if op.phase == "forward":
            pairs = zip(op.inputs, input_bits, strict=True)
            casts = tuple((tensor.elements, bits + self._wide) for tensor, bits in pairs if bits != self._wide)
            if casts:
                self._widened.add(op.layer)
            return casts, self._wide
        if op.phase == "input_grad" and op.layer in self._widened:
            return tuple((tensor.elements, self._narrow + self._wide) for tensor in op.outputs), self._narrow
        return (), self._wide

    def _product(self, op: Op, input_bits: tuple[float, ...]) -> Layout:
        casts = []
        for tensor, bits in zip(op.inputs, input_bits, strict=True):
            # The rounding of weights is an op of its own, after the update.
            if bits == self._narrow or tensor.role in ("weight", "gradient") or tensor.id in self._converted:
                continue
            casts.append((tensor.elements, bits + self._narrow))
            self._converted.add(tensor.id)
            if op.phase == "forward":
                self._narrowed.add(op.layer)
        handed_back = op.phase == "input_grad" and op.layer in self._narrowed
        for tensor in op.outputs:
            if tensor.role == "gradient" or handed_back:
                casts.append((tensor.elements, self._narrow + self._wide))
        self._note(op, self._wide if handed_back else self._narrow)
        return Layout(tuple(self._narrow for _ in input_bits), tuple(self._narrow for _ in op.outputs), tuple(casts))

    def _note(self, op: Op, bits: float) -> None:
        for tensor in op.outputs:
            self._width[tensor.id] = self._wide if tensor.role == "gradient" else bits
            self._converted.discard(tensor.id)
