"""Slow, obvious scalar quantisation with exact fractions: the judge of every kernel."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from presilicon.base.errors import FormatError
from presilicon.formats.fixed import Fixed, Integer
from presilicon.formats.float import Float
from presilicon.formats.format import Format
from presilicon.formats.listed import Logarithmic, Table
from presilicon.formats.posit import Posit
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
        case Fixed():
            return round_fixed(x, fmt, mode, word)
        case Integer() if not isinstance(fmt.scale, str):
            scale = _float32(fmt.scale)
            return _float32(round_fixed(_float32(x / scale), fmt.codes, mode, word) * scale)
        case Posit():
            return round_posit(x, fmt, mode, word)
        case Logarithmic() | Table():
            return round_listed(x, fmt, mode, word)
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


def quantize_fraction(
    x: Fraction, fmt: Float | Fixed, mode: str | Stochastic, negative: bool, word: int = 0
) -> Fraction:
    """A non-negative magnitude on the steps of a format that goes on above its largest value."""
    if isinstance(fmt, Fixed):
        step = Fraction(fmt.step)
        return round_integer(x / step, mode, negative, bool(math.floor(x / step) % 2), word) * step
    if x == 0:
        return x
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    exponent -= int(Fraction(2) ** exponent > x)
    exponent = max(exponent, fmt.min_exponent)
    step = Fraction(2) ** (exponent - fmt.mantissa)
    code_below = math.floor(x / step) + (exponent - fmt.min_exponent) * 2**fmt.mantissa
    rounded = round_integer(x / step, mode, negative, bool(code_below % 2), word) * step
    return Fraction(0) if not fmt.subnormals and rounded < Fraction(fmt.min_normal) else rounded


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
    result = quantize_fraction(Fraction(x), fmt, mode, negative, word)
    if result > Fraction(fmt.max):
        return overflow if points_away(mode, negative) else fmt.max
    return float(result)


def round_fixed(x: float, fmt: Fixed, mode: str | Stochastic, word: int = 0) -> float:
    """`x` in a fixed-point format."""
    if math.isnan(x) or (math.isinf(x) and fmt.overflow == "wrap"):
        return 0.0
    if math.isinf(x):
        return fmt.max if x > 0 else fmt.min + 0.0
    size = quantize_fraction(Fraction(abs(x)), fmt, mode, x < 0, word)
    steps = int(size / Fraction(fmt.step)) * (-1 if x < 0 else 1)
    if fmt.overflow == "wrap":
        span = 2**fmt.bits
        steps %= span
        return float((steps - span if fmt.signed and steps >= span // 2 else steps) * fmt.step)
    return float(min(max(steps * fmt.step, fmt.min + 0.0), fmt.max))


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


def round_posit(x: float, fmt: Posit, mode: str | Stochastic, word: int = 0) -> float:
    """`x` in a posit format of up to 16 bits, by looking at all its values."""
    if not math.isfinite(x):
        return math.nan
    values, halves = _positive_posits(fmt.bits, fmt.es), _positive_posits(fmt.bits + 1, fmt.es)
    size, negative = Fraction(abs(x)), x < 0
    code = max(i for i, value in enumerate(values) if value <= size)
    if size > values[code] and code + 1 < len(values):
        low, high, bound = values[code], values[code + 1], halves[2 * code + 1]
        match mode:
            case Stochastic():
                share = float(size - low) / float(high - low)
                code += math.floor(share * 2**24) + (word >> (32 - mode.bits) << (24 - mode.bits)) >= 2**24
            case "nearest-even":
                code += code == 0 or size > bound or (size == bound and code % 2)
            case "nearest-away":
                code += code == 0 or size >= bound
            case "toward-zero":
                pass
            case _:
                code += points_away(mode, negative)
    return float(values[code]) * (-1 if negative and code else 1)


def round_listed(x: float, fmt: Logarithmic | Table, mode: str | Stochastic, word: int = 0) -> float:
    """`x` in a format that is a list of values."""
    values = list(fmt.values) if isinstance(fmt, Table) else _logarithmic_values(fmt)
    if math.isnan(x):
        return min(values, key=abs)
    if x <= values[0] or x >= values[-1]:
        return values[0] if x <= values[0] else values[-1]
    code = max(i for i, value in enumerate(values) if value <= x)
    low, high = values[code], values[code + 1]
    if x == low:
        return low
    match mode:
        case Stochastic():
            inner, outer = (low, high) if x >= 0 else (high, low)
            share = abs(x - inner) / (high - low)
            drawn = word >> (32 - mode.bits) << (24 - mode.bits)
            return outer if math.floor(share * 2**24) + drawn >= 2**24 else inner
        case "nearest-even" | "nearest-away":
            if isinstance(fmt, Logarithmic):
                return math.copysign(_nearest_power(abs(x), fmt), x) + 0.0
            below, above = Fraction(x) - Fraction(low), Fraction(high) - Fraction(x)
            tie_up = code % 2 == 1 if mode == "nearest-even" else x > 0
            return high if above < below or (above == below and tie_up) else low
        case "toward-zero":
            return low if x > 0 else high
        case _:
            return high if mode == "up" else low


def _power(steps: Fraction) -> float:
    with localcontext() as context:
        context.prec = 60
        return _float32(float(Decimal(2) ** (Decimal(steps.numerator) / Decimal(steps.denominator))))


@lru_cache(maxsize=8)
def _logarithmic_values(fmt: Logarithmic) -> list[float]:
    most = 2 ** (fmt.integer + fmt.fraction - 1)
    positive = [_power(Fraction(k, 2**fmt.fraction)) for k in range(1 - most, most)]
    return [-v for v in reversed(positive)] + [0.0, *positive]


def _nearest_power(x: float, fmt: Logarithmic) -> float:
    with localcontext() as context:
        context.prec = 60
        logarithm = Decimal(x).ln() / Decimal(2).ln() * 2**fmt.fraction
        k = math.floor(logarithm + Decimal("0.5"))
    most = 2 ** (fmt.integer + fmt.fraction - 1)
    return 0.0 if k < 1 - most else _power(Fraction(min(k, most - 1), 2**fmt.fraction))


def _float32(value: float) -> float:
    import struct

    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)
