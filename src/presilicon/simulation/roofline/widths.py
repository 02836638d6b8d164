"""Bits of every tensor that an op touches, as a framework lays them out."""

from collections.abc import Sequence
from typing import NamedTuple

from presilicon.designs import Numerics, StepFormats
from presilicon.ops import facts_of_op
from presilicon.records import Op, TensorRef
from presilicon.simulation.roofline.attention import find_attention


class TensorWidths(NamedTuple):
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


def lay_out_tensors(ops: Sequence[Op], formats: StepFormats) -> list[TensorWidths]:
    """The layout of each op.

    With one copy of the weights, every tensor has the bits of its role. With rounded weights beside master weights the
    step runs in mixed precision, by the rules of torch.autocast on a GPU.
    """
    if not formats.copies_weights:
        return [TensorWidths(_bits(op.inputs, op, formats), _bits(op.outputs, op, formats)) for op in ops]
    mixed = _Mixed(ops, formats.numerics_of(""))
    return [mixed.layout(op) for op in ops]


def _bits(tensors: Sequence[TensorRef], op: Op, formats: StepFormats) -> tuple[float, ...]:
    return tuple(
        tensor.integer_bits or 8 * formats.bytes_of(tensor, op.layer, op.product_phase) / max(tensor.elements, 1)
        for tensor in tensors
    )


class _Forward(NamedTuple):
    """Widths of a forward op, which decide those of its gradient."""

    result: float
    operands: float | None
    """Width to which all of its operands were converted, as they are saved for the backward pass; None if they stay."""
    inputs: dict[int, set[float]]
    """Widths before that, by the number of elements."""


class _Mixed:
    """Follows a step in mixed precision, op by op.

    Products convert their operands to the narrow format, listed operators to the wide one, others promote. Weights of
    products are rounded once per step, by an op of its own; other operands at each use. An error has the width of the
    tensor whose error it is: where a gradient was computed in another width, it is converted for the next op.
    """

    def __init__(self, ops: Sequence[Op], numerics: Numerics) -> None:
        self._narrow, self._wide = numerics.activation.bits_per_element, numerics.master.bits_per_element
        # Torch's softmax reads float16 and writes float32 in one kernel, which it has for no other pair.
        self._fuses_softmax = str(numerics.activation.format) == "float16"
        self._width: dict[int, float] = {}
        self._origin: dict[int, str] = {}
        """The forward op in whose gradient each error was computed."""
        self._forward: dict[str, _Forward] = {}
        self._converted: set[tuple[int, float]] = set()
        """Errors that have a copy of a width."""
        self._inner = _inner_results(ops)
        self._rounded = _rounded(ops)
        self._narrowed = _narrowed(ops)
        factors = {tensor.id for op in ops if op.name in self._narrowed for tensor in op.inputs}
        self._factors = self._rounded & factors

    def layout(self, op: Op) -> TensorWidths:
        """The layout of the next op."""
        if op.operator == "presilicon.round":
            used = [tensor.id in self._factors for tensor in op.outputs]
            return TensorWidths(tuple(self._wide * use for use in used), tuple(self._narrow * use for use in used))
        if op.phase == "update":
            return TensorWidths(tuple(self._wide for _ in op.inputs), tuple(self._wide for _ in op.outputs))
        return self._forward_layout(op) if op.phase == "forward" else self._backward_layout(op)

    def _forward_layout(self, op: Op) -> TensorWidths:
        bits = [self._bits(tensor) for tensor in op.inputs]
        facts = facts_of_op(op)
        operands = self._narrow if op.name in self._narrowed else self._wide if facts.width == "float32" else None
        result = operands or (self._wide if facts.width == "float32-result" else self._promoted(op, bits))
        casts = []
        inputs: dict[int, set[float]] = {}
        for position, tensor in enumerate(op.inputs):
            if not tensor.integer_bits and tensor.id not in self._factors:
                inputs.setdefault(tensor.elements, set()).add(bits[position])
            if operands is None or tensor.integer_bits:
                continue
            is_fused = op.kind == "softmax" and self._fuses_softmax
            if bits[position] != operands and not is_fused and tensor.id not in self._factors:
                casts.append((tensor.elements, bits[position] + operands))
            bits[position] = operands if not is_fused else bits[position]
        self._forward[op.name] = _Forward(result, operands, inputs)
        return TensorWidths(tuple(bits), self._write(op, result), tuple(casts))

    def _backward_layout(self, op: Op) -> TensorWidths:
        forward = self._forward.get(op.differentiates)
        if forward is None and op.gemm:
            forward = _Forward(self._narrow, self._narrow, {})
        bits, casts = [], []
        for tensor in op.inputs:
            width = self._bits(tensor)
            if forward is not None and not tensor.integer_bits:
                if self._origin.get(tensor.id, op.differentiates) == op.differentiates:
                    width = forward.operands or width
                elif width != forward.result:
                    if tensor.elements > 1 and (tensor.id, forward.result) not in self._converted:
                        casts.append((tensor.elements, width + forward.result))
                    self._converted.add((tensor.id, forward.result))
                    width = forward.result
            bits.append(width)
        result = (forward.operands if forward else None) or self._promoted(op, bits)
        if op.kind == "normalization" and forward is not None:
            result = forward.operands or forward.result
        written = self._write(op, result)
        for tensor in op.outputs:
            casts += self._hand_over(op, tensor, forward, result)
        return TensorWidths(tuple(bits), written, tuple(casts))

    def _hand_over(self, op: Op, tensor: TensorRef, forward: _Forward | None, result: float) -> list[tuple[int, float]]:
        """The conversion of a gradient for the optimizer, or of an error to the width of its tensor."""
        self._converted -= {(tensor.id, self._narrow), (tensor.id, self._wide)}
        if tensor.role == "gradient":
            is_narrow = result == self._narrow and op.kind != "normalization"
            return [(tensor.elements, self._narrow + self._wide)] if is_narrow else []
        self._origin[tensor.id] = op.differentiates
        widths = forward.inputs.get(tensor.elements, set()) if forward else set()
        if len(widths) != 1 or widths == {result} or (op.name, tensor.id) in self._inner:
            return []
        self._width[tensor.id] = next(iter(widths))
        return [(tensor.elements, result + self._width[tensor.id])]

    def _bits(self, tensor: TensorRef) -> float:
        return tensor.integer_bits or self._width.get(tensor.id, self._wide)

    def _promoted(self, op: Op, bits: Sequence[float]) -> float:
        """Width of the result of an op that takes its inputs as they are."""
        if op.kind == "normalization" or any(tensor.id == op.inputs[0].id for tensor in op.outputs if op.inputs):
            return bits[0]
        floats = [pair for pair in zip(op.inputs, bits, strict=True) if pair[0].elements and not pair[0].integer_bits]
        if not floats:
            # Random masks have the width of what they mask, and promote nothing.
            return self._narrow if op.kind == "random" else self._wide
        # A tensor without dimensions promotes no other.
        return max((bool(tensor.shape), width) for tensor, width in floats)[1]

    def _write(self, op: Op, result: float) -> tuple[float, ...]:
        """Note the width of the results; those of a gradient of weights are converted for the optimizer."""
        for tensor in op.outputs:
            self._width[tensor.id] = self._wide if tensor.role == "gradient" else result
        is_direct = op.kind == "normalization"
        return tuple(
            tensor.integer_bits or (self._wide if is_direct and tensor.role == "gradient" else result)
            for tensor in op.outputs
        )


def _rounded(ops: Sequence[Op]) -> set[int]:
    """Weights that have a narrow copy: those that the step rounds, or all of them in a step without an update."""
    if not any(op.phase == "update" for op in ops):
        return {tensor.id for op in ops for tensor in op.inputs if tensor.role == "weight"}
    return {tensor.id for op in ops if op.operator == "presilicon.round" for tensor in op.outputs}


def _narrowed(ops: Sequence[Op]) -> set[str]:
    """Names of the forward ops that compute in the narrow format: products, the rest of scaled dot-product attention,
    and the addition of a bias that a linear layer makes where its input is not contiguous."""
    attention = find_attention(ops)
    fused = attention.products | attention.absorbed
    products: dict[int, str] = {}
    names: set[str] = set()
    for op in ops:
        if op.phase != "forward":
            continue
        adds_bias = _adds_bias(op) and [tensor.role for tensor in op.inputs[1:]] == ["weight"]
        adds_bias = adds_bias and products.get(op.inputs[0].id) == op.layer and len(op.inputs[1].shape) == 1
        if op.gemm or op.index in fused or adds_bias or facts_of_op(op).width == "narrow":
            names.add(op.name)
        products.update({tensor.id: op.layer for tensor in op.outputs if op.gemm and len(op.inputs) == 2})
    return names


def _adds_bias(op: Op) -> bool:
    facts = facts_of_op(op)
    return facts.captured.adds_bias and not facts.is_in_place


def _inner_results(ops: Sequence[Op]) -> set[tuple[str, int]]:
    """Ops, and storages that they write, whose results are read by the gradient of the same forward op."""
    readers: dict[int, str] = {}
    inner: set[tuple[str, int]] = set()
    for op in reversed(ops):
        if op.differentiates:
            inner |= {(op.name, tensor.id) for tensor in op.outputs if readers.get(tensor.id) == op.differentiates}
        readers.update({tensor.id: op.differentiates for tensor in op.inputs})
    return inner
