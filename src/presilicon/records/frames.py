"""The cells of an array, cycle by cycle: what a page plays."""

from msgspec import Struct
from msgspec.structs import replace

from presilicon.base import DOCUMENT_SCHEMA

Values = tuple[tuple[float, ...], ...]
"""One number for each cell, by row and column, or a matrix."""


class CellFrame(Struct, frozen=True, kw_only=True):
    """The registers of all cells after one cycle."""

    cycle: int
    """From 0."""
    registers: dict[str, Values]
    """By name: `stationary`, `loading`, `moving` and `sum` where an operand stays, or `right`, `down`, `sum` and
    `leaving` where sums do."""
    out: tuple[tuple[int, int, float], ...] = ()
    """Values that left the array in this cycle: row and column of the result that each is added to, and the value.
    Lanes that a ragged fold leaves idle give values outside the result."""

    def transposed(self) -> "CellFrame":
        """The same frame of a product whose result is the transpose."""
        return replace(self, out=tuple((j, i, value) for i, j, value in self.out))


class ArrayFrames(Struct, frozen=True, kw_only=True):
    """A small matrix product on a small array, cycle by cycle."""

    schema: int = DOCUMENT_SCHEMA
    rows: int
    cols: int
    dataflow: str
    reduction: str
    fold_overlap: bool
    a: Values
    b: Values
    result: Values
    """A B, as the array computed it."""
    cycles: int
    frames: tuple[CellFrame, ...]
