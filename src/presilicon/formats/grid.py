"""What the kernels need to know of a format, as float32 bit patterns.

A `Grid` is the set of float32 values that a format holds, seen by a rounding circuit: `mantissa` bits in every binade
from `low` up, one constant step below it, and limits. Floats are grids as they are; fixed point is a grid whose
constant step reaches up to its limit; a block format is a grid that moves with each block's exponent. So one mechanism
rounds them all, on every device.
"""

from dataclasses import astuple, dataclass
from functools import lru_cache

from presilicon.base.errors import FormatError
from presilicon.formats.float import Float
from presilicon.formats.format import Format

INFINITY_BITS = 0x7F800000
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
