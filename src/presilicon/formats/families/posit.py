"""Posits: sign, regime, exponent and fraction of varying length."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from presilicon.base import torch
from presilicon.formats.format import Format, require, require_integer
from presilicon.formats.kernels.passes import cpu_passes_for, round_to_values
from presilicon.formats.kernels.reference import goes_away_randomly, points_away
from presilicon.formats.rounding import Mode, Stochastic

if TYPE_CHECKING:
    from torch import Tensor

    from presilicon.formats.rounding import Key, Mode


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
        rule = f"values must be at most 2^126, the range of float32, not 2^{widest}; try a lower es"
        require(widest <= 126, name, rule)

    @property
    def max(self) -> float:
        """The largest value."""
        return float(2.0 ** ((self.bits - 2) << self.es))

    @property
    def min_positive(self) -> float:
        """The smallest positive value."""
        return 1 / self.max

    @property
    def significand_bits(self) -> int:
        """Hidden bit and the longest fraction: that of a two-bit regime."""
        return 1 + max(0, self.bits - 3 - self.es)

    @property
    def exponent_bits(self) -> int:
        """Bits of the scale factor that a multiplier adds: regime and exponent, signed."""
        return ((self.bits - 2) << self.es).bit_length() + 1

    def code_values(self) -> Sequence[float]:
        """Every code decoded."""
        values: list[float] = self.decode_tensor(torch.arange(1 << self.bits)).tolist()
        return values

    def code_fields(self, code: int) -> list[tuple[str, int]]:
        """Sign, regime (a run of equal bits and the one that ends it), exponent and fraction, as far as they fit."""
        after = f"{code:0{self.bits}b}"[1:]
        regime = min(len(after) - len(after.lstrip(after[0])) + 1, len(after))
        exponent = min(self.es, len(after) - regime)
        return [("sign", 1), ("regime", regime), ("exponent", exponent), ("fraction", len(after) - regime - exponent)]

    def encode_tensor(self, x: "Tensor", mode: Mode, key: "Key") -> "Tensor":
        """The codes by integer arithmetic."""
        from presilicon.formats.kernels.torch_kernels import draw_words

        return self.codes_of(x.double(), mode, draw_words(x, mode, key))

    def round_tensor(self, x: "Tensor", mode: Mode, key: "Key", out: "Tensor | None") -> "Tensor":
        """Integer arithmetic on float32 patterns where it is compiled; random rounding looks among the values."""
        passes = None if isinstance(mode, Stochastic) else cpu_passes_for(x, mode)
        if passes is None:
            return round_to_values(x, self, mode, key, out)
        result: Tensor = passes.round_posits(x, self.bits, self.es, mode, out)
        return result

    def round_plain(self, x: "Tensor", mode: Mode, words: "Tensor | None") -> "Tensor":
        """The values of the codes."""
        return self.decode_tensor(self.codes_of(x, mode, words))

    def codes_of(self, x: "Tensor", mode: Mode, words: "Tensor | None") -> "Tensor":
        """The codes of `x` (float64) as int64: two's complement patterns of the format's width."""
        bits = x.abs().view(torch.int64)
        scale = (bits >> 52) - 1023
        regime = scale >> self.es
        largest = (1 << (self.bits - 1)) - 1
        payload = ((scale - (regime << self.es)) << 52) | (bits & ((1 << 52) - 1))

        # Regime: k + 1 ones and a zero, or -k zeros and a one; what it leaves holds exponent and fraction.
        inside = regime.clamp(-(self.bits - 2), self.bits - 3)
        length = torch.where(inside >= 0, inside + 2, 1 - inside)
        room = self.bits - 1 - length
        lead = torch.where(inside >= 0, (torch.ones_like(inside) << inside.clamp(min=0) + 2) - 2, 1)
        drop = (52 + self.es - room).clamp(0, 62)
        inner = (lead << room) | torch.where(
            room > 52 + self.es, payload << (room - 52 - self.es).clamp(min=0), payload >> drop
        )
        rest = payload & ((torch.ones_like(drop) << drop) - 1)

        too_large = scale >= (self.bits - 2) << self.es
        too_small = scale < -((self.bits - 2) << self.es)
        inner = torch.where(too_large, largest, torch.where(too_small, 0, inner))
        half = (torch.ones_like(drop) << drop) >> 1
        negative = x < 0
        match mode:
            case Stochastic():
                assert words is not None
                low, high = self.decode_tensor(inner), self.decode_tensor((inner + 1).clamp(max=largest))
                share = ((x.abs() - low) / (high - low)).nan_to_num(0.0, posinf=0.0).clamp(0.0, 1.0)
                away = torch.floor(share * 2.0**24).to(torch.int64) + (words >> 8) >= 1 << 24
            case "nearest-even":
                away = (rest > half) | ((rest == half) & (half > 0) & (inner % 2 == 1)) | too_small
            case "nearest-away":
                away = ((rest >= half) & (half > 0)) | too_small
            case "toward-zero":
                away = torch.zeros_like(negative)
            case "up":
                away = ~negative & ((rest > 0) | too_small)
            case _:
                away = negative & ((rest > 0) | too_small)
        code = inner + (away & ~too_large & (inner < largest)).to(torch.int64)
        code = torch.where(negative, (1 << self.bits) - code, code) & ((1 << self.bits) - 1)
        code = torch.where(x == 0, 0, code)
        return torch.where(torch.isfinite(x), code, 1 << (self.bits - 1))

    def decode_tensor(self, codes: "Tensor") -> "Tensor":
        """Regime, exponent and fraction taken apart by shifts."""
        from presilicon.formats.kernels.torch_kernels import power_of_two

        sign = codes >> (self.bits - 1) & 1
        magnitude = torch.where(sign == 1, (1 << self.bits) - codes, codes)
        body = magnitude << (63 - self.bits)  # the regime's first bit is bit 61
        ones = body >> 61 & 1
        flipped = torch.where(ones == 1, ~body & ((1 << 62) - 1), body)
        run = _leading_zeros(flipped).clamp(max=self.bits - 1)
        regime = torch.where(ones == 1, run - 1, -run)
        tail = (body << (run + 1).clamp(max=62)) & ((1 << 62) - 1)
        exponent = tail >> (62 - self.es)
        fraction = (tail << self.es) & ((1 << 62) - 1)
        value = (1.0 + fraction.to(torch.float64) * 2.0**-62) * power_of_two((regime << self.es) + exponent)
        value = torch.where(magnitude == 0, 0.0, torch.where(sign == 1, -value, value))
        return torch.where(codes == 1 << (self.bits - 1), torch.nan, value)

    def round_value(self, x: float, mode: Mode, word: int) -> float:
        """By looking among all values; for formats of up to 16 bits."""
        if not math.isfinite(x):
            return math.nan
        values, halves = _positive_posits(self.bits, self.es), _positive_posits(self.bits + 1, self.es)
        size, negative = Fraction(abs(x)), x < 0
        code = bisect_right(values, size) - 1
        if size > values[code] and code + 1 < len(values):
            low, high, bound = values[code], values[code + 1], halves[2 * code + 1]
            match mode:
                case Stochastic():
                    code += goes_away_randomly(float(size - low) / float(high - low), mode, word)
                case "nearest-even":
                    code += code == 0 or size > bound or (size == bound and code % 2)
                case "nearest-away":
                    code += code == 0 or size >= bound
                case "toward-zero":
                    pass
                case _:
                    code += points_away(mode, negative)
        return float(values[code]) * (-1 if negative and code else 1)


def _leading_zeros(x: "Tensor") -> "Tensor":
    """Zeros above the highest set bit of a 62-bit number, from the exponent of its top 31 bits as a float64."""
    top = x >> 31
    return 30 - torch.where(top > 0, torch.frexp(top.to(torch.float64)).exponent.to(torch.int64) - 1, -1)


def posit_value(code: int, bits: int, es: int) -> Fraction | None:
    """The value of a posit code, read off its binary digits; None for NaR."""
    if code in (0, 1 << (bits - 1)):
        return Fraction(0) if code == 0 else None
    negative = code >> (bits - 1) == 1
    digits = f"{(1 << bits) - code if negative else code:0{bits}b}"[1:]
    run = len(digits) - len(digits.lstrip(digits[0]))
    regime = run - 1 if digits[0] == "1" else -run
    tail = digits[run + 1 :]
    exponent = int(tail[:es].ljust(es, "0") or "0", 2)
    fraction = Fraction(int(tail[es:] or "0", 2), 2 ** len(tail[es:]))
    value = Fraction((1 + fraction) * Fraction(2) ** (regime * 2**es + exponent))
    return -value if negative else value


@lru_cache(maxsize=8)
def _positive_posits(bits: int, es: int) -> list[Fraction]:
    values = [posit_value(code, bits, es) for code in range(1 << (bits - 1))]
    return [value for value in values if value is not None]
