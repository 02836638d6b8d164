"""A tensor core in integers, as a Triton kernel: it shares nothing with the package but the description of the unit.

Every operand is a sign, an exponent and a significand. Products of significands are shifted to the largest exponent,
which cuts them toward zero, and added as 64-bit integers; the sum is then cut to the bits of the accumulator. For
results that are not subnormal and do not overflow.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from presilicon.formats import MacUnit


@triton.jit
def _parts(x, FLOOR: tl.constexpr):
    """Sign (-1 or 1), exponent and significand in steps of 2^(exponent - 23) of float32 numbers."""
    bits = x.to(tl.int32, bitcast=True)
    field = (bits >> 23) & 0xFF
    significand = (bits & 0x7FFFFF) | tl.where(field > 0, 0x800000, 0)
    exponent = tl.maximum(field, 1) - 127
    floor = tl.maximum(exponent, FLOOR)
    return tl.where(bits < 0, -1, 1), floor, (significand >> tl.minimum(floor - exponent, 31)).to(tl.int64)


@triton.jit
def _kernel(
    a, b, out, columns, depth,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, WIDTH: tl.constexpr, KEPT: tl.constexpr, MANTISSA: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, depth, WIDTH):
        sign, exponent, significand = _parts(total, -126)
        top = tl.where(significand == 0, -133, exponent)
        for k in range(WIDTH):
            _, ea, ma = _parts(tl.load(a + i * depth + first + k), LEFT)
            _, eb, mb = _parts(tl.load(b + j * depth + first + k), RIGHT)
            both = ma[:, None] * mb[None, :]
            top = tl.maximum(top, tl.where(both == 0, -133, ea[:, None] + eb[None, :]))
        # The old sum in steps of 2^(top - KEPT).
        units = ((significand << 20) >> tl.minimum(43 - KEPT + top - exponent, 63)) * sign
        for k in range(WIDTH):
            sa, ea, ma = _parts(tl.load(a + i * depth + first + k), LEFT)
            sb, eb, mb = _parts(tl.load(b + j * depth + first + k), RIGHT)
            shift = tl.minimum(46 - KEPT + top - ea[:, None] - eb[None, :], 63)
            units += ((ma[:, None] * mb[None, :]) >> shift) * (sa[:, None] * sb[None, :])
        # Cut the sum to the accumulator's significand: the magnitude's bits below its first MANTISSA + 1.
        magnitude = tl.abs(units)
        length = ((magnitude.to(tl.float64).to(tl.int64, bitcast=True) >> 52) & 0x7FF) - 1022
        drop = tl.maximum(length - MANTISSA - 1, 0)
        magnitude = (magnitude >> drop) << drop
        scale = ((top - KEPT + 1023).to(tl.int64) << 52).to(tl.float64, bitcast=True)
        total = (tl.where(units < 0, -magnitude, magnitude).to(tl.float64) * scale).to(tl.float32)
    tl.store(out + i[:, None].to(tl.int64) * columns + j[None, :], total)


def integer_matmul(a: Tensor, b: Tensor, unit: MacUnit) -> Tensor:
    """(M, K) by (N, K) as `unit` adds it up; 32 divides M and N, and the unit's width K."""
    assert unit.left is not None
    assert unit.right is not None
    out = torch.empty(len(a), len(b), device=a.device)
    _kernel[(len(a) // 32, len(b) // 32)](
        a.contiguous(), b.contiguous(), out, len(b), a.shape[1], LEFT=1 - unit.left.exponent_bias,
        RIGHT=1 - unit.right.exponent_bias, WIDTH=unit.width, KEPT=unit.align_bits,
        MANTISSA=unit.accumulate.significand_bits - 1, ROWS=32, COLUMNS=32,
    )  # fmt: skip
    return out
