"""MAC units on a GPU that add many products at once, in Triton: on tensor cores, or in float32 within chunks.

Triton's interpreter runs `native_kernel` on a CPU, which is how it is tested without a GPU. Its left operand is
transposed: (batches, K, M).
"""

import triton
import triton.language as tl

from presilicon.formats.mac.triton_rounding import _join


@triton.jit
def native_kernel(
    a, b, out, keys, last_block, integers, reals, rows, columns, depth, chunk, outputs,
    JOIN: tl.constexpr, MODE: tl.constexpr, DRAW_BITS: tl.constexpr, LOW: tl.constexpr, UP: tl.constexpr,
    LIMIT: tl.constexpr, BEYOND: tl.constexpr, OVER: tl.constexpr, HARDWARE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Fused float32 sums within chunks, rounded at the chunks' ends."""
    batch = tl.program_id(2).to(tl.int64)
    rows_wide, columns_wide = rows + 0 * batch, columns + 0 * batch  # offsets may pass 32 bits
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (i[:, None] < rows) & (j[None, :] < columns)
    element = tl.where(inside, (batch * rows + i[:, None]) * columns + j[None, :], 0)
    base = 0 * batch
    left = a + batch * depth * rows
    right = b + batch * depth * columns
    total = tl.full((ROWS, COLUMNS), -0.0, tl.float32)
    for first in range(0, depth, chunk):
        partial = tl.zeros((ROWS, COLUMNS), tl.float32)
        last = tl.minimum(first + chunk, depth)
        if HARDWARE:
            for begin in range(first, last, DEPTH):
                k = (begin + tl.arange(0, DEPTH)).to(tl.int64)
                x_inside = (k[None, :] < last) & (i[:, None] < rows)
                y_inside = (k[:, None] < last) & (j[None, :] < columns)
                x = tl.load(left + k[None, :] * rows + i[:, None], mask=x_inside, other=0.0)
                # Beyond the end 0 x -0 = -0 is added, which changes no sum, not even -0.
                y = tl.load(right + k[:, None] * columns + j[None, :], mask=y_inside, other=-0.0)
                partial = tl.dot(x, y, partial, input_precision="ieee")
        else:
            for k in range(first, last):
                x = tl.load(left + k * rows_wide + i, mask=i < rows, other=0.0)
                y = tl.load(right + k * columns_wide + j, mask=j < columns, other=0.0)
                partial = tl.fma(
                    tl.broadcast_to(x[:, None], (ROWS, COLUMNS)), tl.broadcast_to(y[None, :], (ROWS, COLUMNS)), partial
                )
        base += (last - first).to(tl.int64) * outputs
        total = _join(
            total, partial, first == 0, base, element, keys, last_block, integers, reals,
            JOIN, MODE, DRAW_BITS, LOW, UP, LIMIT, BEYOND, OVER, HARDWARE,
        )  # fmt: skip
        base += outputs
    tl.store(out + element, total, mask=inside)


@triton.jit
def chunk_kernel(
    a, b, out, keys, last_block, integers, reals, rows, columns, depth, outputs,
    a_batch, a_row, a_depth, b_batch, b_depth, b_column,
    JOIN: tl.constexpr, MODE: tl.constexpr, DRAW_BITS: tl.constexpr, LOW: tl.constexpr, UP: tl.constexpr,
    LIMIT: tl.constexpr, BEYOND: tl.constexpr, OVER: tl.constexpr,
    WIDTH: tl.constexpr, STEPS: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Products on tensor cores, whose sums of STEPS x DEPTH products are rounded and added one after another.

    An instruction adds and rounds `WIDTH` products. `EVEN`: tiles divide all sizes, so nothing is masked.
    """
    down, across = tl.cdiv(rows, ROWS), tl.cdiv(columns, COLUMNS)
    program = tl.program_id(0) % (down * across)
    batch = (tl.program_id(0) // (down * across)).to(tl.int64)
    group = program // (GROUP * across)
    height = tl.minimum(down - group * GROUP, GROUP)
    i = (group * GROUP + (program % (GROUP * across)) % height) * ROWS + tl.arange(0, ROWS)
    j = (program % (GROUP * across)) // height * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, DEPTH)
    inside = (i[:, None] < rows) & (j[None, :] < columns)
    element = tl.where(inside, (batch * rows + i[:, None]) * columns + j[None, :], 0)
    base = 0 * batch
    left = a + batch * a_batch + i[:, None].to(tl.int64) * a_row + k[None, :] * a_depth
    right = b + batch * b_batch + k[:, None] * b_depth + j[None, :].to(tl.int64) * b_column
    total = tl.full((ROWS, COLUMNS), -0.0, tl.float32)
    for first in range(0, depth, STEPS * DEPTH):
        partial = tl.zeros((ROWS, COLUMNS), tl.float32)
        for step in tl.range(STEPS):
            rest = depth - first - step * DEPTH
            if EVEN:
                x, y = tl.load(left), tl.load(right)
            else:
                x = tl.load(left, mask=(i[:, None] < rows) & (k[None, :] < rest), other=0.0)
                y = tl.load(right, mask=(k[:, None] < rest) & (j[None, :] < columns), other=0.0)
            partial = tl.dot(x, y, partial, max_num_imprecise_acc=STEPS * DEPTH)
            left += DEPTH * a_depth
            right += DEPTH * b_depth
        base += tl.cdiv(tl.minimum(depth - first, STEPS * DEPTH), WIDTH).to(tl.int64) * outputs
        total = _join(
            total, partial, first == 0, base, element, keys, last_block, integers, reals,
            JOIN, MODE, DRAW_BITS, LOW, UP, LIMIT, BEYOND, OVER, True,
        )  # fmt: skip
        base += outputs
    target = out + (batch * rows + i[:, None]) * columns + j[None, :]
    if EVEN:
        tl.store(target, total)
    else:
        tl.store(target, total, mask=inside)


@triton.jit
def _scales(a, b, i, j, rows, columns, a_row, b_column):
    """The products of the scales of rows and columns."""
    left = tl.load(a + i * a_row, mask=i < rows, other=0.0)
    right = tl.load(b + j * b_column, mask=j < columns, other=0.0)
    return left[:, None] * right[None, :]


@triton.jit
def dot_kernel(
    a, b, out, bias, a_scales, b_scales, rows, columns, depth, chunk, splits, stacks,
    a_batch, a_stack, a_row, a_depth, b_batch, b_stack, b_depth, b_column, out_split, out_matrix,
    a_scale_row, a_scale_block, b_scale_block, b_scale_column,
    SCALES: tl.constexpr, HAS_BIAS: tl.constexpr, PROMOTION: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Products on tensor cores, instruction after instruction along the reduction axis, which may be split in chunks.

    The sums of each chunk go to a matrix of their own. `EVEN`: tiles divide all sizes, so nothing is masked.
    `SCALES` 1: sums are multiplied by the scales of rows and columns, 2: the sum of each tile of the reduction is.
    Launch without the fusion of multiplications and additions.
    """
    down, across = tl.cdiv(rows, ROWS), tl.cdiv(columns, COLUMNS)
    program = tl.program_id(0) % (down * across)
    copy = tl.program_id(0) // (down * across)
    # Programs of a group of row tiles run side by side, so that they find the same columns in the cache.
    group = program // (GROUP * across)
    height = tl.minimum(down - group * GROUP, GROUP)
    tile_row = group * GROUP + (program % (GROUP * across)) % height
    tile_column = (program % (GROUP * across)) // height
    batch, split = (copy // splits).to(tl.int64), (copy % splits).to(tl.int64)
    i = tile_row * ROWS + tl.arange(0, ROWS)
    j = tile_column * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, DEPTH)
    first = split * chunk
    size = tl.minimum(depth - first, chunk)
    left = a + (batch // stacks) * a_batch + (batch % stacks) * a_stack
    right = b + (batch // stacks) * b_batch + (batch % stacks) * b_stack
    left += i[:, None].to(tl.int64) * a_row + (first + k)[None, :] * a_depth
    right += (first + k)[:, None] * b_depth + j[None, :].to(tl.int64) * b_column
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, size, DEPTH):
        if EVEN:
            x, y = tl.load(left), tl.load(right)
        else:
            x = tl.load(left, mask=(i[:, None] < rows) & (k[None, :] < size - start), other=0.0)
            y = tl.load(right, mask=(k[:, None] < size - start) & (j[None, :] < columns), other=0.0)
        if SCALES == 2:
            scale = _scales(a_scales, b_scales, i, j, rows, columns, a_scale_row, b_scale_column)
            total += tl.dot(x, y) * scale
            a_scales += a_scale_block
            b_scales += b_scale_block
        else:
            total = tl.dot(x, y, total, max_num_imprecise_acc=PROMOTION)
        left += DEPTH * a_depth
        right += DEPTH * b_depth
    if SCALES == 1:
        total = total * _scales(a_scales, b_scales, i, j, rows, columns, a_scale_row, b_scale_column)
    if HAS_BIAS:
        total += tl.load(bias + j, mask=j < columns, other=0.0)[None, :]
    target = out + split * out_split + batch * out_matrix + i[:, None].to(tl.int64) * columns + j[None, :]
    if EVEN:
        tl.store(target, total)
    else:
        tl.store(target, total, mask=(i[:, None] < rows) & (j[None, :] < columns))


@triton.jit
def _input(place, GAP: tl.constexpr, size):
    """The input at a place of the spread inputs, and whether there is one."""
    if GAP == 1:
        return place, (place >= 0) & (place < size)
    return place // GAP, (place >= 0) & (place % GAP == 0) & (place // GAP < size)


@triton.jit
def _corner(x, position, across, down, step_y, step_x, pad_y, pad_x, x_image):
    """The column and row of the input under a kernel's first element, and its image."""
    image, place = position // (across * down), position % (across * down)
    return (place % across) * step_x - pad_x, (place // across) * step_y - pad_y, x + image.to(tl.int64) * x_image


@triton.jit
def convolution_kernel(
    x, other, out, bias, rows, columns, depth, chunk, splits, channels, height, width, across, down, kernel_width,
    x_image, x_channel, x_row, x_column, other_group, other_outer, other_depth, out_split, out_group, out_row,
    step_y, step_x, pad_y, pad_x, dilation_y, dilation_x, GAP_Y: tl.constexpr, GAP_X: tl.constexpr,
    ON_RIGHT: tl.constexpr, UNIFORM: tl.constexpr, HAS_BIAS: tl.constexpr, PROMOTION: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """`dot_kernel` with patches (positions, taps) as the left operand, or `ON_RIGHT` as the right one.

    A tap is an element of the kernel and a channel. `UNIFORM`: all taps of a tile have the same element.
    """
    tiles = tl.cdiv(rows, ROWS) * tl.cdiv(columns, COLUMNS)
    program, copy = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    group, split = (copy // splits).to(tl.int64), (copy % splits).to(tl.int64)
    # Columns vary fastest, so that programs side by side read the same patches.
    i = (program // tl.cdiv(columns, COLUMNS)) * ROWS + tl.arange(0, ROWS)
    j = (program % tl.cdiv(columns, COLUMNS)) * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, DEPTH)
    first = (copy % splits) * chunk
    size = tl.minimum(depth - first, chunk)
    x += group * channels * x_channel
    other += group * other_group
    end = first + size
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    if not ON_RIGHT:
        left_column, left_y, base = _corner(x, i, across, down, step_y, step_x, pad_y, pad_x, x_image)
    for begin in range(first, end, DEPTH):
        at = begin + k
        if ON_RIGHT:
            left_column, left_y, base = _corner(x, at, across, down, step_y, step_x, pad_y, pad_x, x_image)
            tap, has_tap, has_position = j, j < columns, at < end
            first_tap = (program % tl.cdiv(columns, COLUMNS)) * COLUMNS
        else:
            tap, has_tap, has_position, first_tap = at, at < end, i < rows, begin
        if UNIFORM:
            element = first_tap // channels
            y, has_y = _input(left_y + (element // kernel_width) * dilation_y, GAP_Y, height)
            column, has_x = _input(left_column + (element % kernel_width) * dilation_x, GAP_X, width)
            channel = tap - element * channels
            source = (base + y * x_row + column * x_column)[:, None] + (channel * x_channel)[None, :]
            inside = (has_y & has_x & has_position)[:, None] & has_tap[None, :]
        else:
            element = tap // channels
            y, has_y = _input(left_y[:, None] + ((element // kernel_width) * dilation_y)[None, :], GAP_Y, height)
            across_kernel = (element % kernel_width) * dilation_x
            column, has_x = _input(left_column[:, None] + across_kernel[None, :], GAP_X, width)
            source = base[:, None] + y * x_row + column * x_column + ((tap % channels) * x_channel)[None, :]
            inside = has_y & has_x & has_position[:, None] & has_tap[None, :]
        patch = tl.load(source, mask=inside, other=0.0)
        if ON_RIGHT:
            left = other + i[:, None].to(tl.int64) * other_outer + at[None, :].to(tl.int64) * other_depth
            error = tl.load(left, mask=(i < rows)[:, None] & has_position[None, :], other=0.0)
            total = tl.dot(error, patch, total, max_num_imprecise_acc=PROMOTION)
        else:
            right = other + at[:, None] * other_depth + j[None, :] * other_outer
            weight = tl.load(right, mask=has_tap[:, None] & (j < columns)[None, :], other=0.0)
            total = tl.dot(patch, weight, total, max_num_imprecise_acc=PROMOTION)
    if HAS_BIAS:
        total += tl.load(bias + group * columns + j, mask=j < columns, other=0.0)[None, :]
    target = out + split * out_split + group * out_group + i[:, None].to(tl.int64) * out_row + j[None, :]
    tl.store(target, total, mask=(i[:, None] < rows) & (j[None, :] < columns))


@triton.jit
def transpose_kernel(x, out, rows, columns, TILE: tl.constexpr):
    """Matrices (columns, rows) in memory as matrices (rows, columns)."""
    matrix = tl.program_id(1).to(tl.int64) * rows * columns
    across = tl.cdiv(columns, TILE)
    i = (tl.program_id(0) // across) * TILE + tl.arange(0, TILE)
    j = (tl.program_id(0) % across) * TILE + tl.arange(0, TILE)
    inside = (j[:, None] < columns) & (i[None, :] < rows)
    tile = tl.load(x + matrix + j[:, None].to(tl.int64) * rows + i[None, :], mask=inside)
    tl.store(out + matrix + i[:, None].to(tl.int64) * columns + j[None, :], tl.trans(tile), mask=tl.trans(inside))


@triton.jit
def add_chunks_kernel(parts, out, bias, count, columns, splits, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    """The sums of chunks added one after another, and the bias of the column."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    source = parts + index
    total = tl.load(source, mask=inside)
    for _ in range(1, splits):
        source += count
        total += tl.load(source, mask=inside)
    if HAS_BIAS:
        total += tl.load(bias + index % columns, mask=inside)
    tl.store(out + index, total, mask=inside)


@triton.jit
def table_kernel(
    left, right, out, index, rows_of_sums, joins, rows, columns, depth, size, ZERO: tl.constexpr, BITS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Outputs of a tile; `left` is transposed: (batches, depth, rows)."""
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    batch = tl.program_id(2).to(tl.int64)
    a_at = left + batch * depth * rows + m
    b_at = right + batch * depth * columns + n
    total = tl.full((ROWS, COLUMNS), ZERO, tl.int32)
    for begin in range(0, depth, size):
        part = tl.full((ROWS, COLUMNS), ZERO, tl.int32)
        for k in range(begin, tl.minimum(begin + size, depth)):
            x = tl.load(a_at + k * rows, mask=m < rows, other=0).to(tl.int32)
            y = tl.load(b_at + k * columns, mask=n < columns, other=0).to(tl.int32)
            line = tl.load(index + ((x << BITS)[:, None] | y[None, :])).to(tl.int32)
            part = tl.load(rows_of_sums + ((line << BITS) | part)).to(tl.int32)
        if begin == 0:
            total = part
        else:
            total = tl.load(joins + ((total << BITS) | part)).to(tl.int32)
    inside = (m < rows)[:, None] & (n < columns)[None, :]
    place = (batch * rows + m)[:, None] * columns + n[None, :]
    tl.store(out + place, total.to(tl.uint8), mask=inside)
