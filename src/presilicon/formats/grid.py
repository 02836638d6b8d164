"""What the kernels need to know of a format, as float32 bit patterns.

A `Grid` is the set of float32 values that a format holds, seen by a rounding circuit: `mantissa` bits in every binade
from `low` up, one constant step below it, and limits. Floats are grids as they are; fixed point is a grid whose
constant step reaches up to its limit; a block format is a grid that moves with each block's exponent. So one mechanism
rounds them all, on every device.
"""

from dataclasses import astuple, dataclass, replace
from functools import lru_cache

from presilicon.base.errors import FormatError
from presilicon.formats.block import BlockFloat, Mx
from presilicon.formats.fixed import Fixed
from presilicon.formats.float import Float
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
    """What rounds above `max_positive`, and +infinity, become."""
    over_negative: int
    nan: int
    """What NaN becomes."""
    negative_zero: int
    """1 where -0 exists, else 0: a negative zero result loses its sign."""

    def words(self) -> tuple[int, ...]:
        """The fields in order, as a kernel takes them."""
        return astuple(self)


def float_bits(value: float) -> int:
    """The bit pattern of a value that float32 holds exactly.

    >>> hex(float_bits(1.5))
    '0x3fc00000'
    """
    import struct

    packed = struct.pack("<f", value)
    assert struct.unpack("<f", packed)[0] == value, f"{value!r} is not a float32"
    return int.from_bytes(packed, "little")


@lru_cache(maxsize=1024)
def grid_of(fmt: Format) -> Grid:
    """The grid of a format that rounds each element alone.

    >>> grid_of(Float(5, 2)).low
    113

    Raises `FormatError` for formats that are no grid.
    """
    match fmt:
        case Float():
            return _float_grid(fmt)
        case Fixed():
            return _fixed_grid(fmt)
        case _:
            raise FormatError(f"{fmt}: this format has no rounding grid of its own")


def _float_grid(fmt: Float) -> Grid:
    top = float_bits(fmt.max)
    over = {"infinity": INFINITY_BITS, "nan": NAN_BITS, "saturate": top}[str(fmt.overflow)]
    nan = NAN_BITS if fmt.has_nan else {"zero": 0, "max": top}[fmt.nan]
    return Grid(
        mantissa=fmt.mantissa,
        low=fmt.min_exponent + 127,
        tiny=0 if fmt.subnormals else float_bits(fmt.min_normal),
        max_positive=top,
        max_negative=top,
        over_positive=over,
        over_negative=over,
        nan=nan,
        negative_zero=int(fmt.has_negative_zero),
    )


def _fixed_grid(fmt: Fixed) -> Grid:
    """Mantissa bits for one binade more than the values need, so that the step is the same for all of them.

    A format that wraps is rounded without limit; `wrap` follows.
    """
    wraps = fmt.overflow == "wrap"
    mantissa = 23 if wraps else min(23, fmt.bits - int(fmt.signed) + 1)
    positive = LARGEST_BITS if wraps else float_bits(fmt.max)
    negative = LARGEST_BITS if wraps else float_bits(abs(fmt.min))
    return Grid(
        mantissa=mantissa,
        low=127 + mantissa - fmt.fraction,
        tiny=0,
        max_positive=positive,
        max_negative=negative,
        over_positive=0 if wraps else positive,
        over_negative=0 if wraps else negative,
        nan=0,
        negative_zero=0,
    )


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
def block_grid_of(fmt: BlockFloat | Mx) -> BlockGrid:
    """The block grid of a format.

    >>> block_grid_of(BlockFloat(4)).emax
    0
    """
    if isinstance(fmt, BlockFloat):
        return _block_float_grid(fmt)
    element = fmt.element
    if isinstance(element, Float):
        element = replace(element, overflow="saturate")
    fraction = float_bits(element.max) & 0x7FFFFF
    emax = (float_bits(element.max) >> 23) - 127
    bump = {
        "floor": 0,
        "ceil": (1 << 52) - 1,
        "even": 1 << (52 - element.significand_bits + int(isinstance(element, Fixed))),
        "rceil": (1 << 52) - 1 - (fraction << 29),
    }[fmt.scale]
    return BlockGrid(grid_of(element), emax, bump, -127, 127, window=0, flush=0, poison=1)


def _block_float_grid(fmt: BlockFloat) -> BlockGrid:
    largest = float_bits(2.0 - 2.0 ** (1 - fmt.mantissa))
    grid = Grid(fmt.mantissa, 128, 0, largest, largest, largest, largest, 0, 1)
    span = (1 << fmt.exponent) - 1
    flush = int(fmt.below == "flush")
    if fmt.top is not None:
        return BlockGrid(grid, 0, 0, max(-126, fmt.top - span), fmt.top, 0, flush, poison=0)
    return BlockGrid(grid, 0, 0, -126, 127, span if fmt.exponent < 8 else 0, flush, poison=0)
