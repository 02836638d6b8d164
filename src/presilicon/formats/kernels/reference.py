"""Slow, obvious scalar rounding with exact fractions: the reference for every kernel.

Each family has its own `round_value`; these are the parts that families share.
"""

import math
import struct
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from presilicon.base import FormatError
from presilicon.formats.rounding import Key, Mode, Stochastic, check_rounding, random_word

if TYPE_CHECKING:
    from presilicon.formats.format import Format


def quantize_value(
    x: float, fmt: "Format", rounding: Mode | None = None, key: Key | None = None, index: int = 0
) -> float:
    """One number in a format, rounded once from its exact value.

    >>> from presilicon.formats import Float
    >>> quantize_value(1.1, Float(5, 2)), quantize_value(1e9, Float(5, 2)), quantize_value(-1e-9, Float(5, 2))
    (1.0, inf, -0.0)
    """
    mode = check_rounding(rounding)
    return fmt.round_value(x, mode, word_of(key or Key(), index, mode))


def word_of(key: Key, index: int, mode: Mode) -> int:
    """The random word of an element; 0 if the mode draws none."""
    return random_word(key, index, mode.source) if isinstance(mode, Stochastic) else 0


def round_integer(ratio: Fraction, mode: Mode, negative: bool, odd_below: bool, word: int) -> int:
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


def points_away(mode: Mode, negative: bool) -> bool:
    """Whether a magnitude above the largest value overflows; else the rounding brings it back to the largest."""
    directed = {"toward-zero": False, "up": not negative, "down": negative}
    return isinstance(mode, Stochastic) or directed.get(mode, True)


def floor_log2(x: Fraction) -> int:
    """floor(log2 x) of a positive number."""
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= x else exponent - 1


def goes_away_randomly(share: float, mode: Stochastic, word: int) -> bool:
    """Whether random rounding takes the neighbour further from zero, for a number at `share` of the way to it."""
    drawn = word >> (32 - mode.bits) << (24 - mode.bits)
    return math.floor(share * 2**24) + drawn >= 2**24


def round_listed_value(x: float, values: tuple[float, ...], mode: Mode, word: int, *, saturates: bool = False) -> float:
    """`x` in a format given by the values of its codes; ties go to the even code.

    For nearest and random rounding an infinity stands where the next number would come: the last step further, or twice
    that where the steps have doubled with the last power of two, as those of floats do. A format that `saturates` has
    codes for its infinities, but nothing becomes them.
    """
    ordered, codes = _ordered(values, saturates)
    if math.isnan(x):
        has_nan = any(math.isnan(value) for value in values)
        return math.nan if has_nan else min(ordered, key=abs) + 0.0
    if x == 0 and sum(value == 0 for value in ordered) == 2:
        return math.copysign(0.0, x)
    is_directed = mode in ("toward-zero", "up", "down")
    positions = ordered if is_directed else _finite_positions(ordered)
    if x <= positions[0] or x >= positions[-1]:
        return ordered[0] if x <= positions[0] else ordered[-1]
    below = max(i for i, position in enumerate(positions) if position <= x)
    low, high = positions[below], positions[below + 1]
    if x == low:
        return ordered[below]
    match mode:
        case Stochastic():
            inner = low if x >= 0 else high
            away = goes_away_randomly(abs(x - inner) / (high - low), mode, word)
            up = away if x >= 0 else not away
        case "nearest-even" | "nearest-away":
            to_low, to_high = Fraction(x) - Fraction(low), Fraction(high) - Fraction(x)
            tie_up = codes[below] % 2 == 1 if mode == "nearest-even" else x > 0
            up = to_high < to_low or (to_high == to_low and tie_up)
        case "toward-zero":
            up = x >= 0 if low < 0 < high else x < 0
        case _:
            up = mode == "up"
    return ordered[below + int(up)]


@lru_cache(maxsize=8)
def _ordered(values: tuple[float, ...], saturates: bool) -> tuple[list[float], list[int]]:
    """The different numbers in ascending order, -0 before 0, and the smallest code of each."""
    codes: dict[tuple[float, float], int] = {}
    for code, value in enumerate(values):
        if not (math.isnan(value) or (saturates and math.isinf(value))):
            codes.setdefault((value, math.copysign(1.0, value)), code)
    keys = sorted(codes)
    return [value for value, _ in keys], [codes[key] for key in keys]


def _finite_positions(ordered: list[float]) -> list[float]:
    finite = [value for value in ordered if math.isfinite(value)]
    below = [-_following([-value for value in reversed(finite)])] if math.isinf(ordered[0]) else []
    above = [_following(finite)] if math.isinf(ordered[-1]) else []
    return below + finite + above


def _following(ordered: list[float]) -> float:
    """The number that would come after the last: the pattern of the numbers up to its half, twice as large."""
    last, half = ordered[-1], ordered[-1] / 2
    step = last - ordered[-2]
    if half in ordered[1:]:
        position = ordered.index(half)
        if 2 * (half - ordered[position - 1]) == step:
            return 2 * ordered[position + 1]
    return last + step


def float32(value: float) -> float:
    """The nearest float32 number."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)
