"""MAC units compiled by Numba.

Two kernels share the work. `exact_kernel` is right for every unit and every input: it works in float64, where the
product of two float32 is exact and a sum is rounded to odd, so that the rounding to the format that follows is the
only one. `lean_kernel` is many times faster: it rounds the sums that float32 or float64 gives, on those tiles whose
numbers cannot make a difference (see `is_lean`), or it serves units that add in float32 anyway.

A tile is one output row by `TILE` columns. Everything compiled lives in this one file, apart from the random
generator: Numba's cache on disk is renewed when the file changes.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba.extending import intrinsic

from presilicon.formats.kernels.grid import COUNTER, DOWN, LFSR, NEAREST_AWAY, NEAREST_EVEN, TOWARD_ZERO, UP
from presilicon.formats.kernels.numba_kernels import compiled, random_word
from presilicon.formats.mac.plan import LIFTED, SUM_FLOOR, SUM_LIMIT, ZERO_EXPONENT, MacPlan
from presilicon.formats.rounding import WEYL

TILE = 256
LANES, PAIRWISE, ALIGNED = range(3)
ORDER_NUMBERS = {"lanes": LANES, "pairwise": PAIRWISE, "aligned": ALIGNED}
BAND, PANEL = 128, 64
"""Rows of the output, and steps of the reduction, that the lean kernel keeps in the cache."""
UNROLL = 4
"""Steps of the reduction per pass over a line: enough to spare the memory, few enough to keep the chain short."""


@intrinsic  # type: ignore[untyped-decorator]
def fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """a x b + c with one rounding, in the type of the operands."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return a(a, b, c), generate


@compiled
def add_odd(x: Any, y: Any, mode: Any) -> Any:
    """The sum of two float64, rounded to odd: any later rounding to 51 bits or fewer sees on which side it lies."""
    s = x + y
    t = s - x
    error = (x - (s - t)) + (y - t)
    bits = np.float64(s).view(np.int64)
    outward = np.int64(1) if (error > 0) == (s > 0) else np.int64(-1)
    inexact = (abs(error) > 0.0) & (bits & np.int64(1) == np.int64(0))
    s = np.int64(bits + outward).view(np.float64) if inexact else s
    if mode == DOWN:
        unlike = np.float64(x).view(np.int64) ^ np.float64(y).view(np.int64)
        s = -0.0 if (s == 0.0) & ((x != 0.0) | (unlike < np.int64(0))) else s
    return s


@compiled
def exponent_of(x: Any) -> Any:
    """floor(log2 |x|) of a finite float64 that is not zero."""
    return ((np.float64(x).view(np.int64) >> np.int64(52)) & np.int64(0x7FF)) - np.int64(1023)


@compiled
def power_of_two(exponent: Any) -> Any:
    """2^exponent as a float64."""
    return np.int64((exponent + np.int64(1023)) << np.int64(52)).view(np.float64)


@compiled
def round_wide(x: Any, word: Any, draw_bits: Any, mode: Any, grid: Any) -> Any:
    """A float64 on a grid; `word` holds `draw_bits` random bits."""
    mantissa, low, negative_zero, tiny, max_positive, max_negative, over_positive, over_negative, nan = grid
    one = np.int64(1)
    bits = np.float64(x).view(np.int64)
    negative = bits < np.int64(0)
    magnitude = bits & np.int64(0x7FFFFFFFFFFFFFFF)
    field = magnitude >> np.int64(52)
    significand = (magnitude & np.int64(0xFFFFFFFFFFFFF)) | np.int64(0x10000000000000)
    significand = np.int64(0) if field == np.int64(0) else significand
    exponent = field - np.int64(1023 - 127)
    top = max(exponent, low)
    drop = np.int64(52) - mantissa + (top - exponent)
    if mode == LIFTED:
        # The last place of 1.5 x 2^k is the wanted step: the processor rounds.
        lifter = 1.5 * power_of_two(top - np.int64(127) + np.int64(52) - mantissa)
        rounded = (abs(x) + lifter) - lifter
    elif mode >= COUNTER:
        cut = min(drop - draw_bits, np.int64(60))
        rounded = ((significand >> cut) + word) >> draw_bits
    else:
        drop = min(drop, np.int64(60))
        below = (one << drop) - one
        if mode == NEAREST_EVEN:
            bump = (below >> one) + (((significand >> drop) + ((top - low) << mantissa)) & one)
        elif mode == NEAREST_AWAY:
            bump = (below >> one) + one
        elif mode == TOWARD_ZERO:
            bump = np.int64(0)
        elif mode == UP:
            bump = np.int64(0) if negative else below
        else:
            bump = below if negative else np.int64(0)
        rounded = (significand + bump) >> drop
    result = rounded if mode == LIFTED else np.float64(rounded) * power_of_two(top - mantissa - np.int64(127))

    largest = max_negative if negative else max_positive
    over = over_negative if negative else over_positive
    beyond = over
    if mode == TOWARD_ZERO:
        beyond = largest
    elif mode == UP:
        beyond = largest if negative else over
    elif mode == DOWN:
        beyond = over if negative else largest
    result = beyond if result > largest else result
    result = 0.0 if result < tiny else result
    result = over if abs(x) == np.inf else result
    signed = negative & ((result != 0.0) | (negative_zero != np.int64(0)))
    result = -result if signed else result
    return nan if x != x else result


@compiled
def keys_at(index: Any, keys: Any) -> Any:
    """The key words of the 2^32-element block of `index`, and those of the next block."""
    block = index >> np.int64(32)
    after = min(block + np.int64(1), np.int64(keys.shape[0] - 1))
    return keys[block, 0], keys[block, 1], keys[after, 0], keys[after, 1]


@compiled
def draw(base: Any, j: Any, words: Any, states: Any, bits: Any, mode: Any) -> Any:
    """The random bits of index base + j, as `presilicon.formats.rounding.random_word` defines them."""
    index = base + np.int64(j)
    same = index >> np.int64(32) == base >> np.int64(32)
    first = words[0] if same else words[2]
    if mode == COUNTER:
        counter = np.uint32(np.uint32(np.uint32(index) * np.uint32(WEYL)) + first)
        word = random_word(counter, words[1] if same else words[3])
        return np.int64(word) >> (np.int64(32) - bits)
    if mode == LFSR:
        start = np.int64(first) + (index & np.int64(0xFFFFFFFF))
        return np.int64(states[start % states.size]) >> (np.int64(32) - bits)
    return np.int64(0)


@compiled
def round_line(line: Any, index: Any, keys: Any, states: Any, bits: Any, mode: Any, grid: Any) -> None:
    """A line of numbers on a grid, in place: a second name for the same memory would stop the vectorisation."""
    words = keys_at(index, keys)
    for j in range(line.size):
        word = draw(index, j, words, states, bits, mode)
        line[j] = round_wide(line[j], word, bits, mode, grid)


@compiled
def add_line(line: Any, other: Any, index: Any, keys: Any, states: Any, bits: Any, mode: Any, grid: Any) -> None:
    """A line plus another on a grid, in place, each sum rounded once."""
    words = keys_at(index, keys)
    for j in range(line.size):
        word = draw(index, j, words, states, bits, mode)
        line[j] = round_wide(add_odd(line[j], other[j], mode), word, bits, mode, grid)


@compiled
def align_lines(
    total: Any,
    products: Any,
    factors: Any,
    b: Any,
    begin: Any,
    left: Any,
    align_bits: Any,
    top: Any,
    infinite: Any,
    floors: Any,
) -> None:
    """A line of totals plus a few lines of products, aligned and cut; `factors` times rows of `b` are the products.

    Cut terms are integers below 2^(align_bits + 2), and at most 1,025 of them: their sum is exact in float64.
    `top` and `infinite` are room for a line of exponents, and of what is not finite. `floors` are the exponents of
    subnormal operands, of subnormal sums and of zeros, that of a zero beside the terms, and the magnitude from which
    sums are infinite: see `floors_of`.
    """
    nothing, (left_floor, right_floor, sum_floor, zero, empty, limit) = np.int64(-2000), floors
    for j in range(total.size):
        top[j] = max(exponent_of(total[j]), sum_floor) if total[j] != 0.0 else zero
        top[j] = max(top[j], empty)
        infinite[j] = 0.0 if abs(total[j]) < np.inf else total[j]
    for term in range(factors.size):
        side = max(exponent_of(np.float64(factors[term])), left_floor)
        line = b[begin + term, left : left + total.size]
        product = products[term, : total.size]
        for j in range(total.size):
            exponent = side + max(exponent_of(np.float64(line[j])), right_floor)
            top[j] = max(top[j], exponent if product[j] != 0.0 else zero)
            infinite[j] += 0.0 if abs(product[j]) < np.inf else product[j]
    for j in range(total.size):
        top[j] = np.int64(0) if top[j] == nothing else top[j]
        total[j] = 0.0 + np.trunc(total[j] * power_of_two(align_bits - top[j]))
    for term in range(factors.size):
        product = products[term, : total.size]
        for j in range(total.size):
            total[j] += np.trunc(product[j] * power_of_two(align_bits - top[j]))
    for j in range(total.size):
        total[j] = total[j] * power_of_two(top[j] - align_bits)
        total[j] = math.copysign(np.inf, total[j]) if abs(total[j]) >= limit else total[j]
        total[j] = infinite[j] if infinite[j] != 0.0 else total[j]


def floors_of(plan: MacPlan) -> tuple[Any, ...]:
    """The limits of exponents that `align_lines` takes."""
    nothing = np.int64(-2000)
    if plan.floors is None:
        return nothing, nothing, nothing, nothing, np.inf
    left, right = plan.floors
    return np.int64(left), np.int64(right), np.int64(SUM_FLOOR), np.int64(ZERO_EXPONENT), SUM_LIMIT


@cache
def exact_kernel(order: int, has_product: bool, product_mode: int, partial_mode: int, mode: int) -> Callable[..., None]:
    """The kernel for every unit and every input: output rows `start` to `stop`, the tiles that are not yet `done`."""

    def kernel(
        a: Any, b: Any, out: Any, done: Any, start: Any, stop: Any, chunk: Any, width: Any, align_bits: Any,
        floors: Any, product_grid: Any, partial_grid: Any, total_grid: Any, keys: Any, states: Any, bits: Any,
    ) -> None:  # fmt: skip
        rows, depth, columns = a.shape[1], a.shape[2], b.shape[2]
        stride = np.int64(a.shape[0]) * rows * columns
        slots_needed = chunk if order == PAIRWISE else (1 if order == ALIGNED else width)
        slots = np.empty((slots_needed, TILE), dtype=np.float64)
        products = np.empty((width if order == ALIGNED else 1, TILE), dtype=np.float64)
        totals, infinite = np.empty(TILE, dtype=np.float64), np.empty(TILE, dtype=np.float64)
        top = np.empty(TILE, dtype=np.int64)
        for row in range(start, stop):
            batch, i = row // rows, row % rows
            for tile in range(done.shape[1]):
                if done[row, tile]:
                    continue
                left = tile * TILE
                span = min(TILE, columns - left)
                right = left + span
                base = slots[0, :span]
                total = totals[:span]
                index = np.int64(row) * columns + left
                total[:] = 0.0
                for first in range(0, depth, chunk):
                    size = min(chunk, depth - first)
                    if order != PAIRWISE:
                        slots[:] = 0.0
                    for k in range(size):
                        if order == PAIRWISE:
                            product = slots[k, :span]
                        else:
                            product = products[k % width if order == ALIGNED else 0, :span]
                        factor, line = np.float64(a[batch, i, first + k]), b[batch, first + k, left:right]
                        for j in range(span):
                            product[j] = factor * np.float64(line[j])
                        if has_product:
                            round_line(product, index, keys, states, bits, product_mode, product_grid)
                            index += stride
                        if order == LANES:
                            lane = slots[k % width, :span]
                            add_line(lane, product, index, keys, states, bits, partial_mode, partial_grid)
                            index += stride
                        if order == ALIGNED and (k % width == width - 1 or k == size - 1):
                            begin, end = first + k - k % width, first + k + 1
                            factors = a[batch, i, begin:end]
                            empty = floors[3] if end - begin < width else np.int64(-2000)
                            limits = (floors[0], floors[1], floors[2], floors[3], empty, floors[4])
                            align_lines(
                                base, products, factors, b[batch], begin, left, align_bits, top, infinite, limits
                            )
                            round_line(base, index, keys, states, bits, partial_mode, partial_grid)
                            if floors[4] < np.inf:
                                for j in range(span):
                                    base[j] += 0.0  # a tensor core has no negative zero
                            index += stride
                    if order == PAIRWISE and size == 1:
                        round_line(base, index, keys, states, bits, partial_mode, partial_grid)
                        index += stride
                    lanes = size if order == PAIRWISE else (1 if order == ALIGNED else min(width, size))
                    gap = 1
                    while gap < lanes:
                        for even in range(0, lanes - gap, 2 * gap):
                            lane, other = slots[even, :span], slots[even + gap, :span]
                            add_line(lane, other, index, keys, states, bits, partial_mode, partial_grid)
                            index += stride
                        gap *= 2
                    if first == 0:
                        total[:] = base
                        round_line(total, index, keys, states, bits, mode, total_grid)
                    else:
                        add_line(total, base, index, keys, states, bits, mode, total_grid)
                    index += stride
                for j in range(span):
                    out[batch, i, left + j] = np.float32(total[j])

    return compiled(kernel)


@compiled
def range_of(numbers: Any) -> Any:
    """Largest magnitude (bits), exponent of the lowest bit set in any number, and union of the mantissas of a line."""
    largest, last, union = np.uint32(0), np.int32(1000), np.uint32(0)
    for j in range(numbers.size):
        bits = np.uint32(np.float32(numbers[j]).view(np.uint32) & np.uint32(0x7FFFFFFF))
        field = np.uint32(bits >> np.uint32(23))
        hidden = np.uint32(min(field, np.uint32(1)) << np.uint32(23))
        mantissa = np.uint32(np.uint32(bits & np.uint32(0x7FFFFF)) | hidden)
        lowest = np.float32(np.int32(np.uint32(mantissa & np.uint32(np.uint32(~mantissa) + np.uint32(1)))))
        exponent = np.int32(np.int32(lowest.view(np.uint32) >> np.uint32(23)) - np.int32(127 + 150))
        exponent = np.int32(exponent + np.int32(max(field, np.uint32(1))))
        last = np.int32(min(last, exponent if bits != np.uint32(0) else np.int32(1000)))
        largest = np.uint32(max(largest, bits))
        union = np.uint32(union | mantissa)
    return largest, last, union


@compiled
def range_of_columns(matrix: Any, left: Any, right: Any) -> Any:
    """`range_of` of the columns from `left` to `right`."""
    largest, last, union = np.uint32(0), np.int32(1000), np.uint32(0)
    for k in range(matrix.shape[0]):
        line = range_of(matrix[k, left:right])
        largest, last = np.uint32(max(largest, line[0])), np.int32(min(last, line[1]))
        union = np.uint32(union | line[2])
    return largest, last, union


@compiled
def significant_bits(union: Any) -> Any:
    """The bits of the longest significand, from the union of the mantissas."""
    count = np.int64(24)
    rest = np.int64(union) | np.int64(0x800000)
    while rest & np.int64(1) == np.int64(0):
        rest >>= np.int64(1)
        count -= np.int64(1)
    return count


@compiled
def sum_of_magnitudes(numbers: Any) -> Any:
    """The sum of the magnitudes of a float32 line, in float64."""
    total = 0.0
    for j in range(numbers.size):
        total += abs(np.float64(numbers[j]))
    return total


@compiled
def is_lean(row: Any, norm: Any, tile: Any, bits: Any, limit: Any, products: Any, wide: Any) -> Any:
    """Whether rounded float32 (or, if `wide`, float64) sums are the exact ones, for a row of A and a tile of B.

    The sums have p = `bits` significant bits, the products s, the arithmetic w = 24 or 53. Its sum rounded again to p
    bits differs from the exact sum rounded once only where it lies on a midpoint of the format and the exact one beside
    it, by 2^(e-w) at most, with e the exponent of the sum. The midpoint is an odd multiple of 2^(e-p). Say s <= p: then
    the larger term is a multiple of 2^(e-p) and no midpoint, so the other term has bits from 2^(e-p) down to 2^(e-w);
    but it has no more than p < w - p. Now s > p: the same, if p + s < w, unless the product is the midpoint and the
    sum before it less than 2^(e-w); but that is a multiple of the last place of all products, and this may be asked
    to be larger. Where the steps are constant (subnormals, fixed point), sums before the addition are multiples of
    the step, and the first argument holds for the product.

    Nothing passes `limit`: rounding to nearest moves a sum by no more than the term just added, so a chunk's sum stays
    below 2 S, for the sum S of all products' magnitudes, and the total below 4 S. Nothing underflows in float32: every
    product, so every sum, is a multiple of a power of two that is at least 2^-126.
    """
    largest_row, last_row, union_row = row
    largest_tile, last_tile, union_tile = tile
    if max(largest_row, largest_tile) >= np.uint32(0x7F800000):
        return False
    if largest_row == np.uint32(0) or largest_tile == np.uint32(0):
        return True
    significand = significant_bits(union_row) + significant_bits(union_tile)
    last = np.int64(last_row) + np.int64(last_tile)
    high = np.float64(np.uint32(largest_tile).view(np.float32))
    product = np.float64(np.uint32(largest_row).view(np.float32)) * high
    product_bits, product_last, product_limit = products
    lean = significand <= product_bits and last >= product_last and product <= product_limit
    if wide:
        near = exponent_of(product) - last <= np.int64(51)
        return lean and 4.0 * norm * high <= limit and significand + bits <= 52 and (significand <= bits or near)
    return lean and 4.0 * norm * high <= limit and significand <= bits and last >= np.int64(-126)


@compiled
def lift(x: Any, low: Any, up: Any) -> Any:
    """A float32 rounded to nearest-even, by adding 1.5 x 2^k with the wanted step as its last place.

    `low` is the exponent field of the lowest full binade, `up` what is added to the number's own for 1.5 x 2^k.
    """
    bits = np.float32(x).view(np.uint32)
    top = np.uint32(max(np.uint32(bits & np.uint32(0x7F800000)), low))
    lifter = np.uint32(top + up).view(np.float32)
    result = np.float32(np.float32(x + lifter) - lifter).view(np.uint32)
    return np.uint32(result | np.uint32(bits & np.uint32(0x80000000))).view(np.float32)


@compiled
def lift_wide(x: Any, low: Any, up: Any) -> Any:
    """The same for a float64."""
    bits = np.float64(x).view(np.int64)
    lifter = np.int64(max(bits & np.int64(0x7FF0000000000000), low) + up).view(np.float64)
    result = np.float64((x + lifter) - lifter).view(np.int64)
    return np.int64(result | (bits & np.int64(-0x8000000000000000))).view(np.float64)


NATIVE, SEPARATE, NARROW, WIDE, DRAWN = range(5)
"""Kinds of lean steps: fused float32, float32 with rounded products, rounded float32, rounded float64, and float64 to
which random bits are added before it is cut."""


@compiled
def advance(x: Any, a: Any, b: Any, low: Any, up: Any, step: Any) -> Any:
    """One multiply-add of the lean kernel in float32."""
    if step == NATIVE:
        return fma(a, b, x)
    if step == SEPARATE:
        return np.float32(np.float32(a * b) + x)
    return lift(fma(a, b, x), low, up)


@compiled
def add_steps(line: Any, factors: Any, panel: Any, low: Any, up: Any, step: Any) -> None:
    """A line of sums plus the products of a few factors and lines of a panel."""
    few = np.empty(UNROLL, dtype=np.float32)
    k = 0
    while k + UNROLL <= factors.size:
        few[:] = factors[k : k + UNROLL]
        for j in range(line.size):
            x = line[j]
            for u in range(UNROLL):
                x = advance(x, few[u], panel[k + u, j], low, up, step)
            line[j] = x
        k += UNROLL
    while k < factors.size:
        factor = factors[k]
        for j in range(line.size):
            line[j] = advance(line[j], factor, panel[k, j], low, up, step)
        k += 1


@compiled
def add_wide_steps(line: Any, factors: Any, panel: Any, low: Any, up: Any) -> None:
    """The same in float64, where products are exact."""
    few = np.empty(UNROLL, dtype=np.float64)
    k = 0
    while k + UNROLL <= factors.size:
        few[:] = factors[k : k + UNROLL]
        for j in range(line.size):
            x = line[j]
            for u in range(UNROLL):
                x = lift_wide(few[u] * panel[k + u, j] + x, low, up)
            line[j] = x
        k += UNROLL
    while k < factors.size:
        factor = np.float64(factors[k])
        for j in range(line.size):
            line[j] = lift_wide(factor * panel[k, j] + line[j], low, up)
        k += 1


@compiled
def is_drawable(row: Any, norm: Any, tile: Any, limit: Any, growth: Any) -> Any:
    """Whether float64 sums rounded at random are the exact ones, for a row of A and a tile of B.

    They are if float64 holds all sums before they are rounded: they are multiples of the last bit of any product, and
    each rounding adds less than a step. `growth` has the factor and the summand by which roundings may raise the sum
    of all magnitudes, and the last place of the grid. No product may have bits beyond that: then numbers below the
    lowest full binade are on the grid already.
    """
    largest_row, last_row, _ = row
    largest_tile, last_tile, _ = tile
    if max(largest_row, largest_tile) >= np.uint32(0x7F800000):
        return False
    if largest_row == np.uint32(0) or largest_tile == np.uint32(0):
        return True
    factor, summand, lowest = growth
    high = np.float64(np.uint32(largest_tile).view(np.float32))
    bound = (norm * high + summand) * factor + np.float64(np.uint32(largest_row).view(np.float32)) * high
    last = np.int64(last_row) + np.int64(last_tile)
    return bound <= limit and exponent_of(bound) - last <= np.int64(51) and last >= lowest


@compiled
def round_drawn(x: Any, word: Any, shift: Any, keep: Any) -> Any:
    """A float64 at random: the word is added below the last bit that `keep` leaves; a carry moves on to the next."""
    number = np.float64(x).view(np.int64)
    return np.int64(np.int64(number + np.int64(np.int64(word) << shift)) & keep).view(np.float64)


@compiled
def draw_words(words: Any, index: Any, keys: Any, bits: Any) -> None:
    """The random words of the roundings from `index` on, of which the first `bits` bits are kept.

    A loop of its own has twice the numbers per instruction.
    """
    block, keep = index >> np.int64(32), np.uint32(np.int64(-1) << (np.int64(32) - bits))
    if block == (index + words.size - 1) >> np.int64(32):
        counter = np.uint32(np.uint32(np.uint32(index) * np.uint32(WEYL)) + keys[block, 0])
        second = keys[block, 1]
        for j in range(words.size):
            words[j] = np.uint32(random_word(counter, second) & keep)
            counter = np.uint32(counter + np.uint32(WEYL))
    else:
        near = keys_at(index, keys)
        for j in range(words.size):
            words[j] = np.uint32(np.uint32(draw(index, j, near, words, np.int64(32), COUNTER)) & keep)


@compiled
def add_drawn_steps(
    line: Any,
    factors: Any,
    panel: Any,
    words: Any,
    index: Any,
    stride: Any,
    keys: Any,
    bits: Any,
    shift: Any,
    keep: Any,
) -> None:
    """The same rounded at random; the first product's rounding has the number `index`, the next `stride` more.

    `words` is room for `UNROLL` lines.
    """
    few = np.empty(UNROLL, dtype=np.float64)
    k = 0
    while k + UNROLL <= factors.size:
        few[:] = factors[k : k + UNROLL]
        for u in range(UNROLL):
            draw_words(words[u, : line.size], index + (k + u) * stride, keys, bits)
        for j in range(line.size):
            x = line[j]
            for u in range(UNROLL):
                x = round_drawn(fma(few[u], panel[k + u, j], x), words[u, j], shift, keep)
            line[j] = x
        k += UNROLL
    while k < factors.size:
        factor = np.float64(factors[k])
        draw_words(words[0, : line.size], index + k * stride, keys, bits)
        for j in range(line.size):
            line[j] = round_drawn(fma(factor, panel[k, j], line[j]), words[0, j], shift, keep)
        k += 1


@cache
def lean_kernel(step: int, mode: int) -> Callable[..., None]:
    """The kernel for sequential sums that need no more than rounding; it marks as `done` the tiles it has computed.

    With native steps, sums within a chunk are float32 as they come, whatever the numbers, and only the sums of chunks
    are rounded, with `mode`. Otherwise every sum is rounded to nearest-even, where `is_lean` allows it, or at random,
    where `is_drawable` does; `low` and `up` then are the shift and the mask of `round_drawn`.
    """
    native, drawn, wide = step in (NATIVE, SEPARATE), step == DRAWN, step in (WIDE, DRAWN)
    roundings = 2 if step == SEPARATE else 1
    kind = np.float64 if wide else np.float32

    def kernel(
        a: Any, b: Any, out: Any, done: Any, start: Any, stop: Any, chunk: Any, low: Any, up: Any,
        sum_bits: Any, limit: Any, products: Any, grid: Any, keys: Any, states: Any, bits: Any,
    ) -> None:  # fmt: skip
        rows, depth, columns = a.shape[1], a.shape[2], b.shape[2]
        stride = np.int64(a.shape[0]) * rows * columns
        partial, panel = np.empty((BAND, TILE), dtype=kind), np.empty((PANEL, TILE), dtype=kind)
        exact, total = np.empty(TILE, dtype=np.float64), np.empty(TILE, dtype=np.float64)
        mine, words = np.empty(BAND, dtype=np.bool_), np.empty((UNROLL, TILE), dtype=np.uint32)
        row = start
        while row < stop:
            batch = row // rows
            band = min(BAND, stop - row, (batch + 1) * rows - row)
            i0 = row - batch * rows
            for tile in range(done.shape[1]):
                left = tile * TILE
                span = min(TILE, columns - left)
                right = left + span
                if native:
                    mine[:] = True
                else:
                    tile_range = range_of_columns(b[batch], left, right)
                    for r in range(band):
                        line = a[batch, i0 + r]
                        own, norm = range_of(line), sum_of_magnitudes(line)
                        if done[row + r, tile]:
                            mine[r] = False
                        elif drawn:
                            mine[r] = is_drawable(own, norm, tile_range, limit, products)
                        else:
                            mine[r] = is_lean(own, norm, tile_range, sum_bits, limit, products, wide)
                if not mine[:band].any():
                    continue
                number = np.int64(0)
                for first in range(0, depth, chunk):
                    size = min(chunk, depth - first)
                    number += roundings * size
                    for begin in range(first, first + size, PANEL):
                        count = min(PANEL, first + size - begin)
                        for k in range(count):
                            for j in range(span):
                                panel[k, j] = kind(b[batch, begin + k, left + j])
                        for r in range(band):
                            if not mine[r]:
                                continue
                            line, factors = partial[r, :span], a[batch, i0 + r, begin : begin + count]
                            if begin == first:
                                line[:] = kind(0)
                            if drawn:
                                index = (number - size + begin - first) * stride + np.int64(row + r) * columns + left
                                add_drawn_steps(line, factors, panel, words, index, stride, keys, bits, low, up)
                            elif wide:
                                add_wide_steps(line, factors, panel, low, up)
                            else:
                                add_steps(line, factors, panel, low, up, step)
                    for r in range(band):
                        if not mine[r]:
                            continue
                        line, target = partial[r, :span], out[batch, i0 + r, left:right]
                        if native:
                            index = number * stride + np.int64(row + r) * columns + left
                            for j in range(span):
                                exact[j] = np.float64(line[j])
                                total[j] = np.float64(target[j])
                            if first == 0:
                                total[:] = exact
                                round_line(total[:span], index, keys, states, bits, mode, grid)
                            else:
                                add_line(total[:span], exact[:span], index, keys, states, bits, mode, grid)
                            for j in range(span):
                                target[j] = np.float32(total[j])
                        elif first == 0:
                            for j in range(span):
                                target[j] = np.float32(line[j])
                        elif drawn:
                            index = number * stride + np.int64(row + r) * columns + left
                            draw_words(words[0, :span], index, keys, bits)
                            for j in range(span):
                                exact_sum = np.float64(target[j]) + line[j]
                                target[j] = np.float32(round_drawn(exact_sum, words[0, j], low, up))
                        elif wide:
                            for j in range(span):
                                target[j] = np.float32(lift_wide(np.float64(target[j]) + line[j], low, up))
                        else:
                            for j in range(span):
                                target[j] = lift(np.float32(target[j] + np.float32(line[j])), low, up)
                    number += 1
                for r in range(band):
                    done[row + r, tile] = done[row + r, tile] or mine[r]
            row += band

    return compiled(kernel)


@compiled
def add_four(node: Any, factors: Any, b: Any, k: Any, left: Any, low: Any, up: Any) -> None:
    """The tree of the products of four factors and lines of `b`, from line `k` and column `left` on."""
    right = left + node.size
    f0, f1, f2, f3 = factors[0], factors[1], factors[2], factors[3]
    b0, b1, b2, b3 = b[k, left:right], b[k + 1, left:right], b[k + 2, left:right], b[k + 3, left:right]
    for j in range(node.size):
        x = lift(fma(f1, b1[j], np.float32(f0 * b0[j])), low, up)
        y = lift(fma(f3, b3[j], np.float32(f2 * b2[j])), low, up)
        node[j] = lift(np.float32(x + y), low, up)


@compiled
def add_in_tree(nodes: Any, count: Any, span: Any, low: Any, up: Any) -> None:
    """The first `count` lines of sums added pairwise, level by level, into the first."""
    gap = 1
    while gap < count:
        for even in range(0, count - gap, 2 * gap):
            line, other = nodes[even, :span], nodes[even + gap, :span]
            for j in range(span):
                line[j] = lift(np.float32(line[j] + other[j]), low, up)
        gap *= 2


@compiled
def add_chunk_in_tree(
    nodes: Any, leaves: Any, factors: Any, b: Any, first: Any, left: Any, span: Any, low: Any, up: Any
) -> None:
    """The sum of a chunk's products, as a tree, in the first line of `nodes`; it begins at line `first` of `b`."""
    count = factors.size // 4
    for number in range(count):
        k = 4 * number
        add_four(nodes[number, :span], factors[k : k + 4], b, first + k, left, low, up)
    rest = factors.size - 4 * count
    for number in range(rest):
        k = 4 * count + number
        leaf, factor, line = leaves[number, :span], factors[k], b[first + k, left : left + span]
        for j in range(span):
            leaf[j] = np.float32(factor * line[j])
    if rest > 0:
        add_in_tree(leaves, rest, span, low, up)
        nodes[count, :span] = leaves[0, :span]
        count += 1
    add_in_tree(nodes, count, span, low, up)


@compiled
def tree_kernel(
    a: Any, b: Any, out: Any, done: Any, start: Any, stop: Any, chunk: Any, lowest: Any, low: Any, up: Any,
    sum_bits: Any, limit: Any, products: Any,
) -> None:  # fmt: skip
    """The kernel for trees of float32 sums that need no more than rounding to nearest-even, where `is_lean` allows it.

    Two products may meet, neither of them on the grid yet. That is new only where steps are constant: one may be a
    midpoint, and the other less than 2^(e-24). It is not, if no product has bits beyond `lowest`, e - 23 for the
    lowest full binade.
    """
    rows, depth, columns = a.shape[1], a.shape[2], b.shape[2]
    nodes, leaves = np.empty((chunk // 4 + 1, TILE), dtype=np.float32), np.empty((4, TILE), dtype=np.float32)
    row = start
    while row < stop:
        batch = row // rows
        band = min(stop - row, (batch + 1) * rows - row)
        for tile in range(done.shape[1]):
            left, right = tile * TILE, min((tile + 1) * TILE, columns)
            span = right - left
            tile_range = range_of_columns(b[batch], left, right)
            for r in range(row, row + band):
                line = a[batch, r - batch * rows]
                own = range_of(line)
                norm = sum_of_magnitudes(line)
                near = np.int64(own[1]) + np.int64(tile_range[1]) >= lowest
                if not near or not is_lean(own, norm, tile_range, sum_bits, limit, products, False):
                    continue
                target = out[batch, r - batch * rows, left:right]
                for first in range(0, depth, chunk):
                    size = min(chunk, depth - first)
                    factors = line[first : first + size]
                    add_chunk_in_tree(nodes, leaves, factors, b[batch], first, left, span, low, up)
                    for j in range(span):
                        # A single product is rounded too; other sums are on the grid, and stay.
                        total = lift(nodes[0, j], low, up)
                        target[j] = total if first == 0 else lift(np.float32(target[j] + total), low, up)
                done[r, tile] = True
        row += band


@compiled
def table_kernel(
    a: Any, b: Any, out: Any, start: int, stop: int, group: int, size: int, slots: int, is_tree: bool, zero: int,
    index: Any, rows: Any, bits: Any, joins: Any,
) -> None:  # fmt: skip
    """Rows `start` to `stop` of the outputs; `group` rows share a matrix of `b`, whose matrices lie one below another.

    A multiply-add is rows[index[a, b] + c]. In a tree each product, index[a, b] >> bits, is a slot of its own. Four
    steps at a time are half again as fast where there is one running sum.
    """
    depth, columns = a.shape[1], out.shape[1]
    part = np.empty((slots, columns), np.uint8)
    for m in range(start, stop):
        base = m // group * depth
        for begin in range(0, depth, size):
            end = min(begin + size, depth)
            used = min(slots, end - begin)
            part[:used] = zero
            whole = begin if is_tree or slots > 1 else begin + (end - begin) // 4 * 4
            for k in range(begin, whole, 4):
                line0, line1, line2, line3 = index[a[m, k]], index[a[m, k + 1]], index[a[m, k + 2]], index[a[m, k + 3]]
                at = base + k
                row0, row1, row2, row3, lane = b[at], b[at + 1], b[at + 2], b[at + 3], part[0]
                for n in range(columns):
                    code = rows[line0[row0[n]] + lane[n]]
                    code = rows[line1[row1[n]] + code]
                    code = rows[line2[row2[n]] + code]
                    lane[n] = rows[line3[row3[n]] + code]
            for k in range(whole, end):
                line, row, lane = index[a[m, k]], b[base + k], part[(k - begin) % slots]
                if is_tree:
                    for n in range(columns):
                        lane[n] = line[row[n]] >> bits
                else:
                    for n in range(columns):
                        lane[n] = rows[line[row[n]] + lane[n]]
            while used > 1:
                half = used // 2
                for j in range(half):
                    for n in range(columns):
                        part[j, n] = joins[part[2 * j, n], part[2 * j + 1, n]]
                if used % 2:
                    part[half] = part[used - 1]
                used = half + used % 2
            for n in range(columns):
                out[m, n] = part[0, n] if begin == 0 else joins[out[m, n], part[0, n]]
