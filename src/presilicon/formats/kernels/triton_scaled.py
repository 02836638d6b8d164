"""Rounding on a GPU in formats whose scales are numbers fitted to the data, in Triton.

The arithmetic is that of `numba_kernels.scale_factors`, `nvfp4_factors` and `round_unit`. Launch without the fusion of
multiplications and additions, which would round once where the definition rounds twice.
"""

import triton
import triton.language as tl

from presilicon.formats.kernels.triton_kernels import load, random_words, round_bits, store, tile_offsets


@triton.jit
def _scaled_factors(largest, top, least, floor, spread, APPLY: tl.constexpr, HAS_POWERS: tl.constexpr):
    """`Scaled.factors` of the bits of largest magnitudes.

    For `reciprocal`, `top` is M over the margin, and the scale of magnitudes up to `least` is `floor`. A division by a
    power of two is a multiplication by its inverse.
    """
    amax = largest.to(tl.float32, bitcast=True)
    one = tl.full(amax.shape, 1.0, tl.float32)
    if APPLY == 1:
        scale = tl.where(amax > least, tl.div_rn(one * top, amax), floor)
    else:
        amax = tl.maximum(amax, least)
        scale = tl.div_rn(amax, one * top) * spread
    word = tl.minimum(tl.maximum(scale.to(tl.uint32, bitcast=True), 0x00800000), 0x7F7FFFFF)
    if HAS_POWERS:
        word = word + (0 if APPLY == 1 else 0x7FFFFF)
        word = tl.minimum(word & 0x7F800000, 0x7F000000)
    scale = word.to(tl.float32, bitcast=True)
    if APPLY != 1:
        scale = tl.where(amax == 0, one, scale)
    poison = tl.where(largest >= 0x7F800000, 0x7FC00000, 0).to(tl.uint32).to(tl.float32, bitcast=True)
    inverse = tl.div_rn(one, scale) + poison
    scale += poison
    if APPLY == 1:
        return scale, inverse
    elif APPLY == 2 or HAS_POWERS:
        return inverse, scale
    return scale, scale


@triton.jit
def _nvfp4_factors(
    largest, top,
    APPLY: tl.constexpr, HAS_TENSOR_SCALE: tl.constexpr, LEAST: tl.constexpr,
    CORE: tl.constexpr, MANTISSA: tl.constexpr, LOW: tl.constexpr,
    MAX: tl.constexpr,
):  # fmt: skip
    """`Nvfp4.factors` of the bits of largest magnitudes, `top` being those of the whole tensor; and the two scales.

    The constants are those of the scale's format; `LEAST` is the bits of the smallest scale.
    """
    ratio = tl.div_rn(largest.to(tl.float32, bitcast=True), tl.full(largest.shape, 6.0, tl.float32))
    one = tl.full(largest.shape, 1.0, tl.float32)
    tensor = one
    if HAS_TENSOR_SCALE:
        amax = (tl.zeros_like(largest) + top).to(tl.float32, bitcast=True)
        if APPLY == 1:
            encoding = tl.minimum(tl.div_rn(one * 2688.0, amax), 3.4028234663852886e38)
            tensor = tl.where(amax > 0, tl.div_rn(one, encoding), one)
            ratio = ratio * encoding
        else:
            tensor = tl.div_rn(amax, one * 2688.0)
            tensor = tl.where(tensor >= 1.1754943508222875e-38, tensor, one)
            ratio = tl.div_rn(ratio, tensor)
    rounded = round_bits(
        ratio.to(tl.uint32, bitcast=True), tl.zeros_like(largest), CORE, 0, True, MANTISSA, LOW, 0, MAX, MAX, MAX, MAX,
        0x7FC00000, 1,
    )  # fmt: skip
    scale = tl.maximum(rounded, LEAST).to(tl.uint32).to(tl.float32, bitcast=True)
    whole = scale * tensor
    forward = whole
    if APPLY == 1:
        forward = tl.minimum(tl.div_rn(one, whole), 3.4028234663852886e38)
    elif APPLY == 2:
        forward = tl.div_rn(tl.div_rn(one, tensor), scale)
    return forward, whole, scale, tensor


@triton.jit(do_not_specialize=["first", "second", "element_top", "least", "floor", "spread"])
def scaled_kernel(
    source, target, scales, states, given, tiles, rows, cols, turns, first, second, element_top, least, floor, spread,
    FAMILY: tl.constexpr, APPLY: tl.constexpr, HAS_POWERS: tl.constexpr, HAS_TENSOR_SCALE: tl.constexpr,
    IS_SHARED: tl.constexpr, IS_APART: tl.constexpr, SCALE_CORE: tl.constexpr, SCALE_MANTISSA: tl.constexpr,
    SCALE_LOW: tl.constexpr, SCALE_MAX: tl.constexpr, SCALE_LEAST: tl.constexpr, TILE_ROWS: tl.constexpr,
    TILE_COLS: tl.constexpr, LAYOUT: tl.constexpr, IS_TRANSPOSED: tl.constexpr, IS_WIDE: tl.constexpr,
    IS_EVEN: tl.constexpr,
    MASK: tl.constexpr, CORE: tl.constexpr, MODE: tl.constexpr, PLAIN: tl.constexpr, MANTISSA: tl.constexpr,
    LOW: tl.constexpr, TINY: tl.constexpr, MAX_POSITIVE: tl.constexpr, MAX_NEGATIVE: tl.constexpr,
    OVER_POSITIVE: tl.constexpr, OVER_NEGATIVE: tl.constexpr, NAN: tl.constexpr, NEGATIVE_ZERO: tl.constexpr,
    GROUPS: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    """Groups of a stack of matrices (see `tile_offsets`), each with a number as its scale.

    `FAMILY` 0: `given` holds the scales, 1: `Scaled`, 2: `Nvfp4`. `APPLY` 0: divide, 1: reciprocal, 2: multiply.
    A group finds its own largest magnitude; with `IS_SHARED` it reads that of its line, modulo `turns`, from `given`,
    and with `HAS_TENSOR_SCALE` the first number there is that of the tensor. `IS_APART`: the elements are not
    multiplied by the float32 scales, which are written to `scales`.
    """
    offset, index, inside, line, group, exists = tile_offsets(
        tiles, rows, cols, TILE_ROWS, TILE_COLS, LAYOUT, IS_TRANSPOSED, IS_WIDE, GROUPS, MEMBERS
    )
    bits = load(source, offset, inside, IS_EVEN)
    magnitude = bits & 0x7FFFFFFF
    if IS_SHARED:
        largest = tl.load(given + line % turns).to(tl.uint32, bitcast=True)
    else:
        counted = tl.where(magnitude >= 0x7F800000, 0, magnitude).to(tl.uint32) if FAMILY == 2 else magnitude
        largest = tl.max(counted, axis=0 if LAYOUT == 3 else 1, keep_dims=True)
    if FAMILY == 0:
        forward = largest.to(tl.float32, bitcast=True)
        back = forward
    elif FAMILY == 1:
        forward, back = _scaled_factors(largest, element_top, least, floor, spread, APPLY, HAS_POWERS)
    else:
        top = tl.load(given).to(tl.uint32, bitcast=True)
        forward, back, scale, tensor = _nvfp4_factors(
            largest, top, APPLY, HAS_TENSOR_SCALE, SCALE_LEAST, SCALE_CORE, SCALE_MANTISSA, SCALE_LOW, SCALE_MAX
        )
    if IS_APART:
        # Programs that share a scale write the same number.
        if FAMILY == 2:
            tl.store(scales + tl.zeros_like(group), tensor)
            back = scale
        elif IS_SHARED:
            tl.store(scales + line % turns, back)
        else:
            tl.store(scales + group, back, mask=exists)
    if FAMILY != 1:
        bits = tl.where(magnitude > 0x7F800000, 0, bits).to(tl.uint32)
    value = bits.to(tl.float32, bitcast=True)
    if APPLY == 0 and not HAS_POWERS:
        ratio = tl.div_rn(value, tl.broadcast_to(forward, value.shape))
    else:
        ratio = value * forward
    # Not sooner, or the words of all elements would wait in registers.
    word = random_words(index, states, first, second, inside, MASK, MODE)
    unit = round_bits(
        ratio.to(tl.uint32, bitcast=True), word, CORE, MODE, PLAIN, MANTISSA, LOW, TINY, MAX_POSITIVE, MAX_NEGATIVE,
        OVER_POSITIVE, OVER_NEGATIVE, NAN, NEGATIVE_ZERO,
    )  # fmt: skip
    if not IS_APART or FAMILY == 2:
        unit = (unit.to(tl.float32, bitcast=True) * back).to(tl.uint32, bitcast=True)
    store(target + offset, unit, inside, IS_EVEN)
