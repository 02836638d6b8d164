"""Slow, obvious quantisation of whole tensors in formats with groups or scales: the judge of the block kernels."""

import itertools
import math
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

from presilicon.formats.block import BlockFloat, Mx
from presilicon.formats.fixed import Fixed
from presilicon.formats.float import Float
from presilicon.formats.format import Format
from presilicon.formats.reference import quantize_fraction, quantize_value
from presilicon.formats.rounding import Key, Stochastic, check_rounding, random_word

_LARGEST = Fraction(2) ** 128 - Fraction(2) ** 104


def quantize_values(
    values: list[float],
    shape: tuple[int, ...],
    fmt: Format,
    rounding: str | Stochastic | None = None,
    key: Key | None = None,
) -> list[float]:
    """A tensor, given row-major, in a format.

    >>> quantize_values([1.0, 0.3, -3.0], (3,), BlockFloat(2))
    [1.0, 0.0, -3.0]
    """
    if not isinstance(fmt, BlockFloat | Mx):
        return [quantize_value(x, fmt, rounding, key, i) for i, x in enumerate(values)]
    mode = check_rounding(rounding)
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i, place in enumerate(itertools.product(*(range(n) for n in shape))):
        groups[_group_of(place, shape, fmt)].append(i)
    exponents = {name: _exponent([values[i] for i in members], fmt) for name, members in groups.items()}
    lowest, highest = _window(list(exponents.values()), fmt)
    results = [0.0] * len(values)
    for name, members in groups.items():
        raw = exponents[name]
        for i in members:
            word = random_word(key or Key(), i, mode.source) if isinstance(mode, Stochastic) else 0
            if isinstance(fmt, Mx) and any(not math.isfinite(values[m]) for m in members):
                results[i] = math.nan
            elif isinstance(fmt, BlockFloat) and fmt.below == "flush" and raw < lowest:
                results[i] = math.copysign(0.0, values[i]) if values[i] == values[i] else 0.0
            else:
                results[i] = _element(values[i], min(max(raw, lowest), highest), fmt, mode, word)
    return results


def _group_of(place: tuple[int, ...], shape: tuple[int, ...], fmt: BlockFloat | Mx) -> tuple[int, ...]:
    if not shape:
        return ()
    size = fmt.group if isinstance(fmt, BlockFloat) else fmt.block
    axes = [len(shape) - 1, len(shape) - 2] if isinstance(fmt, BlockFloat) and fmt.square else [fmt.axis % len(shape)]
    return tuple(n // size if axis in axes else n for axis, n in enumerate(place))


def _finite(x: float) -> Fraction:
    if math.isnan(x):
        return Fraction(0)
    return Fraction(x) if math.isfinite(x) else _LARGEST * (1 if x > 0 else -1)


def _floor_log2(x: Fraction) -> int:
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= x else exponent - 1


def _exponent(members: list[float], fmt: BlockFloat | Mx) -> int:
    """The scale exponent of a group before its limits."""
    largest = max(abs(_finite(x)) for x in members)
    if largest == 0:
        return -10_000
    floor = _floor_log2(largest)
    if isinstance(fmt, BlockFloat):
        return floor
    top = Fraction(fmt.element.max)
    emax = _floor_log2(top)
    match fmt.scale:
        case "floor":
            return floor - emax
        case "ceil":
            return floor - emax + int(largest > Fraction(2) ** floor)
        case "rceil":
            ratio = largest / top
            return _floor_log2(ratio) + int(ratio > Fraction(2) ** _floor_log2(ratio))
    kept = fmt.element.mantissa if isinstance(fmt.element, Float) else fmt.element.bits - 2
    rounded = math.floor(largest / Fraction(2) ** (floor - kept) + Fraction(1, 2))
    return _floor_log2(Fraction(rounded) * Fraction(2) ** (floor - kept)) - emax


def _window(exponents: list[int], fmt: BlockFloat | Mx) -> tuple[int, int]:
    if isinstance(fmt, Mx):
        return -127, 127
    span = 2**fmt.exponent - 1
    if fmt.top is not None:
        return max(-126, fmt.top - span), fmt.top
    return max(-126, max(exponents, default=0) - span), 127


def _element(x: float, k: int, fmt: BlockFloat | Mx, mode: str | Stochastic, word: int) -> float:
    negative = math.copysign(1.0, x) < 0 and not math.isnan(x)
    scaled = abs(_finite(x)) / Fraction(2) ** k
    if isinstance(fmt, BlockFloat):
        element: Float | Fixed = Fixed(2, fmt.mantissa - 1)
        limit = 2 - Fraction(2) ** (1 - fmt.mantissa)
    else:
        element = replace(fmt.element, overflow="saturate")
        limit = Fraction(-element.min if negative and isinstance(element, Fixed) else element.max)
    value = quantize_fraction(scaled, element, mode, negative, word)
    if value > limit:
        value = limit
    if value * Fraction(2) ** k >= Fraction(2) ** 128:
        below = Fraction(2) ** (128 - k) - Fraction(1, 2**60)
        value = quantize_fraction(below, element, "toward-zero", negative, word)
    result = float(value * Fraction(2) ** k)
    keeps_sign = isinstance(fmt, BlockFloat) or (isinstance(element, Float) and element.has_negative_zero)
    return -result if negative and (result or keeps_sign) else result
