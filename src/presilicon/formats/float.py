"""Floating-point formats with any exponent and mantissa width inside float32."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from presilicon.formats.format import Format, require, require_integer, require_word

Specials = Literal["ieee", "fn", "fnuz", "p3109", "none"]
Overflow = Literal["infinity", "saturate", "nan"]

_DEFAULT_OVERFLOW: dict[str, Overflow] = {
    "ieee": "infinity",
    "p3109": "infinity",
    "fn": "nan",
    "fnuz": "nan",
    "none": "saturate",
}


@dataclass(frozen=True, slots=True)
class Float(Format):
    """Sign, `exponent` bits, `mantissa` bits.

    Every value of the format must be a float32: exponents from -126 to 127, steps of at least 2^-149.

    >>> e5m2 = Float(5, 2)
    >>> e5m2.max, e5m2.min_normal, e5m2.min_subnormal
    (57344.0, 6.103515625e-05, 1.52587890625e-05)
    >>> Float(4, 3, specials="fn").max
    448.0
    """

    kind: ClassVar[str] = "float"

    exponent: int
    """Exponent field bits, 1 to 8."""
    mantissa: int
    """Stored mantissa bits, 0 to 23."""
    bias: int | None = None
    """Exponent bias; None is 2^(exponent-1) - 1 (one more for `fnuz` and `p3109`)."""
    subnormals: bool = True
    """False: a value is rounded as if subnormals existed, and a result below the smallest normal becomes zero."""
    specials: Specials = "ieee"
    """Which codes are not numbers. `ieee`: the top exponent holds infinities and NaN. `fn`: only the all-ones code
    is NaN, there is no infinity. `fnuz`: the code of -0 is NaN; no infinity, no -0. `p3109`: the code of -0 is NaN
    and the largest code is infinity. `none`: every code is a number."""
    overflow: Overflow | None = None
    """What magnitudes that round above the largest value become, infinities included. None: `infinity` where the
    format has it, else `nan` where it has that, else `saturate`. A directed rounding that points back to the largest
    value stops there, as in IEEE 754; an infinite input does not."""
    nan: Literal["zero", "max"] = "zero"
    """What NaN becomes where the format has none; elsewhere NaN stays NaN. The sign is kept."""

    def __post_init__(self) -> None:
        name = f"float(exponent={self.exponent}, mantissa={self.mantissa})"
        hint = "a format without exponent is fixed(i, f)" if self.exponent == 0 else ""
        require_integer(name, "exponent", self.exponent, 1, 8, hint)
        require_integer(name, "mantissa", self.mantissa, 0, 23)
        require_word(name, "specials", self.specials, ("ieee", "fn", "fnuz", "p3109", "none"))
        require_word(name, "nan", self.nan, ("zero", "max"))
        require(isinstance(self.subnormals, bool), name, f"subnormals={self.subnormals!r}", "true, false")
        if self.bias is None:
            extra = self.specials in ("fnuz", "p3109")
            object.__setattr__(self, "bias", 2 ** (self.exponent - 1) - 1 + extra)
        require_integer(name, "bias", self.bias, -127, 254)
        if self.overflow is None:
            object.__setattr__(self, "overflow", _DEFAULT_OVERFLOW[self.specials])
        require_word(name, "overflow", self.overflow, ("infinity", "saturate", "nan"))
        self._check_specials(name)
        self._check_range(name)

    def _check_specials(self, name: str) -> None:
        if self.specials == "ieee":
            room = self.exponent >= 2 and self.mantissa >= 1
            require(room, name, "specials=ieee", "exponent >= 2 and mantissa >= 1", "try specials=none")
        missing_infinity = self.overflow == "infinity" and not self.has_infinity
        require(not missing_infinity, name, "overflow=infinity", "saturate, nan", f"{self.specials} has no infinity")
        missing_nan = self.overflow == "nan" and not self.has_nan
        require(not missing_nan, name, "overflow=nan", "saturate", f"specials={self.specials} has no NaN")
        numbers = self.max_code > (0 if self.subnormals else 2**self.mantissa - 1)
        require(numbers, name, f"specials={self.specials}", "a format with at least one non-zero number")

    def _check_range(self, name: str) -> None:
        low, high = self.min_exponent, self.max_exponent
        inside = low >= -126 and high <= 127 and (low - self.mantissa >= -149)
        given = f"bias={self.bias} (exponents {low} to {high}, smallest step 2^{low - self.mantissa})"
        require(inside, name, given, "exponents -126 to 127 and steps of at least 2^-149, those of float32")

    @property
    def bits(self) -> int:
        """Width of the code."""
        return 1 + self.exponent + self.mantissa

    @property
    def bits_per_element(self) -> float:
        """Stored bits per number."""
        return float(self.bits)

    @property
    def significand_bits(self) -> int:
        """Mantissa and hidden bit."""
        return self.mantissa + 1

    @property
    def exponent_bits(self) -> int:
        """Exponent field bits."""
        return self.exponent

    @property
    def has_infinity(self) -> bool:
        """Whether infinities have codes."""
        return self.specials in ("ieee", "p3109")

    @property
    def has_nan(self) -> bool:
        """Whether NaN has a code."""
        return self.specials != "none"

    @property
    def has_negative_zero(self) -> bool:
        """Whether -0 has a code."""
        return self.specials not in ("fnuz", "p3109")

    @property
    def max_code(self) -> int:
        """The code, without sign, of the largest finite value."""
        top = (1 << self.exponent + self.mantissa) - 1
        match self.specials:
            case "ieee":
                return top - (1 << self.mantissa)
            case "fn" | "p3109":
                return top - 1
            case _:
                return top

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal value."""
        assert self.bias is not None
        return 1 - self.bias

    @property
    def max_exponent(self) -> int:
        """Exponent of the largest value."""
        field = self.max_code >> self.mantissa
        return self.min_exponent + max(field, 1) - 1

    @property
    def max(self) -> float:
        """The largest finite value."""
        return self.value_of(self.max_code)

    @property
    def min_normal(self) -> float:
        """The smallest positive value with a full significand."""
        return float(2.0**self.min_exponent)

    @property
    def min_subnormal(self) -> float:
        """The smallest positive value; `min_normal` where subnormals are flushed."""
        return float(2.0 ** (self.min_exponent - self.mantissa)) if self.subnormals else self.min_normal

    def value_of(self, magnitude_code: int) -> float:
        """The value of a code without its sign bit, which must be that of a finite number.

        >>> Float(5, 2).value_of(0b01111_10)
        1.5
        """
        field, fraction = divmod(magnitude_code, 2**self.mantissa)
        significand = fraction + (2**self.mantissa if field else 0)
        return float(significand * 2.0 ** (self.min_exponent + max(field, 1) - 1 - self.mantissa))
