"""Formats that are lists of values: logarithmic numbers, and tables that a user writes."""

import math
from dataclasses import dataclass
from typing import ClassVar

from presilicon.formats.format import Format, require, require_integer


@dataclass(frozen=True, slots=True)
class Logarithmic(Format):
    """A sign and a base-2 logarithm in two's complement: `integer` bits, sign included, and `fraction` bits.

    The values are 2^(k / 2^fraction), rounded to float32; the smallest k is the code of 0. Nearest rounding is nearest
    in the logarithm, as a converter of this hardware does it; magnitudes below half of the smallest (in the logarithm)
    become 0. Infinities saturate, NaN becomes 0; a 0 with the sign bit set reads as 0.

    >>> lns = Logarithmic(5, 3)
    >>> lns.bits, lns.bits_per_element
    (9, 9.0)
    """

    kind: ClassVar[str] = "lns"

    integer: int
    fraction: int

    def __post_init__(self) -> None:
        name = f"lns({self.integer}, {self.fraction})"
        require_integer(name, "integer", self.integer, 2, 7)
        require_integer(name, "fraction", self.fraction, 0, 12)
        require(self.bits <= 16, name, f"width {self.bits}", "at most 16 bits with the sign")

    @property
    def bits(self) -> int:
        """Width of the code."""
        return 1 + self.integer + self.fraction

    @property
    def bits_per_element(self) -> float:
        """Stored bits per number."""
        return float(self.bits)

    @property
    def significand_bits(self) -> int:
        """Bits of the logarithm's fraction, and one for the number itself."""
        return self.fraction + 1

    @property
    def exponent_bits(self) -> int:
        """Integer bits of the logarithm."""
        return self.integer


@dataclass(frozen=True, slots=True)
class Table(Format):
    """Any list of representable values; the code of a value is its place in ascending order.

    Values are taken as float32. Nearest rounding is to the nearest value, ties to the even code; what lies outside
    saturates; NaN becomes the value nearest to 0.

    >>> Table((0.0, 1.0, -1.0, 4.0)).values
    (-1.0, 0.0, 1.0, 4.0)
    """

    kind: ClassVar[str] = "table"

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        numbers = isinstance(self.values, tuple | list) and all(
            isinstance(v, int | float) and not isinstance(v, bool) and abs(v) < 2.0**128 for v in self.values
        )
        require(numbers, "table", f"values={self.values!r}", "a list of finite float32 numbers")
        ordered = tuple(sorted({_float32(v) + 0.0 for v in self.values}))
        require(2 <= len(ordered) <= 1 << 16, "table", f"{len(ordered)} different values", "2 to 65536")
        object.__setattr__(self, "values", ordered)

    @property
    def bits(self) -> int:
        """Width of the code."""
        return max(1, math.ceil(math.log2(len(self.values))))

    @property
    def bits_per_element(self) -> float:
        """Stored bits per number."""
        return float(self.bits)

    @property
    def significand_bits(self) -> int:
        """The longest significand among the values: what a multiplier of decoded values takes."""
        return max(_significant_bits(v) for v in self.values)

    @property
    def exponent_bits(self) -> int:
        """Bits that tell the exponents of the values apart."""
        exponents = {math.frexp(v)[1] for v in self.values if v}
        return max(0, (max(exponents) - min(exponents)).bit_length())


def _float32(value: float) -> float:
    import struct

    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(3.4028234663852886e38, value)


def _significant_bits(value: float) -> int:
    numerator, _ = abs(value).as_integer_ratio()
    return max(1, numerator.bit_length() - (numerator & -numerator).bit_length() + 1) if numerator else 1
