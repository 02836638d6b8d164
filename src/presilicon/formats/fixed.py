"""Fixed point, and integers with a scale."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from presilicon.formats.format import Format, require, require_integer, require_word


@dataclass(frozen=True, slots=True)
class Fixed(Format):
    """Two's complement with `integer` bits, sign included, before the point and `fraction` bits after it.

    NaN becomes 0, infinities saturate (or wrap to 0), there is no -0. Results are float32: where the width exceeds 24
    bits, the largest value is the largest that float32 holds.

    >>> byte = Fixed(8, 4)
    >>> byte.min, byte.max, byte.step, byte.bits_per_element
    (-128.0, 127.9375, 0.0625, 12.0)
    """

    kind: ClassVar[str] = "fixed"

    integer: int
    fraction: int
    signed: bool = True
    """False: `integer` bits without sign; negative numbers saturate to 0."""
    overflow: Literal["saturate", "wrap"] = "saturate"
    """`wrap` keeps the low bits, as an adder without saturation does; up to 24 bits wide."""

    def __post_init__(self) -> None:
        name = f"fixed({self.integer}, {self.fraction})"
        require(isinstance(self.signed, bool), name, f"signed={self.signed!r}", "true, false")
        require_integer(name, "integer", self.integer, 1 if self.signed else 0, 32)
        require_integer(name, "fraction", self.fraction, 0, 32)
        require_word(name, "overflow", self.overflow, ("saturate", "wrap"))
        widest = 24 if self.overflow == "wrap" else 32
        least = 2 if self.signed else 1
        inside = least <= self.integer + self.fraction <= widest
        given = f"width {self.integer + self.fraction}, overflow={self.overflow}"
        require(inside, name, given, f"{least} to {widest} bits in all")

    @property
    def bits(self) -> int:
        """Width of the code."""
        return self.integer + self.fraction

    @property
    def bits_per_element(self) -> float:
        """Stored bits per number."""
        return float(self.bits)

    @property
    def significand_bits(self) -> int:
        """The whole width."""
        return self.bits

    @property
    def exponent_bits(self) -> int:
        """None: 0."""
        return 0

    @property
    def step(self) -> float:
        """The distance of neighbours."""
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


@dataclass(frozen=True, slots=True)
class Integer(Format):
    """`bits`-bit integers times a scale.

    x becomes n * scale with n = round(x / scale), division and product in float32. A data-dependent scale is
    max|x| / (2^(bits-1) - 1) over the finite numbers of the tensor or channel, 1 where they are all zero. NaN becomes
    0, infinities saturate.

    >>> from presilicon.formats import parse
    >>> parse("int8") == Integer(8), str(Integer(4, scale="channel", axis=1))
    (True, 'int(bits=4, scale=channel, axis=1)')
    """

    kind: ClassVar[str] = "int"

    bits: int
    scale: float | Literal["tensor", "channel"] = 1.0
    """A positive number, or `tensor` or `channel` to fit the data."""
    axis: int = 0
    """The channel axis: each index along it has its own scale."""
    signed: bool = True

    def __post_init__(self) -> None:
        name = f"int({self.bits})"
        require_integer(name, "bits", self.bits, 2, 24, wider_integer(self.bits))
        require_integer(name, "axis", self.axis, -8, 7)
        require(isinstance(self.signed, bool), name, f"signed={self.signed!r}", "true, false")
        if isinstance(self.scale, str):
            require_word(name, "scale", self.scale, ("tensor", "channel"))
        else:
            number = isinstance(self.scale, int | float) and not isinstance(self.scale, bool)
            usable = number and 2.0**-100 <= self.scale <= 2.0**100
            require(usable, name, f"scale={self.scale!r}", "a number from 2^-100 to 2^100, or tensor, channel")
            object.__setattr__(self, "scale", float(self.scale))

    @property
    def bits_per_element(self) -> float:
        """Stored bits per number; the scale of a whole tensor or channel is left out."""
        return float(self.bits)

    @property
    def significand_bits(self) -> int:
        """The whole width."""
        return self.bits

    @property
    def exponent_bits(self) -> int:
        """None: 0."""
        return 0

    @property
    def codes(self) -> Fixed:
        """The integers that are stored, as a format of their own."""
        return Fixed(self.bits, 0, signed=self.signed)


def wider_integer(bits: object) -> str:
    """What to write for integers of 25 to 32 bits, which `int` does not have; nothing for others."""
    if isinstance(bits, int) and 24 < bits <= 32:
        return f"whole numbers of {bits} bits that saturate, without a scale, are fixed({bits}, 0)"
    return ""
