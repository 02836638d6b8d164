"""Posits: sign, regime, exponent and fraction of varying length."""

from dataclasses import dataclass
from typing import ClassVar

from presilicon.formats.format import Format, require, require_integer


@dataclass(frozen=True, slots=True)
class Posit(Format):
    """A posit of `bits` bits with `es` exponent bits; the 2022 standard has es = 2.

    Nearest rounding is that of the standard: to the nearest code, ties to the even one; a non-zero number never
    becomes 0 and never NaR. The other modes take the neighbouring values as any format does: `toward-zero` may give
    0, `stochastic` moves up with a probability equal to the distance from the lower neighbour. NaN and infinities
    become NaR, which reads as NaN. Every value must be a float32, so (bits - 2) * 2^es is at most 126.

    >>> Posit(8, 2).max, Posit(8, 2).min_positive
    (16777216.0, 5.960464477539063e-08)
    """

    kind: ClassVar[str] = "posit"

    bits: int
    es: int = 2

    def __post_init__(self) -> None:
        name = f"posit({self.bits}, {self.es})"
        require_integer(name, "bits", self.bits, 3, 32)
        require_integer(name, "es", self.es, 0, 4)
        widest = (self.bits - 2) << self.es
        require(
            widest <= 126, name, f"values up to 2^{widest}", "2^126 at most, the range of float32", "try a lower es"
        )

    @property
    def max(self) -> float:
        """The largest value."""
        return float(2.0 ** ((self.bits - 2) << self.es))

    @property
    def min_positive(self) -> float:
        """The smallest positive value."""
        return 1 / self.max

    @property
    def bits_per_element(self) -> float:
        """Stored bits per number."""
        return float(self.bits)

    @property
    def significand_bits(self) -> int:
        """Hidden bit and the longest fraction: that of a two-bit regime."""
        return 1 + max(0, self.bits - 3 - self.es)

    @property
    def exponent_bits(self) -> int:
        """Bits of the scale factor that a multiplier adds: regime and exponent, signed."""
        return ((self.bits - 2) << self.es).bit_length() + 1
