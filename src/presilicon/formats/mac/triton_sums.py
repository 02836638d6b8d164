"""Sums of which every one is rounded, in Triton: one product after another, a tile of outputs per program.

The arithmetic is that of `mac.numba_kernels`: `half_kernel`, `lean_kernel` and `wide_kernel` round sums of float16,
float32 or float64 where that is exact, `exact_kernel` is right for every number. Triton's interpreter runs the same
kernels on a CPU, which is how they are tested without a GPU. A left operand is transposed: (batches, K, M).
"""

import triton
import triton.language as tl

from presilicon.formats.mac.triton_rounding import (
    _add_odd,
    _draw,
    _draw_near,
    _lift,
    _multiply_add,
    _round_high,
    _round_wide,
    _still_word,
)


@triton.jit
def range_kernel(
    x, largest, last, bits, norm, rows, depth, matrix_stride, row_stride, depth_stride,
    ROWS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Per row of a matrix: the largest magnitude, the exponent of the last bit set, the significant bits of the longest
    number, and the sum of the magnitudes."""
    batch = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, DEPTH)
    source = x + batch * matrix_stride + i[:, None].to(tl.int64) * row_stride + k[None, :].to(tl.int64) * depth_stride
    high, low = tl.zeros((ROWS, DEPTH), tl.int32), tl.full((ROWS, DEPTH), 1000, tl.int32)
    longest, total = tl.full((ROWS, DEPTH), 1, tl.int32), tl.zeros((ROWS, DEPTH), tl.float64)
    for start in range(0, depth, DEPTH):
        number = tl.load(source, mask=(i[:, None] < rows) & (k[None, :] < depth - start), other=0.0)
        source += DEPTH * depth_stride
        magnitude = number.to(tl.int32, bitcast=True) & 0x7FFFFFFF
        field = magnitude >> 23
        mantissa = (magnitude & 0x7FFFFF) | (tl.minimum(field, 1) << 23)
        trailing = ((mantissa & -mantissa).to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127
        high = tl.maximum(high, magnitude)
        low = tl.minimum(low, tl.where(magnitude == 0, 1000, trailing - 150 + tl.maximum(field, 1)))
        longest = tl.maximum(longest, tl.where(magnitude == 0, 1, 24 - trailing))
        total += tl.abs(number).to(tl.float64)
    target = batch * rows + i
    tl.store(largest + target, tl.max(high, 1), mask=i < rows)
    tl.store(last + target, tl.min(low, 1), mask=i < rows)
    tl.store(bits + target, tl.max(longest, 1), mask=i < rows)
    tl.store(norm + target, tl.sum(total, 1), mask=i < rows)


@triton.jit
def _level(levels, batch, SHARE_ROWS: tl.constexpr, SHARE_COLUMNS: tl.constexpr):
    """The kernel that computes this program's outputs; a level covers SHARE_ROWS x SHARE_COLUMNS programs."""
    down, across = tl.num_programs(0) // SHARE_ROWS, tl.num_programs(1) // SHARE_COLUMNS
    return tl.load(
        levels + (batch * down + tl.program_id(0) // SHARE_ROWS) * across + tl.program_id(1) // SHARE_COLUMNS
    )


@triton.jit
def half_kernel(
    a, b, out, levels, rows, columns, depth, chunk, LEVEL: tl.constexpr, ADD: tl.constexpr, STEP: tl.constexpr,
    IS_BFLOAT: tl.constexpr, SHARE_ROWS: tl.constexpr, SHARE_COLUMNS: tl.constexpr,
    ROWS: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """Sums of float16 or bfloat16 by the processor's own instructions, two columns at a time.

    `a` holds each number twice in 32 bits, `b` two neighbours of a row; `STEP` is a multiply-add of pairs in PTX, and
    `ADD` an addition.
    """
    batch = tl.program_id(2).to(tl.int64)
    if _level(levels, batch, SHARE_ROWS, SHARE_COLUMNS) == LEVEL:
        pairs = (columns + 1) // 2
        i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        j = tl.program_id(1) * PAIRS + tl.arange(0, PAIRS)
        left, right = a + batch * depth * rows + i, b + batch * depth * pairs + j
        # -0, as the first chunk's sum is added to it.
        total = tl.full((ROWS, PAIRS), -0x7FFF8000, tl.int32)
        for first in range(0, depth, chunk):
            partial = tl.zeros((ROWS, PAIRS), tl.int32)
            for _ in range(first, tl.minimum(first + chunk, depth)):
                x = tl.load(left, mask=i < rows, other=0)
                y = tl.load(right, mask=j < pairs, other=0)
                left += rows
                right += pairs
                partial = tl.inline_asm_elementwise(
                    STEP, "=r,r,r,r", [x[:, None], y[None, :], partial], tl.int32, is_pure=True, pack=1
                )
            total = tl.inline_asm_elementwise(ADD, "=r,r,r", [total, partial], tl.int32, is_pure=True, pack=1)
        target = out + (batch * rows + i[:, None]) * columns + 2 * j[None, :]
        inside = (i[:, None] < rows) & (2 * j[None, :] < columns)
        for side in tl.static_range(2):
            code = (total >> (16 * side)).to(tl.int16)
            if IS_BFLOAT:
                value = code.to(tl.bfloat16, bitcast=True).to(tl.float32)
            else:
                value = code.to(tl.float16, bitcast=True).to(tl.float32)
            tl.store(target + side, value, mask=inside & (2 * j[None, :] + side < columns))


@triton.jit
def lean_kernel(
    a, b, out, levels, rows, columns, depth, chunk, LEVEL: tl.constexpr, LOW: tl.constexpr, UP: tl.constexpr,
    SHARE_ROWS: tl.constexpr, SHARE_COLUMNS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Every sum rounded to nearest-even in float32."""
    batch = tl.program_id(2).to(tl.int64)
    if _level(levels, batch, SHARE_ROWS, SHARE_COLUMNS) == LEVEL:
        i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        left = a + batch * depth * rows + i
        right = b + batch * depth * columns + j
        total = tl.zeros((ROWS, COLUMNS), tl.float32)
        for first in range(0, depth, chunk):
            partial = tl.zeros((ROWS, COLUMNS), tl.float32)
            for _ in range(first, tl.minimum(first + chunk, depth)):
                x = tl.load(left, mask=i < rows, other=0.0)
                y = tl.load(right, mask=j < columns, other=0.0)
                # Moving the pointers keeps 64-bit products, which large matrices need, out of the loop.
                left += rows
                right += columns
                partial = _lift(x[:, None] * y[None, :] + partial, LOW, UP)
            total = tl.where(first == 0, partial, _lift(total + partial, LOW, UP))
        target = out + (batch * rows + i[:, None]) * columns + j[None, :]
        tl.store(target, total, mask=(i[:, None] < rows) & (j[None, :] < columns))


@triton.jit
def wide_kernel(
    a, b, out, levels, keys, integers, reals, rows, columns, depth, chunk, outputs, last_block,
    LEVEL: tl.constexpr, IS_ODD: tl.constexpr, HARDWARE: tl.constexpr, MODE: tl.constexpr, DRAW_BITS: tl.constexpr,
    LOW: tl.constexpr, UP: tl.constexpr, LIMIT: tl.constexpr, BEYOND: tl.constexpr,
    SHARE_ROWS: tl.constexpr, SHARE_COLUMNS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Every sum rounded in float64, as are the operands: to nearest, toward zero or at random.

    `IS_ODD`: sums are rounded to odd first, which is right for all finite numbers; else float64 sums are good enough.
    """
    batch = tl.program_id(2).to(tl.int64)
    if _level(levels, batch, SHARE_ROWS, SHARE_COLUMNS) == LEVEL:
        i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        inside = (i[:, None] < rows) & (j[None, :] < columns)
        element = (batch * rows + i[:, None]) * columns + j[None, :]
        number = element.to(tl.uint32)
        base = 0 * batch
        left = a + batch * depth * rows + i
        right = b + batch * depth * columns + j
        total = tl.zeros((ROWS, COLUMNS), tl.float64)
        word = _still_word(number, MODE)
        for first in range(0, depth, chunk):
            partial = tl.zeros((ROWS, COLUMNS), tl.float64)
            for _ in range(first, tl.minimum(first + chunk, depth)):
                x = tl.load(left, mask=i < rows, other=0.0)
                y = tl.load(right, mask=j < columns, other=0.0)
                left += rows
                right += columns
                if MODE == 5:
                    word = _draw_near(base, number, keys, last_block, DRAW_BITS)
                exact = _multiply_add(x[:, None], y[None, :], partial, IS_ODD, HARDWARE)
                partial = _round_high(exact, word, MODE, DRAW_BITS, LOW, UP, LIMIT, BEYOND, HARDWARE)
                base += outputs
            if MODE == 5:
                word = _draw_near(base, number, keys, last_block, DRAW_BITS)
            joined = tl.where(first == 0, partial, _add_odd(total, partial, MODE))
            total = _round_wide(joined, word.to(tl.int64), MODE, DRAW_BITS, integers + 6, reals + 12)
            base += outputs
        tl.store(out + element, total.to(tl.float32), mask=inside)


@triton.jit
def exact_kernel(
    a, b, out, levels, keys, integers, reals, rows, columns, depth, chunk, outputs,
    HAS_PRODUCT: tl.constexpr, PRODUCT_MODE: tl.constexpr, PARTIAL_MODE: tl.constexpr, MODE: tl.constexpr,
    DRAW_BITS: tl.constexpr, SHARE_ROWS: tl.constexpr, SHARE_COLUMNS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Every rounding exact.

    `integers` and `reals` hold the grids of products, partial sums and totals, one after another.
    """
    batch = tl.program_id(2).to(tl.int64)
    rows_wide, columns_wide = rows + 0 * batch, columns + 0 * batch  # offsets may pass 32 bits
    if _level(levels, batch, SHARE_ROWS, SHARE_COLUMNS) == 0:
        i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        inside = (i[:, None] < rows) & (j[None, :] < columns)
        element = tl.where(inside, (batch * rows + i[:, None]) * columns + j[None, :], 0)
        index = element
        left = a + batch * depth * rows + i
        right = b + batch * depth * columns + j
        total = tl.zeros((ROWS, COLUMNS), tl.float64)
        for first in range(0, depth, chunk):
            partial = tl.zeros((ROWS, COLUMNS), tl.float64)
            for k in range(first, tl.minimum(first + chunk, depth)):
                x = tl.load(left + k * rows_wide, mask=i < rows, other=0.0).to(tl.float64)
                y = tl.load(right + k * columns_wide, mask=j < columns, other=0.0).to(tl.float64)
                product = x[:, None] * y[None, :]
                if HAS_PRODUCT:
                    word = _draw(index, keys, PRODUCT_MODE, DRAW_BITS)
                    product = _round_wide(product, word, PRODUCT_MODE, DRAW_BITS, integers, reals)
                    index += outputs
                word = _draw(index, keys, PARTIAL_MODE, DRAW_BITS)
                exact = _add_odd(partial, product, PARTIAL_MODE)
                partial = _round_wide(exact, word, PARTIAL_MODE, DRAW_BITS, integers + 3, reals + 6)
                index += outputs
            joined = tl.where(first == 0, partial, _add_odd(total, partial, MODE))
            word = _draw(index, keys, MODE, DRAW_BITS)
            total = _round_wide(joined, word, MODE, DRAW_BITS, integers + 6, reals + 12)
            index += outputs
        tl.store(out + element, total.to(tl.float32), mask=inside)
