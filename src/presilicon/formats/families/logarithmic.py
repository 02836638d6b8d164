"""Logarithmic numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from presilicon.base import np
from presilicon.formats.format import Format, require, require_integer
from presilicon.formats.kernels.reference import float32, round_listed_value

if TYPE_CHECKING:
    from presilicon.formats.kernels.value_lists import ValueList
    from presilicon.formats.rounding import Mode


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
    """Integer bits of the logarithm, including its sign."""
    fraction: int
    """Fraction bits of the logarithm."""

    def __post_init__(self) -> None:
        name = f"lns({self.integer}, {self.fraction})"
        require_integer(name, "integer", self.integer, 2, 7)
        require_integer(name, "fraction", self.fraction, 0, 12)
        require(self.bits <= 16, name, f"the width must be at most 16 bits with the sign, not {self.bits}")

    @property
    def bits(self) -> int:
        """Sign and logarithm."""
        return 1 + self.integer + self.fraction

    @property
    def significand_bits(self) -> int:
        """Bits of the logarithm's fraction and one for the number itself."""
        return self.fraction + 1

    @property
    def value_bits(self) -> int:
        """Those of float32, unless logarithms are whole: other powers of two have no end."""
        return 24 if self.fraction else 1

    @property
    def exponent_bits(self) -> int:
        """Integer bits of the logarithm."""
        return self.integer

    @property
    def _most(self) -> int:
        """Steps of the logarithm from 0 to the end of its range."""
        return 1 << (self.integer + self.fraction - 1)

    def code_fields(self, code: int) -> list[tuple[str, int]]:
        """Sign, integer and fraction of the logarithm."""
        return [("sign", 1), ("integer", self.integer), ("fraction", self.fraction)]

    def code_values(self) -> Sequence[float]:
        """The powers of two by code, with the smallest logarithm as 0."""
        listed = self.value_list()
        values = [0.0] * (1 << self.bits)
        for code, value in zip(listed.codes.tolist(), listed.values.tolist(), strict=True):
            values[code] = value
        return values

    def value_list(self) -> "ValueList":
        """Exact powers of two times 2^(i / 2^fraction), from 50-digit decimals; half steps are the bounds."""
        from presilicon.formats.kernels.value_lists import bounded_list

        scale = 1 << self.fraction
        with localcontext() as context:
            context.prec = 50
            root = Decimal(2) ** (Decimal(1) / (2 * scale))
            powers, power = [], Decimal(1)
            for _ in range(2 * scale):
                powers.append(float(power))
                power *= root
        half_steps = np.array(powers)
        k = np.arange(-self._most + 1, self._most)
        positive = np.ldexp(half_steps[0::2][k % scale], k // scale).astype(np.float32).astype(np.float64)
        below = np.ldexp(half_steps[1::2][(k - 1) % scale], (k - 1) // scale)
        values = np.concatenate([-positive[::-1], [0.0], positive])
        bounds = np.concatenate([-below[::-1], below])
        width = self.bits - 1
        logs = k & ((1 << width) - 1)
        codes = np.concatenate([(logs | 1 << width)[::-1], [self._most], logs])
        return bounded_list(values, codes, bounds)

    def round_value(self, x: float, mode: "Mode", word: int) -> float:
        """Nearest by the logarithm; other modes by the list of values."""
        values = _reference_values(self)
        is_inside = min(values) < x < max(values)
        if mode in ("nearest-even", "nearest-away") and is_inside and x not in values:
            return math.copysign(self._nearest_power(abs(x)), x) + 0.0
        return round_listed_value(x, values, mode, word)

    def _nearest_power(self, x: float) -> float:
        with localcontext() as context:
            context.prec = 60
            logarithm = Decimal(x).ln() / Decimal(2).ln() * 2**self.fraction
            k = math.floor(logarithm + Decimal("0.5"))
        return 0.0 if k < 1 - self._most else _power(Fraction(min(k, self._most - 1), 2**self.fraction))


def _power(exponent: Fraction) -> float:
    with localcontext() as context:
        context.prec = 60
        return float32(float(Decimal(2) ** (Decimal(exponent.numerator) / Decimal(exponent.denominator))))


@lru_cache(maxsize=8)
def _reference_values(fmt: Logarithmic) -> tuple[float, ...]:
    """The values in the order of the codes, one power after another."""
    steps = [*range(fmt._most), None, *range(1 - fmt._most, 0)]
    positive = [0.0 if k is None else _power(Fraction(k, 2**fmt.fraction)) for k in steps]
    return (*positive, *(-value if value else 0.0 for value in positive))
