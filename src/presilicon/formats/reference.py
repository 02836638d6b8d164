"""Slow, obvious scalar quantisation with exact fractions: the judge of every kernel."""

import math
from fractions import Fraction

from presilicon.base.errors import FormatError
from presilicon.formats.float import Float
from presilicon.formats.format import Format
from presilicon.formats.rounding import Key, Stochastic, check_rounding, random_word


def quantize_value(
    x: float, fmt: Format, rounding: str | Stochastic | None = None, key: Key | None = None, index: int = 0
) -> float:
    """One number in a format, rounded once from its exact value.

    >>> quantize_value(1.1, Float(5, 2)), quantize_value(1e9, Float(5, 2)), quantize_value(-1e-9, Float(5, 2))
    (1.0, inf, -0.0)
    """
    mode = check_rounding(rounding)
    word = random_word(key or Key(), index, mode.source) if isinstance(mode, Stochastic) else 0
    match fmt:
        case Float():
            return round_float(x, fmt, mode, word)
        case _:
            raise FormatError(f"{fmt}: the reference does not know this format")


def round_integer(ratio: Fraction, mode: str | Stochastic, negative: bool, odd_below: bool, word: int) -> int:
    """A non-negative ratio as an integer.

    `odd_below` says whether the code of floor(ratio) is odd: ties go to the even code. `word` holds 32 random bits.
    """
    whole = math.floor(ratio)
    rest = ratio - whole
    half = Fraction(1, 2)
    match mode:
        case Stochastic():
            drawn = word >> (32 - mode.bits)
            away = math.floor(rest * 2**mode.bits) + drawn >= 2**mode.bits
        case "nearest-even":
            away = rest > half or (rest == half and odd_below)
        case "nearest-away":
            away = rest >= half
        case "toward-zero":
            away = False
        case "up":
            away = rest > 0 and not negative
        case "down":
            away = rest > 0 and negative
        case _:
            raise FormatError(f'unknown rounding "{mode}"')
    return whole + int(away)


def points_away(mode: str | Stochastic, negative: bool) -> bool:
    """Whether a magnitude above the largest value overflows; else the rounding brings it back to the largest."""
    directed = {"toward-zero": False, "up": not negative, "down": negative}
    return isinstance(mode, Stochastic) or directed.get(mode, True)


def round_float(x: float, fmt: Float, mode: str | Stochastic, word: int = 0) -> float:
    """`x` in a floating-point format."""
    negative = math.copysign(1.0, x) < 0
    magnitude = _round_magnitude(abs(x), fmt, mode, negative, word)
    if magnitude == 0.0 and not fmt.has_negative_zero:
        return 0.0
    return -magnitude if negative else magnitude


def _round_magnitude(x: float, fmt: Float, mode: str | Stochastic, negative: bool, word: int) -> float:
    overflow = {"infinity": math.inf, "nan": math.nan, "saturate": fmt.max}[str(fmt.overflow)]
    if math.isnan(x):
        return math.nan if fmt.has_nan else {"zero": 0.0, "max": fmt.max}[fmt.nan]
    if math.isinf(x):
        return overflow
    if x == 0.0:
        return 0.0
    exponent = max(math.frexp(x)[1] - 1, fmt.min_exponent)
    step = Fraction(2) ** (exponent - fmt.mantissa)
    ratio = Fraction(x) / step
    code_below = math.floor(ratio) + (exponent - fmt.min_exponent) * 2**fmt.mantissa
    result = round_integer(ratio, mode, negative, bool(code_below % 2), word) * step
    if result > Fraction(fmt.max):
        return overflow if points_away(mode, negative) else fmt.max
    if not fmt.subnormals and result < Fraction(fmt.min_normal):
        return 0.0
    return float(result)
