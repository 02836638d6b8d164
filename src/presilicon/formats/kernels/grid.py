"""Grids: the parameters that describe a format to the rounding kernels, as float32 bit patterns.

A `Grid` is the set of float32 values that a format holds, as a rounding circuit sees it: `mantissa` bits in every
binade from `low` up, one constant step below it, and limits. Floats are grids as they are; fixed point is a grid whose
constant step reaches up to its limit; a block format is a grid that moves with each block's exponent. One mechanism
rounds all of them, on every device.
"""

import struct
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from presilicon.base import FormatError

if TYPE_CHECKING:
    from presilicon.formats.families.block import BlockFloat
    from presilicon.formats.families.mx import Mx
    from presilicon.formats.format import Format

INFINITY_BITS = 0x7F800000
LARGEST_BITS = 0x7F7FFFFF
NAN_BITS = 0x7FC00000


@dataclass(frozen=True, slots=True)
class Grid:
    """Parameters of the rounding kernels; magnitudes are float32 bit patterns without the sign."""

    mantissa: int
    """Mantissa bits kept in a full binade."""
    low: int
    """Biased float32 exponent of the lowest full binade; below, the step stays 2^(low - 127 - mantissa)."""
    tiny: int
    """Results of smaller magnitude become zero (flushed subnormals); 0 flushes nothing."""
    max_positive: int
    max_negative: int
    over_positive: int
    """Result for +infinity and for numbers that round above `max_positive`."""
    over_negative: int
    nan: int
    """Result for NaN."""
    negative_zero: int
    """1 if -0 exists; 0: a result of -0 loses its sign."""

    def words(self) -> tuple[int, ...]:
        """The fields in order, as a kernel takes them."""
        return astuple(self)


def float_bits(value: float) -> int:
    """The bit pattern of a value that float32 holds exactly.

    >>> hex(float_bits(1.5))
    '0x3fc00000'
    """
    packed = struct.pack("<f", value)
    assert struct.unpack("<f", packed)[0] == value, f"{value!r} is not a float32"
    return int.from_bytes(packed, "little")


def value_of_bits(bits: int) -> float:
    """The float32 of a bit pattern."""
    return float(struct.unpack("<f", bits.to_bytes(4, "little"))[0])


@lru_cache(maxsize=1024)
def grid_of(fmt: "Format") -> Grid:
    """The cached grid of a format that rounds each element alone.

    >>> from presilicon.formats import Float
    >>> grid_of(Float(5, 2)).low
    113

    Raises `FormatError` for a format that has no grid.
    """
    grid = fmt.grid()
    if grid is None:
        raise FormatError(f"{fmt}: this format has no rounding grid of its own")
    return grid


@dataclass(frozen=True, slots=True)
class BlockGrid:
    """Parameters of the block kernels: an element grid that is scaled by 2^k for each group."""

    grid: Grid
    emax: int
    """Exponent of the element's largest value."""
    bump: int
    """Added to the 52-bit fraction of a group's largest magnitude; the exponent then gives k + emax."""
    lowest: int
    highest: int
    """Limits of k."""
    window: int
    """Binades of k below the tensor's largest; 0: no window."""
    flush: int
    """1: groups below the window become zero; 0: they keep its lowest k."""
    poison: int
    """1: a group with NaN or an infinity is NaN; 0: infinities are the largest float32, and NaN is 0."""


@lru_cache(maxsize=1024)
def block_grid_of(fmt: "BlockFloat | Mx") -> BlockGrid:
    """The cached block grid of a format.

    >>> from presilicon.formats import BlockFloat
    >>> block_grid_of(BlockFloat(4)).emax
    0
    """
    return fmt.block_grid()
