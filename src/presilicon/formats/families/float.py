"""Floating-point formats with any exponent and mantissa width inside float32."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Literal

from presilicon.base import torch
from presilicon.formats.format import Format, require, require_bool, require_integer, require_word
from presilicon.formats.kernels.grid import INFINITY_BITS, NAN_BITS, Grid, float_bits, grid_of
from presilicon.formats.kernels.passes import round_on_grid
from presilicon.formats.kernels.reference import floor_log2, points_away, round_integer

if TYPE_CHECKING:
    from torch import Tensor

    from presilicon.formats.rounding import Key, Mode

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

    Every value of the format must be a float32: exponents from -126 to 127, steps of at least 2^-149. NaN stays NaN
    where `specials` has a code for it, and becomes what `nan` says elsewhere. Infinities become what `overflow` says,
    like numbers beyond the largest.

    >>> e5m2 = Float(5, 2)
    >>> e5m2.max, e5m2.min_normal, e5m2.min_subnormal
    (57344.0, 6.103515625e-05, 1.52587890625e-05)
    >>> Float(4, 3, specials="fn").max
    448.0
    """

    kind: ClassVar[str] = "float"
    is_float: ClassVar[bool] = True

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
        require_bool(name, "subnormals", self.subnormals)
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
            require(room, name, "specials=ieee needs exponent >= 2 and mantissa >= 1; try specials=none")
        allowed = {"infinity": self.has_infinity, "nan": self.has_nan, "saturate": True}
        words = " or ".join(word for word, is_allowed in allowed.items() if is_allowed)
        rule = f"overflow must be {words} with specials={self.specials}, not {self.overflow}"
        require(allowed[str(self.overflow)], name, rule)
        numbers = self.max_code > (0 if self.subnormals else 2**self.mantissa - 1)
        require(numbers, name, f"specials={self.specials} leaves no code for a non-zero number")

    def _check_range(self, name: str) -> None:
        low, high = self.min_exponent, self.max_exponent
        inside = low >= -126 and high <= 127 and (low - self.mantissa >= -149)
        range_text = f"exponents {low} to {high} and a smallest step of 2^{low - self.mantissa}"
        require(inside, name, f"bias={self.bias} gives {range_text}; float32 has -126 to 127 and 2^-149")

    @classmethod
    def names(cls) -> dict[str, Format]:
        """IEEE formats and the 8-, 6- and 4-bit formats of OCP, Graphcore and NVIDIA."""
        return {
            "float32": Float(8, 23),
            "float16": Float(5, 10),
            "bfloat16": Float(8, 7),
            "tf32": Float(8, 10),
            "e5m2": Float(5, 2),
            "e4m3": Float(4, 3),
            "e3m4": Float(3, 4),
            "e4m3fn": Float(4, 3, specials="fn"),
            "e5m2fnuz": Float(5, 2, specials="fnuz"),
            "e4m3fnuz": Float(4, 3, specials="fnuz"),
            "e4m3b11fnuz": Float(4, 3, bias=11, specials="fnuz"),
            "fp6_e3m2": Float(3, 2, specials="none"),
            "fp6_e2m3": Float(2, 3, specials="none"),
            "fp4_e2m1": Float(2, 1, specials="none"),
        }

    @property
    def bits(self) -> int:
        """Width of the code."""
        return 1 + self.exponent + self.mantissa

    @property
    def significand_bits(self) -> int:
        """Mantissa bits and the hidden bit."""
        return self.mantissa + 1

    @property
    def exponent_bits(self) -> int:
        """Bits of the exponent field."""
        return self.exponent

    @property
    def exponent_bias(self) -> int:
        """The bias, given or derived."""
        assert self.bias is not None
        return self.bias

    @property
    def is_ieee(self) -> bool:
        """Whether specials, subnormals and overflow are those of IEEE 754."""
        return self.specials == "ieee" and self.subnormals and self.overflow == "infinity"

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
        """Code of the largest finite value, without the sign bit."""
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
        return 1 - self.exponent_bias

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
    def min(self) -> float:
        """The smallest finite value."""
        return -self.max

    @property
    def min_normal(self) -> float:
        """The smallest positive value with a full significand."""
        return float(2.0**self.min_exponent)

    @property
    def min_subnormal(self) -> float:
        """The smallest positive value; `min_normal` where subnormals are flushed."""
        return float(2.0 ** (self.min_exponent - self.mantissa)) if self.subnormals else self.min_normal

    def value_of(self, magnitude_code: int) -> float:
        """The value of a code without its sign bit; the code must be that of a finite number.

        >>> Float(5, 2).value_of(0b01111_10)
        1.5
        """
        field, fraction = divmod(magnitude_code, 2**self.mantissa)
        significand = fraction + (2**self.mantissa if field else 0)
        return float(significand * 2.0 ** (self.min_exponent + max(field, 1) - 1 - self.mantissa))

    def is_finer_than(self, other: Format) -> bool:
        """Compares mantissas with another floating-point format."""
        return self.mantissa > other.significand_bits - 1 if other.is_float else self != other

    def grid(self) -> Grid:
        """The float's own binades and limits."""
        top = float_bits(self.max)
        over = {"infinity": INFINITY_BITS, "nan": NAN_BITS, "saturate": top}[str(self.overflow)]
        nan = NAN_BITS if self.has_nan else {"zero": 0, "max": top}[self.nan]
        return Grid(
            mantissa=self.mantissa,
            low=self.min_exponent + 127,
            tiny=0 if self.subnormals else float_bits(self.min_normal),
            max_positive=top,
            max_negative=top,
            over_positive=over,
            over_negative=over,
            nan=nan,
            negative_zero=int(self.has_negative_zero),
        )

    def round_tensor(self, x: "Tensor", mode: "Mode", key: "Key", out: "Tensor | None") -> "Tensor":
        """One pass over the grid."""
        return round_on_grid(x, grid_of(self), mode, key, out)

    def round_magnitude(self, x: Fraction, mode: "Mode", negative: bool, word: int) -> Fraction:
        """A non-negative number rounded as if the exponent range had no upper end."""
        if x == 0:
            return x
        exponent = max(floor_log2(x), self.min_exponent)
        step = Fraction(2) ** (exponent - self.mantissa)
        code_below = math.floor(x / step) + (exponent - self.min_exponent) * 2**self.mantissa
        rounded = round_integer(x / step, mode, negative, bool(code_below % 2), word) * step
        return Fraction(0) if not self.subnormals and rounded < Fraction(self.min_normal) else rounded

    def round_value(self, x: float, mode: "Mode", word: int) -> float:
        """The magnitude rounded from its exact value, then the sign."""
        negative = math.copysign(1.0, x) < 0
        magnitude = self._limited(abs(x), mode, negative, word)
        if magnitude == 0.0 and not self.has_negative_zero:
            return 0.0
        return -magnitude if negative else magnitude

    def _limited(self, x: float, mode: "Mode", negative: bool, word: int) -> float:
        overflow = {"infinity": math.inf, "nan": math.nan, "saturate": self.max}[str(self.overflow)]
        if math.isnan(x):
            return math.nan if self.has_nan else {"zero": 0.0, "max": self.max}[self.nan]
        if math.isinf(x):
            return overflow
        result = self.round_magnitude(Fraction(x), mode, negative, word)
        if result > Fraction(self.max):
            return overflow if points_away(mode, negative) else self.max
        return float(result)

    def special_codes(self) -> tuple[int, int]:
        """The codes of infinity (without sign) and of NaN; -1 for what the format does not have."""
        top = (1 << self.exponent + self.mantissa) - 1
        match self.specials:
            case "ieee":
                infinity = top - (1 << self.mantissa) + 1
                return infinity, infinity + (1 << self.mantissa - 1)
            case "fn":
                return -1, top
            case "fnuz":
                return -1, top + 1
            case "p3109":
                return top, top + 1
            case _:
                return -1, -1

    def code_fields(self, code: int) -> list[tuple[str, int]]:
        """Sign, exponent and mantissa."""
        return [("sign", 1), ("exponent", self.exponent), ("mantissa", self.mantissa)]

    def encode_tensor(self, x: "Tensor", mode: "Mode", key: "Key") -> "Tensor":
        """The codes of the rounded numbers."""
        return self.codes_of(self.round_tensor(x, mode, key, None))

    def codes_of(self, values: "Tensor") -> "Tensor":
        """The codes of values of the format, as int64."""
        bits = values.to(torch.float32).view(torch.int32).to(torch.int64)
        magnitude = bits & 0x7FFFFFFF
        low = self.min_exponent + 127
        exponent = (magnitude >> 23).clamp(min=1)
        significand = (magnitude & 0x7FFFFF) | ((magnitude >> 23 > 0).to(torch.int64) << 23)
        top = exponent.clamp(min=low)
        code = (significand >> (23 - self.mantissa + top - exponent).clamp(max=62)) + ((top - low) << self.mantissa)
        infinity, nan = self.special_codes()
        code = torch.where(magnitude == INFINITY_BITS, infinity, code)
        code = code | ((bits < 0).to(torch.int64) << (self.bits - 1))
        return torch.where(magnitude > INFINITY_BITS, nan, code)

    def decode_tensor(self, codes: "Tensor") -> "Tensor":
        """Significand times power of two, with the special codes put in afterwards."""
        magnitude = codes & ((1 << self.bits - 1) - 1)
        field = magnitude >> self.mantissa
        significand = (magnitude & ((1 << self.mantissa) - 1)) | ((field > 0).to(torch.int64) << self.mantissa)
        scale = ((field.clamp(min=1) + (self.min_exponent - 1 - self.mantissa + 1023)) << 52).view(torch.float64)
        value = significand.to(torch.float64) * scale
        if not self.subnormals:
            value = torch.where(field == 0, 0.0, value)
        infinity, nan = self.special_codes()
        if infinity >= 0:
            value = torch.where(magnitude == infinity, torch.inf, value)
        value = torch.where(codes >> (self.bits - 1) == 1, -value, value)
        match self.specials:
            case "ieee":
                return torch.where(magnitude > infinity, torch.nan, value)
            case "fn":
                return torch.where(magnitude == nan, torch.nan, value)
            case "none":
                return value
        return torch.where(codes == nan, torch.nan, value)
