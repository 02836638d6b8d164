"""Operands with zeros in memory: how much smaller each value of a step is in DRAM and on the chip."""

from collections.abc import Sequence
from typing import NamedTuple

from presilicon.designs import StepFormats
from presilicon.records import Op, Role, TensorRef
from presilicon.simulation.fusion.values import BEFORE, StepValues
from presilicon.simulation.sparsity.description import Sparsity


class Stored(NamedTuple):
    """Bytes of a value as it is stored over those that it has expanded."""

    in_dram: float
    on_chip: float


EXPANDED = Stored(1.0, 1.0)


class Operands(NamedTuple):
    """How both operands of a product are stored, and how many cores need each element of them."""

    left: Stored = EXPANDED
    right: Stored = EXPANDED
    copies: tuple[int, int, int] = (1, 1, 1)
    """Cores that need each element of the left and of the right operand, of which each owns a part, and cores that have
    a part of each sum."""

    @property
    def in_dram(self) -> tuple[float, float]:
        """Bytes of both that a core loads from DRAM over those that it needs, expanded."""
        return self.left.in_dram / self.copies[0], self.right.in_dram / self.copies[1]

    @property
    def on_chip(self) -> tuple[float, float]:
        """Bytes of both on the chip over those that they have expanded."""
        return self.left.on_chip, self.right.on_chip


def stored_values(ops: Sequence[Op], values: StepValues, formats: StepFormats, sparsity: Sparsity) -> dict[int, Stored]:
    """The values that are compressed: operands of products, by the densest measurement of those that read them.

    Updated weights are stored as the next step reads them. Data that no product reads is not compressed.
    """
    if sparsity.pattern is None and not any(map(sparsity.encoding_of, _ROLES)):
        return {}
    copies = formats.copies_weights
    stored: dict[int, Stored] = {}
    initial: dict[tuple[int, bool], Stored] = {}
    for position, op in enumerate(ops):
        if op.gemm is None:
            continue
        for value, tensor in zip(values.reads[position], op.inputs[:2], strict=False):
            own = _stored(tensor, op, formats, sparsity)
            stored[value] = Stored(*map(max, own, stored[value])) if value in stored else own
            if values.writer[value] == BEFORE:
                initial[tensor.id, copies and tensor.role == "weight"] = stored[value]
    for position, op in enumerate(ops):
        for value, tensor in zip(values.writes[position], op.outputs, strict=True):
            key = tensor.id, copies and tensor.role == "weight"
            if values.outlives[value] and key in initial:
                stored.setdefault(value, initial[key])
    return {value: share for value, share in stored.items() if share != EXPANDED}


_ROLES: tuple[Role, ...] = ("weight", "activation", "error")


def _stored(tensor: TensorRef, op: Op, formats: StepFormats, sparsity: Sparsity) -> Stored:
    bits = 8 * formats.bytes_of(tensor, op.layer, op.phase) / max(tensor.elements, 1)
    structured = formats.product_share(op.layer, "forward", sparsity.zeros) if sparsity.pattern else None
    share = sparsity.stored_share(tensor.role, bits, formats.density_of(tensor.role, op.layer), structured)
    on_chip = sparsity.compressed_in == "chip" or sparsity.is_packed(tensor.role)
    return Stored(share, share if on_chip else 1.0)
