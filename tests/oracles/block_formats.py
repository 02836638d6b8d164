"""Formats that share something per block, one number at a time: exact fractions, or floats rounded at each step."""

import itertools
import math
from collections import defaultdict
from fractions import Fraction

from presilicon.formats import BlockFloat, Float, Format, Key, Mx, Nvfp4, Scaled, Stochastic
from presilicon.formats.families.block import BlockFormat
from presilicon.formats.kernels.reference import float32, floor_log2, word_of
from presilicon.formats.rounding import check_rounding

_SMALLEST = 2.0**-126
_LARGEST = 2.0**128 - 2.0**104
_EMPTY = -10_000
"""Exponent of a group of zeros, below every limit."""
_E4M3 = Float(4, 3, specials="fn", overflow="saturate")
_E2M1 = Float(2, 1, specials="none")
_LEAST_SCALES = {
    "divide": 2.0**-9,  # the smallest e4m3 number that is not 0
    "reciprocal": 0.0,  # Transformer Engine lets a scale vanish
    "multiply": 2.0**-6,  # torchao stops at the smallest normal e4m3 number
}

Mode = str | Stochastic


def quantize_values(
    values: list[float], shape: tuple[int, ...], fmt: Format, rounding: Mode | None = None, key: Key | None = None
) -> list[float]:
    """A tensor in a format; `values` are its elements in row-major order.

    >>> quantize_values([1.0, 0.3, -3.0], (3,), BlockFloat(2))
    [1.0, 0.0, -3.0]
    """
    mode, key = check_rounding(rounding), key or Key()
    match fmt:
        case BlockFloat() | Mx():
            return _round_power_blocks(values, shape, fmt, mode, key)
        case Scaled():
            return _round_scaled(values, shape, fmt, mode, key)
        case Nvfp4():
            return _round_nvfp4(values, shape, fmt, mode, key)
    return [fmt.round_value(x, mode, word_of(key, i, mode)) for i, x in enumerate(values)]


def _members(fmt: BlockFormat, shape: tuple[int, ...]) -> list[list[int]]:
    """The row-major indices of the elements of each block."""
    blocks: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i, position in enumerate(itertools.product(*(range(n) for n in shape))):
        blocks[_block_of(fmt, position, shape)].append(i)
    return list(blocks.values())


def _block_of(fmt: BlockFormat, position: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    per = fmt.per if isinstance(fmt, Scaled) else "block"
    if per == "tensor" or not shape:
        return ()
    if per == "row":
        return tuple(n for axis, n in enumerate(position) if axis != fmt.axis % len(shape))
    axes = [len(shape) - 1, len(shape) - 2] if fmt.is_square else [fmt.axis % len(shape)]
    return tuple(n // fmt.group_size if axis in axes else n for axis, n in enumerate(position))


def _round_power_blocks(
    values: list[float], shape: tuple[int, ...], fmt: BlockFloat | Mx, mode: Mode, key: Key
) -> list[float]:
    blocks = _members(fmt, shape)
    exponents = [_raw_exponent(fmt, [values[i] for i in members]) for members in blocks]
    lowest, highest = _exponent_limits(fmt, exponents)
    results = [0.0] * len(values)
    for members, raw in zip(blocks, exponents, strict=True):
        block = [values[i] for i in members]
        k = min(max(raw, lowest), highest)
        for i in members:
            special = _special_value(fmt, values[i], block, raw < lowest)
            rounded = _round_element(fmt, values[i], k, mode, word_of(key, i, mode))
            results[i] = rounded if special is None else special
    return results


def _raw_exponent(fmt: BlockFloat | Mx, block: list[float]) -> int:
    """k of a block by its largest magnitude, before limits."""
    largest = max(abs(_finite(x)) for x in block)
    if not largest:
        return _EMPTY
    return floor_log2(largest) if isinstance(fmt, BlockFloat) else _mx_exponent(fmt, largest)


def _mx_exponent(fmt: Mx, largest: Fraction) -> int:
    floor, top = floor_log2(largest), Fraction(fmt.element.max)
    emax = floor_log2(top)
    match fmt.scale:
        case "floor":
            return floor - emax
        case "ceil":
            return floor - emax + int(largest > Fraction(2) ** floor)
        case "rceil":
            ratio = largest / top
            return floor_log2(ratio) + int(ratio > Fraction(2) ** floor_log2(ratio))
    # The bits behind the leading one: a float's mantissa; of a fixed-point number all but the sign and that one.
    mantissa = fmt.element.mantissa if isinstance(fmt.element, Float) else fmt.element.bits - 2
    step = Fraction(2) ** (floor - mantissa)
    return floor_log2(math.floor(largest / step + Fraction(1, 2)) * step) - emax


def _exponent_limits(fmt: BlockFloat | Mx, exponents: list[int]) -> tuple[int, int]:
    """Those of E8M0, or the window of a block float below `top` or the largest exponent of the tensor."""
    if isinstance(fmt, Mx):
        return -127, 127
    span = 2**fmt.exponent - 1
    if fmt.top is not None:
        return max(-126, fmt.top - span), fmt.top
    return max(-126, max(exponents, default=0) - span), 127


def _special_value(fmt: BlockFloat | Mx, x: float, block: list[float], is_below: bool) -> float | None:
    """What `x` becomes in a block that is not rounded: special numbers inside, or flushed below the window."""
    if isinstance(fmt, Mx):
        return None if all(math.isfinite(member) for member in block) else math.nan
    if fmt.below != "flush" or not is_below:
        return None
    return 0.0 if math.isnan(x) else math.copysign(0.0, x)


def _round_element(fmt: BlockFloat | Mx, x: float, k: int, mode: Mode, word: int) -> float:
    negative = math.copysign(1.0, x) < 0 and not math.isnan(x)
    unit = fmt.unit_format()
    value = unit.round_magnitude(abs(_finite(x)) / Fraction(2) ** k, mode, negative, word)
    is_mx = isinstance(fmt, Mx)
    value = min(
        value, Fraction(-unit.min if negative else unit.max) if is_mx else 2 - Fraction(2) ** (1 - fmt.mantissa)
    )
    if value * Fraction(2) ** k >= Fraction(2) ** 128:
        below = Fraction(2) ** (128 - k) - Fraction(1, 2**60)
        value = unit.round_magnitude(below, "toward-zero", negative, word)
    result = float(value * Fraction(2) ** k)
    has_negative_zero = not is_mx or (isinstance(unit, Float) and unit.has_negative_zero)
    return -result if negative and (result or has_negative_zero) else result


def _finite(x: float) -> Fraction:
    """`x` with NaN as 0 and infinities as the largest float32."""
    if math.isnan(x):
        return Fraction(0)
    return Fraction(x) if math.isfinite(x) else Fraction(math.copysign(_LARGEST, x))


def _round_scaled(values: list[float], shape: tuple[int, ...], fmt: Scaled, mode: Mode, key: Key) -> list[float]:
    results = [0.0] * len(values)
    for members in _members(fmt, shape):
        magnitudes = [abs(values[i]) for i in members]
        if not all(map(math.isfinite, magnitudes)):
            forward = back = math.nan
        else:
            forward, back = _scaled_factors(fmt, max(magnitudes))
        for i in members:
            ratio = float32(values[i] / forward if fmt.apply == "divide" else values[i] * forward)
            unit = fmt.unit_format().round_value(ratio, mode, word_of(key, i, mode))
            results[i] = float32(unit * back)
    return results


def _scaled_factors(fmt: Scaled, largest: float) -> tuple[float, float]:
    top, spread = fmt.element.max, 2.0**fmt.margin
    least = fmt.least if fmt.apply == "reciprocal" else float32(fmt.least)
    largest = max(largest, least)
    if largest == 0:
        return 1.0, 1.0
    ratio = float32(top / spread / largest) if fmt.apply == "reciprocal" else float32(largest / top) * spread
    scale = min(max(float32(ratio), _SMALLEST), _LARGEST)
    if fmt.scale == "e8m0":
        fraction, exponent = math.frexp(scale)
        is_up = fmt.apply != "reciprocal" and fraction > 0.5
        scale = 2.0 ** min(exponent - 1 + is_up, 127)
    if fmt.apply == "divide":
        return scale, scale
    inverse = float32(1 / scale)
    return (scale, inverse) if fmt.apply == "reciprocal" else (inverse, scale)


def _round_nvfp4(values: list[float], shape: tuple[int, ...], fmt: Nvfp4, mode: Mode, key: Key) -> list[float]:
    magnitudes = [abs(x) if math.isfinite(x) else 0.0 for x in values]
    top = max(magnitudes, default=0.0)
    encoding = min(float32(2688 / top), _LARGEST) if top and fmt.tensor_scale else 1.0
    tensor = float32(top / 2688) if fmt.tensor_scale else 1.0
    tensor = tensor if tensor >= _SMALLEST else 1.0
    if fmt.apply == "reciprocal":
        tensor = float32(1 / encoding)
    results = [0.0] * len(values)
    for members in _members(fmt, shape):
        ratio = float32(max(magnitudes[i] for i in members) / 6)
        ratio = float32(ratio * encoding if fmt.apply == "reciprocal" else ratio / tensor)
        scale = max(_E4M3.round_value(ratio, "nearest-even", 0), _LEAST_SCALES[fmt.apply])
        whole = float32(scale * tensor)
        inverse = min(float32(1 / whole), _LARGEST) if whole else _LARGEST
        if fmt.apply == "multiply":
            inverse = float32(float32(1 / tensor) / scale)
        for i in members:
            x = 0.0 if math.isnan(values[i]) else values[i]
            scaled = float32(x / whole if fmt.apply == "divide" else x * inverse)
            unit = _E2M1.round_value(scaled, mode, word_of(key, i, mode))
            results[i] = float32(unit * whole)
    return results
