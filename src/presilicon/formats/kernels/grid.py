"""Grids: the parameters that describe a format to the rounding kernels, as float32 bit patterns.

A `Grid` is the set of float32 values that a format holds, as a rounding circuit sees it: `mantissa` bits in every
binade from `low` up, one constant step below it, and limits. Floats are grids as they are; fixed point is a grid whose
constant step reaches up to its limit; a block format is a grid that moves with each block's exponent. One mechanism
rounds all of them, on every device. A core is a way to do it; `core_for` chooses the fastest that is exact for a grid
and a mode.
"""

import struct
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from presilicon.base import FormatError
from presilicon.formats.rounding import Mode, Stochastic

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


NEAREST_EVEN, NEAREST_AWAY, TOWARD_ZERO, UP, DOWN, COUNTER, LFSR = range(7)
_MODES = ("nearest-even", "nearest-away", "toward-zero", "up", "down", "counter", "lfsr")
"""Rounding modes, with the sources of random ones, in the order of their ids."""
GENERAL, LIFTED, LEVEL, FLAT, SPLIT = range(5)


def mode_number(mode: Mode) -> int:
    """The kernels' id of a rounding mode."""
    return _MODES.index(mode.source if isinstance(mode, Stochastic) else mode)


def core_for(grid: Grid, mode: int) -> int:
    """The fastest core that is exact for a grid and a mode."""
    top = max(grid.max_positive, grid.max_negative) >> 23
    random = mode in (COUNTER, LFSR)
    if not (random or mode == NEAREST_EVEN) or grid.mantissa == 0:
        return GENERAL
    if grid.low <= 1:
        return GENERAL if random and grid.mantissa == 23 else FLAT
    level = top < grid.low
    if grid.low < grid.mantissa + 25 or top + 23 - grid.mantissa > 254 or (grid.mantissa == 23 and not level):
        return GENERAL
    if random and grid.mantissa <= 7:
        return SPLIT
    return LEVEL if level else LIFTED


def fast_scales(block: BlockGrid, core: int) -> tuple[int, int]:
    """The first and last scale exponent at which the moved grid still has limits that are normal numbers."""
    grid = block.grid
    top, bottom = (choose(grid.max_positive, grid.max_negative) >> 23 for choose in (max, min))
    first = max((1 if core == GENERAL else grid.mantissa + 25) - grid.low, 1 - bottom)
    reach = max(top, grid.low) if core == LEVEL else top
    return first, min(231 + grid.mantissa - reach, 254 - grid.low, 126 - block.emax)


def is_plain(grid: Grid) -> bool:
    """Whether the limits are the same for both signs and -0 and subnormals exist, as in most floats."""
    sides = (grid.max_positive, grid.over_positive) == (grid.max_negative, grid.over_negative)
    return sides and grid.tiny == 0 and bool(grid.negative_zero)
