"""Products of codes by tables on a GPU, one running sum per output."""

import triton
import triton.language as tl


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
