"""Fixed-point formats."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Literal

from presilicon.base import torch
from presilicon.formats.format import Format, require, require_bool, require_integer, require_word
from presilicon.formats.kernels.grid import LARGEST_BITS, Grid, float_bits, grid_of
from presilicon.formats.kernels.passes import round_on_grid, wrap_around
from presilicon.formats.kernels.reference import round_integer

if TYPE_CHECKING:
    from torch import Tensor

    from presilicon.formats.rounding import Key, Mode


@dataclass(frozen=True, slots=True)
class Fixed(Format):
    """Two's complement with `integer` bits, sign included, before the point and `fraction` bits after it.

    NaN becomes 0, infinities saturate (or wrap to 0), there is no -0. Results are float32: if the width exceeds 24
    bits, the largest value is the largest that float32 holds.

    >>> byte = Fixed(8, 4)
    >>> byte.min, byte.max, byte.step, byte.bits_per_element
    (-128.0, 127.9375, 0.0625, 12.0)
    """

    kind: ClassVar[str] = "fixed"
    exponent_bits: ClassVar[int] = 0

    integer: int
    """Bits before the point, including the sign."""
    fraction: int
    """Bits after the point."""
    signed: bool = True
    """False: `integer` bits without sign; negative numbers saturate to 0."""
    overflow: Literal["saturate", "wrap"] = "saturate"
    """`wrap` keeps the low bits, as an adder without saturation does; up to 24 bits wide."""

    def __post_init__(self) -> None:
        name = f"fixed({self.integer}, {self.fraction})"
        require_bool(name, "signed", self.signed)
        require_integer(name, "integer", self.integer, 1 if self.signed else 0, 32)
        require_integer(name, "fraction", self.fraction, 0, 32)
        require_word(name, "overflow", self.overflow, ("saturate", "wrap"))
        widest = 24 if self.overflow == "wrap" else 32
        least = 2 if self.signed else 1
        inside = least <= self.bits <= widest
        width = f"the width must be {least} to {widest} bits with overflow={self.overflow}, not {self.bits}"
        require(inside, name, width)

    @property
    def bits(self) -> int:
        """Integer and fraction bits."""
        return self.integer + self.fraction

    @property
    def significand_bits(self) -> int:
        """The whole width."""
        return self.bits

    @property
    def fraction_bits(self) -> int:
        """Bits after the point."""
        return self.fraction

    @property
    def is_twos_complement(self) -> bool:
        """Whether the format is signed and saturates."""
        return self.signed and self.overflow == "saturate"

    @property
    def wraps(self) -> bool:
        """Whether the overflow is `wrap`."""
        return self.overflow == "wrap"

    @property
    def step(self) -> float:
        """The distance between neighbours."""
        return float(2.0**-self.fraction)

    @property
    def max_code(self) -> int:
        """The largest integer that is stored."""
        return (1 << self.bits - int(self.signed)) - 1

    @property
    def min_code(self) -> int:
        """The smallest integer that is stored."""
        return -(1 << self.bits - 1) if self.signed else 0

    @property
    def max(self) -> float:
        """The largest value; above 24 bits, the largest that float32 holds."""
        spare = max(0, self.bits - int(self.signed) - 24)
        return float((self.max_code >> spare << spare) * self.step)

    @property
    def min(self) -> float:
        """The smallest value."""
        return self.min_code * self.step

    def is_finer_than(self, other: Format) -> bool:
        """Compares fraction bits with another fixed-point format."""
        return self.fraction > other.fraction if isinstance(other, Fixed) else self != other

    def grid(self) -> Grid:
        """One constant step up to the limits.

        The grid has mantissa bits for one binade more than the values need, so that the step is the same for all of
        them. A format that wraps is rounded without limits and wrapped afterwards.
        """
        mantissa = 23 if self.wraps else min(23, self.bits - int(self.signed) + 1)
        positive = LARGEST_BITS if self.wraps else float_bits(self.max)
        negative = LARGEST_BITS if self.wraps else float_bits(abs(self.min))
        return Grid(
            mantissa=mantissa,
            low=127 + mantissa - self.fraction,
            tiny=0,
            max_positive=positive,
            max_negative=negative,
            over_positive=0 if self.wraps else positive,
            over_negative=0 if self.wraps else negative,
            nan=0,
            negative_zero=0,
        )

    def round_tensor(self, x: "Tensor", mode: "Mode", key: "Key", out: "Tensor | None") -> "Tensor":
        """One pass over the grid, and the wrapping if there is any."""
        result = round_on_grid(x, grid_of(self), mode, key, out)
        return wrap_around(result, self.integer, self.signed) if self.wraps else result

    def round_magnitude(self, x: Fraction, mode: "Mode", negative: bool, word: int) -> Fraction:
        """A non-negative number rounded as if the range had no end."""
        step = Fraction(self.step)
        return round_integer(x / step, mode, negative, bool(math.floor(x / step) % 2), word) * step

    def round_value(self, x: float, mode: "Mode", word: int) -> float:
        """The magnitude rounded from its exact value, then the limits or the wrapping."""
        if math.isnan(x) or (math.isinf(x) and self.wraps):
            return 0.0
        if math.isinf(x):
            return self.max if x > 0 else self.min + 0.0
        size = self.round_magnitude(Fraction(abs(x)), mode, x < 0, word)
        steps = int(size / Fraction(self.step)) * (-1 if x < 0 else 1)
        if self.wraps:
            span = 2**self.bits
            steps %= span
            return float((steps - span if self.signed and steps >= span // 2 else steps) * self.step)
        return float(min(max(steps * self.step, self.min + 0.0), self.max))

    def code_fields(self, code: int) -> list[tuple[str, int]]:
        """Integer and fraction bits."""
        return [("integer", self.integer), ("fraction", self.fraction)]

    def encode_tensor(self, x: "Tensor", mode: "Mode", key: "Key") -> "Tensor":
        """The codes of the rounded numbers."""
        return self.codes_of(self.round_tensor(x, mode, key, None))

    def codes_of(self, values: "Tensor") -> "Tensor":
        """The two's complement codes of values of the format, as int64."""
        return (values.to(torch.float64) / self.step).to(torch.int64) & ((1 << self.bits) - 1)

    def decode_tensor(self, codes: "Tensor") -> "Tensor":
        """Steps times their size."""
        negative = (codes >> (self.bits - 1) == 1) & self.signed
        return torch.where(negative, codes - (1 << self.bits), codes).to(torch.float64) * self.step
