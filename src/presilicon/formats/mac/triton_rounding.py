"""Roundings of sums in Triton, shared by the kernels of MAC units.

Names begin with an underscore because Triton compiles them into their callers.
"""

import triton
import triton.language as tl

from presilicon.formats.kernels.triton_kernels import _random_word


@triton.jit
def _lift(x, LOW: tl.constexpr, UP: tl.constexpr):
    """float32 rounded to nearest-even by adding 1.5 x 2^k, whose last place is the wanted step.

    `LOW` is the exponent field of the lowest full binade; 0 where numbers below are on the grid already.
    """
    bits = x.to(tl.uint32, bitcast=True)
    top = bits & 0x7F800000
    if LOW > 0:
        top = tl.maximum(top, LOW)
    lifter = (top + UP).to(tl.float32, bitcast=True)
    result = ((x + lifter) - lifter).to(tl.uint32, bitcast=True)
    return (result | (bits & 0x80000000)).to(tl.float32, bitcast=True)


@triton.jit
def _high(x):
    """The upper half of a float64: sign, exponent and 20 mantissa bits."""
    return (x.to(tl.int64, bitcast=True) >> 32).to(tl.int32)


@triton.jit
def _wide(high, low):
    """The float64 of two halves."""
    return ((high.to(tl.int64) << 32) | low.to(tl.int64)).to(tl.float64, bitcast=True)


@triton.jit
def _pick_odd(below, above):
    """The odd one of the two float64 next to a number, or the number itself if both are the same."""
    is_odd = (below.to(tl.int64, bitcast=True).to(tl.int32) & 1) != 0
    return tl.where(is_odd, below, above)


@triton.jit
def _multiply_add(x, y, z, IS_ODD: tl.constexpr, HARDWARE: tl.constexpr):
    """x y + z in float64, rounded to odd if `IS_ODD`, else to nearest-even; the product is exact."""
    if IS_ODD and HARDWARE:
        below = tl.inline_asm_elementwise("fma.rm.f64 $0, $1, $2, $3;", "=d,d,d,d", [x, y, z], tl.float64, True, 1)
        above = tl.inline_asm_elementwise("fma.rp.f64 $0, $1, $2, $3;", "=d,d,d,d", [x, y, z], tl.float64, True, 1)
        return _pick_odd(below, above)
    elif IS_ODD:
        return _add_odd(z, x * y, 7)
    else:
        return x * y + z


@triton.jit
def _round_high(
    x, word, MODE: tl.constexpr, DRAW_BITS: tl.constexpr, LOW: tl.constexpr, UP: tl.constexpr,
    LIMIT: tl.constexpr, BEYOND: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """A float64 that is not NaN on a grid with at most 20 mantissa bits, whose numbers have an empty lower half.

    To nearest-even, the last place of 1.5 x 2^k is the wanted step. Otherwise `word` / 2^B steps are added before a
    number is cut, with B = DRAW_BITS, or 1 if nothing is drawn: the last place of 2^k is 2^-B steps, and its last bits
    take the word. `LOW` is the upper half of the lowest full binade, `LIMIT` that of the largest number, `BEYOND` that
    of the result beyond it. If `LOW` is 0, sums are exact and those below that binade on the grid already: the word is
    added to the bits of `x` itself.
    """
    high = _high(x)
    sign = high & -0x80000000
    empty = tl.zeros_like(high)
    top = (tl.maximum(high & 0x7FF00000, LOW) if LOW > 0 else high & 0x7FF00000) + UP
    if MODE == 7:
        lifter = _wide(top, empty)
        result = _high((x + lifter) - lifter)
    elif LOW == 0:
        shift: tl.constexpr = UP >> 20
        added = x.to(tl.int64, bitcast=True) + (word.to(tl.int64) << shift)
        result = (added >> 32).to(tl.int32) & (-1 << (shift + max(DRAW_BITS, 1) - 32))
    else:
        lifted = _add_toward_zero(x, _wide(top | sign, word), HARDWARE).to(tl.int64, bitcast=True) & (
            -1 << max(DRAW_BITS, 1)
        )
        result = _high(lifted.to(tl.float64, bitcast=True) - _wide(top | sign, empty))
    magnitude = result & 0x7FFFFFFF
    magnitude = tl.where(magnitude > LIMIT, BEYOND, magnitude)
    return _wide(magnitude | sign, empty)


@triton.jit
def _add_toward_zero(x, y, HARDWARE: tl.constexpr):
    """The sum of two float64 of the same sign, cut toward zero."""
    if HARDWARE:
        return tl.inline_asm_elementwise("add.rz.f64 $0, $1, $2;", "=d,d,d", [x, y], tl.float64, True, 1)
    else:
        total = x + y
        bits = total.to(tl.int64, bitcast=True)
        is_beyond = tl.abs(total - y) > tl.abs(x)
        return tl.where(is_beyond, bits - 1, bits).to(tl.float64, bitcast=True)


@triton.jit
def _draw_near(base, element, keys, last_block, DRAW_BITS: tl.constexpr):
    """The random bits of the roundings `base` + `element`, for elements below 2^32."""
    block = base >> 32
    after = tl.minimum(block + 1, last_block)
    low = base.to(tl.uint32)
    crossing = element > (low ^ 0xFFFFFFFF)
    first = tl.where(crossing, tl.load(keys + 2 * after), tl.load(keys + 2 * block)).to(tl.uint32, bitcast=True)
    second = tl.where(crossing, tl.load(keys + 2 * after + 1), tl.load(keys + 2 * block + 1))
    return _random_word(element + low, first, second.to(tl.uint32, bitcast=True)) >> (32 - DRAW_BITS)


@triton.jit
def _add_and_lift(
    x, y, LOW: tl.constexpr, UP: tl.constexpr, LIMIT: tl.constexpr, OVER: tl.constexpr, HARDWARE: tl.constexpr
):
    """The sum of two float32, rounded once to nearest-even; beyond `LIMIT` it is `OVER`, as bits.

    The sum is rounded to odd first: of the two neighbours of an inexact sum, that with an odd mantissa.
    """
    if HARDWARE:
        below = tl.inline_asm_elementwise("add.rm.f32 $0, $1, $2;", "=f,f,f", [x, y], tl.float32, True, 1)
        above = tl.inline_asm_elementwise("add.rp.f32 $0, $1, $2;", "=f,f,f", [x, y], tl.float32, True, 1)
        odd = tl.where((below.to(tl.int32, bitcast=True) & 1) != 0, below, above)
    else:
        wide = _add_odd(x.to(tl.float64), y.to(tl.float64), 7)
        nearest = wide.to(tl.float32)
        bits = nearest.to(tl.int32, bitcast=True)
        error = wide - nearest.to(tl.float64)
        outward = tl.where((error > 0) == (nearest > 0), 1, -1)
        odd = tl.where((tl.abs(error) > 0) & ((bits & 1) == 0), bits + outward, bits).to(tl.float32, bitcast=True)
    over = ((odd.to(tl.int32, bitcast=True) & -0x80000000) | OVER).to(tl.float32, bitcast=True)
    return tl.where(tl.abs(odd) > LIMIT, over, _lift(odd, LOW, UP))


@triton.jit
def _add_odd(x, y, MODE: tl.constexpr):
    """The sum of two float64, rounded to odd."""
    total = x + y
    part = total - x
    error = (x - (total - part)) + (y - part)
    bits = total.to(tl.int64, bitcast=True)
    outward = tl.where((error > 0) == (total > 0), 1, -1).to(tl.int64)
    inexact = (tl.abs(error) > 0) & ((bits & 1) == 0)
    total = tl.where(inexact, bits + outward, bits).to(tl.float64, bitcast=True)
    if MODE == 4:
        unlike = (x.to(tl.int64, bitcast=True) ^ y.to(tl.int64, bitcast=True)) < 0
        total = tl.where((total == 0) & ((x != 0) | unlike), -0.0, total)
    return total


@triton.jit
def _power_of_two(exponent):
    return ((exponent + 1023) << 52).to(tl.float64, bitcast=True)


@triton.jit
def _round_wide(x, word, MODE: tl.constexpr, DRAW_BITS: tl.constexpr, integers, reals):
    """float64 on a grid, whose fields lie in memory as in `mac.plan.wide_grid`."""
    mantissa, low, negative_zero = tl.load(integers), tl.load(integers + 1), tl.load(integers + 2)
    tiny, max_positive, max_negative = tl.load(reals), tl.load(reals + 1), tl.load(reals + 2)
    over_positive, over_negative, nan = tl.load(reals + 3), tl.load(reals + 4), tl.load(reals + 5)
    bits = x.to(tl.int64, bitcast=True)
    negative = bits < 0
    magnitude = bits & 0x7FFFFFFFFFFFFFFF
    field = magnitude >> 52
    exponent = field - 896
    top = tl.maximum(exponent, low)
    if MODE == 7:
        lifter = 1.5 * _power_of_two(top - 127 + 52 - mantissa)
        result = (magnitude.to(tl.float64, bitcast=True) + lifter) - lifter
    else:
        significand = tl.where(field == 0, 0, (magnitude & 0xFFFFFFFFFFFFF) | 0x10000000000000)
        drop = 52 - mantissa + (top - exponent)
        if MODE == 5:
            cut = tl.minimum(drop - DRAW_BITS, 60)
            rounded = ((significand >> cut) + word) >> DRAW_BITS
        else:
            drop = tl.minimum(drop, 60)
            below = (tl.full(drop.shape, 1, tl.int64) << drop) - 1
            if MODE == 0:
                bump = (below >> 1) + (((significand >> drop) + ((top - low) << mantissa)) & 1)
            elif MODE == 1:
                bump = (below >> 1) + 1
            elif MODE == 2:
                bump = tl.zeros_like(below)
            elif MODE == 3:
                bump = tl.where(negative, 0, below)
            else:
                bump = tl.where(negative, below, 0)
            rounded = (significand + bump) >> drop
        result = rounded.to(tl.float64) * _power_of_two(top - mantissa - 127)
    largest = tl.where(negative, max_negative, max_positive)
    over = tl.where(negative, over_negative, over_positive)
    if MODE == 2:
        beyond = largest
    elif MODE == 3:
        beyond = tl.where(negative, largest, over)
    elif MODE == 4:
        beyond = tl.where(negative, over, largest)
    else:
        beyond = over
    result = tl.where(result > largest, beyond, result)
    result = tl.where(result < tiny, 0.0, result)
    result = tl.where(magnitude == 0x7FF0000000000000, over, result)
    signed = negative & ((result != 0) | (negative_zero != 0))
    # Older versions of Triton compute -x as 0 - x, which is +0 for 0.
    sign = tl.where(signed, -0x8000000000000000, 0).to(tl.int64)
    result = (result.to(tl.int64, bitcast=True) | sign).to(tl.float64, bitcast=True)
    return tl.where(magnitude > 0x7FF0000000000000, nan, result)


@triton.jit
def _draw(index, keys, MODE: tl.constexpr, DRAW_BITS: tl.constexpr):
    """The random bits of roundings by their number, where the mode needs them."""
    if MODE != 5:
        return index
    block = index >> 32
    first = tl.load(keys + 2 * block).to(tl.uint32, bitcast=True)
    second = tl.load(keys + 2 * block + 1).to(tl.uint32, bitcast=True)
    word = _random_word((index & 0xFFFFFFFF).to(tl.uint32), first, second)
    return word.to(tl.int64) >> (32 - DRAW_BITS)


@triton.jit
def _still_word(like, MODE: tl.constexpr):
    """The addend before a number is cut if nothing is drawn: half a step for nearest-away."""
    return tl.full(like.shape, 1 if MODE == 1 else 0, tl.uint32)


@triton.jit
def _join(
    total, partial, is_first, base, element, keys, last_block, integers, reals, JOIN: tl.constexpr,
    MODE: tl.constexpr, DRAW_BITS: tl.constexpr, LOW: tl.constexpr, UP: tl.constexpr, LIMIT: tl.constexpr,
    BEYOND: tl.constexpr, OVER: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """The float32 sum of a chunk joined to the total, which begins at -0; the rounding's number is base + element.

    `JOIN` chooses the way: 0 for all grids, 1 for float32, 2 to nearest-even, 3 for other modes in the upper half of
    float64.
    """
    # Triton compiles what follows a return in a branch, so the branches are told apart.
    if JOIN == 1:
        return total + partial
    elif JOIN == 2:
        return _add_and_lift(total, partial, LOW, UP, LIMIT, OVER, HARDWARE)
    elif JOIN == 3:
        return _join_in_high_half(
            total.to(tl.float64), partial.to(tl.float64), base, element, keys, last_block,
            MODE, DRAW_BITS, LOW, UP, LIMIT, BEYOND, OVER, HARDWARE,
        )  # fmt: skip
    else:
        wide = partial.to(tl.float64)
        exact = tl.where(is_first, wide, _add_odd(total.to(tl.float64), wide, MODE))
        word = _draw(base + element, keys, MODE, DRAW_BITS)
        return _round_wide(exact, word, MODE, DRAW_BITS, integers + 6, reals + 12).to(tl.float32)


@triton.jit
def _join_in_high_half(
    x, y, base, element, keys, last_block, MODE: tl.constexpr, DRAW_BITS: tl.constexpr, LOW: tl.constexpr,
    UP: tl.constexpr, LIMIT: tl.constexpr, BEYOND: tl.constexpr, OVER: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """The sum of two float64, rounded by `_round_high`, as float32; infinities and NaN too."""
    if HARDWARE:
        below = tl.inline_asm_elementwise("add.rm.f64 $0, $1, $2;", "=d,d,d", [x, y], tl.float64, True, 1)
        above = tl.inline_asm_elementwise("add.rp.f64 $0, $1, $2;", "=d,d,d", [x, y], tl.float64, True, 1)
        exact = _pick_odd(below, above)
    else:
        exact = _add_odd(x, y, MODE)
    if MODE == 5:
        word = _draw_near(base, element.to(tl.uint32), keys, last_block, DRAW_BITS)
    else:
        word = _still_word(x, MODE)
    result = _round_high(exact, word, MODE, DRAW_BITS, LOW, UP, LIMIT, BEYOND, HARDWARE).to(tl.float32)
    high = _high(exact)
    over = ((high & -0x80000000) | OVER).to(tl.float32, bitcast=True)
    result = tl.where((high & 0x7FFFFFFF) == 0x7FF00000, over, result)
    return tl.where((high & 0x7FFFFFFF) > 0x7FF00000, float("nan"), result)
