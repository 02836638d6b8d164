"""Bits of every tensor that an op touches, as a framework lays them out."""

from collections.abc import Sequence
from typing import NamedTuple

from presilicon.designs import Numerics
from presilicon.records import Op, TensorRef
from presilicon.simulation.work import Formats

_FULL = ("aten.native_layer_norm", "aten.native_group_norm", "aten._softmax", "aten._log_softmax", "aten.nll_loss")
"""Operators that mixed precision runs in full precision."""


class Layout(NamedTuple):
    """Bits of the elements of an op's inputs and outputs, and the numbers that must be converted for it."""

    inputs: tuple[float, ...]
    outputs: tuple[float, ...]
    casts: tuple[tuple[int, float], ...] = ()
    """Elements, and bits read and written for each, of every conversion."""

    def size_bytes(self, op: Op, without: frozenset[int] = frozenset()) -> float:
        """Bytes read and written, leaving out some storages."""
        tensors = zip(op.inputs + op.outputs, self.inputs + self.outputs, strict=True)
        return sum(tensor.elements * bits for tensor, bits in tensors if tensor.id not in without) / 8


def lay_out_tensors(ops: Sequence[Op], numerics: Numerics, formats: Formats) -> list[Layout]:
    """The layout of each op.

    With one copy of the weights, every tensor has the bits of its role. With rounded weights beside master weights the
    step runs in mixed precision, by the rules of torch.autocast: products take and make the narrow format,
    layer and group normalization, softmax and losses the wide one; what meets is promoted; gradients of weights are
    converted for the optimizer.
    """
    if not formats.copies_weights:
        return [Layout(_bits(op.inputs, op, formats), _bits(op.outputs, op, formats)) for op in ops]
    narrow = numerics.activation.bits_per_element
    wide = numerics.master.bits_per_element
    width: dict[int, float] = {}
    return [_mixed(op, width, narrow, wide) for op in ops]


def _bits(tensors: Sequence[TensorRef], op: Op, formats: Formats) -> tuple[float, ...]:
    return tuple(8 * formats.bytes_of(tensor, op.layer) / max(tensor.elements, 1) for tensor in tensors)


def _mixed(op: Op, width: dict[int, float], narrow: float, wide: float) -> Layout:
    given = tuple(width.get(tensor.id, wide) for tensor in op.inputs)
    casts: list[tuple[int, float]] = []
    if op.gemm:
        for tensor, bits in zip(op.inputs, given, strict=True):
            # The rounding of weights is an op of its own, after the update.
            if bits != narrow and tensor.role not in ("weight", "gradient"):
                casts.append((tensor.elements, bits + narrow))
        inputs, made = tuple(narrow for _ in given), narrow
        casts += [(tensor.elements, narrow + wide) for tensor in op.outputs if tensor.role == "gradient"]
    elif op.phase == "update":
        return Layout(
            tuple(wide for _ in op.inputs), tuple(narrow if tensor.role == "weight" else wide for tensor in op.outputs)
        )
    elif op.operator.startswith(_FULL):
        casts += [(tensor.elements, bits + wide) for tensor, bits in zip(op.inputs, given, strict=True) if bits != wide]
        inputs, made = tuple(wide for _ in given), wide
    else:
        large = [bits for tensor, bits in zip(op.inputs, given, strict=True) if tensor.elements > 1]
        inputs, made = given, max(large, default=wide)
        if op.kind == "normalization":
            made = given[0]
    for tensor in op.outputs:
        width[tensor.id] = wide if tensor.role == "gradient" else made
    return Layout(inputs, tuple(made for _ in op.outputs), tuple(casts))
