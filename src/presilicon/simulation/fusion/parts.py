"""Part of an op in a group: how it takes the tiles of other ops, and what a product holds while they stream through."""

from math import prod
from typing import Literal

from msgspec import Struct

from presilicon.ops import facts_of_op
from presilicon.records import Op, TensorRef

Style = Literal["map", "rows", "samples", "sum", "norm", "product", "alone"]
"""`map`: a piece of the result needs the same piece of the inputs. `rows` and `samples`: the same with whole rows
(softmax, layer normalization, sums along rows) or samples (pooling, group normalization). `sum`: takes pieces as they
come, its result is there at the end (reductions, losses). `norm`: batch normalization, a sum and then a map. `alone`:
not known to stream."""


def style_of(op: Op) -> Style:
    """The style of an op, as its entry says, and by its sizes.

    Copies to another layout are maps: a tile is reordered while it is written. A softmax is over rows, whichever axis
    was meant. Gathers read their table in any order; what is written in any order is on its own.
    """
    if op.gemm is not None:
        return "product"
    if op.fixed_statistics:
        return "map"
    style = facts_of_op(op).style
    if style != "reduction":
        return "alone" if style == "product" else style
    largest = max((tensor.elements for tensor in op.inputs), default=0)
    if any(tensor.elements >= largest for tensor in op.outputs):
        return "map"
    return "rows" if _is_along_rows(op) else "sum"


def reads_table(op: Op) -> bool:
    """Whether an op reads its first input in any order, of which each piece of its result may need any part."""
    return facts_of_op(op).captured.reads_table


def unit_elements(op: Op) -> int:
    """Elements of a row or a sample that a normalization or softmax needs before it has any of its result."""
    facts = facts_of_op(op)
    if not facts.of_kind.has_statistics or op.fixed_statistics or style_of(op) not in ("rows", "samples"):
        return 0
    largest = max(op.inputs, key=lambda tensor: tensor.elements)
    if style_of(op) == "samples":
        return largest.elements // max(largest.shape[0], 1)
    if facts.statistics == "rows":  # one mean, or root, of each row
        tensors = op.inputs[2:] if op.phase != "forward" else op.outputs[1:]
        return largest.elements // max(tensors[0].elements if tensors else 1, 1)
    return largest.shape[-1] if largest.shape else 1


def _is_along_rows(op: Op) -> bool:
    """Whether a reduction makes one number of each row, as the mean of an RMS normalization does."""
    rows = max((tensor.shape for tensor in op.inputs), key=prod, default=())[:-1]
    return len(rows) > 0 and all(tensor.shape in (rows, (*rows, 1)) for tensor in op.outputs)


def aligned_inputs(op: Op) -> tuple[bool, ...]:
    """Whether each input is cut into pieces as the op's largest tensor is; what is spread over all pieces is not.

    Nor is a table that is read in any order.
    """
    elements, rows = max((tensor.elements, tensor.shape[:1]) for tensor in (*op.inputs, *op.outputs, _NOTHING))
    aligned = tuple(tensor.shape[:1] == rows or tensor.elements == elements for tensor in op.inputs)
    return (False, *aligned[1:]) if reads_table(op) else aligned


_NOTHING = TensorRef(-1, (0,), "activation")


class ProductPart(Struct, frozen=True, kw_only=True, gc=False):
    """A matrix product as groups see it.

    On its own it is tiled. In a group of several it runs slice by slice along the rows of the streaming operand: the
    other operand (or the sums, where the rows are what it adds over) is held for as long as the group runs.
    """

    tile_bytes: float
    """Tiles in use and being filled, when it is tiled."""
    whole_rows: bool
    """Whether a tile of the result has whole rows."""
    streaming: tuple[bool, bool]
    """Whether the first and the second operand are cut into slices."""
    sums_slices: bool
    """Whether slices are added up (weight gradients), so that the result is there at the end."""
    held_bytes: float
    slice_bytes: tuple[float, float, float]
    """Both operands and the result of all slices together; zero for what is held."""
    lines: int
    """Parts into which a sample can be cut: lines of an image, positions of a sequence."""
    halo_bytes: float
    """Lines of images that stay in the buffer between two slices of a sample, for the next windows of a convolution."""
    refill_cycles: float
    """Cycles that each further slice takes for filling and draining the array."""
    read_bytes: tuple[float, float]
    """Both operands, each element that is used read once."""
