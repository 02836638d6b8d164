"""Matrix products on a CPU: the choice of kernels for a unit, and their work split over torch's threads."""

import math

import numpy as np
import torch
from torch import Tensor

from presilicon.base import split_over_threads
from presilicon.formats.kernels.grid import NEAREST_EVEN, value_of_bits
from presilicon.formats.kernels.numba_kernels import lfsr_table
from presilicon.formats.mac.numba_kernels import (
    DRAWN,
    NARROW,
    NATIVE,
    ORDER_NUMBERS,
    SEPARATE,
    TILE,
    WIDE,
    exact_kernel,
    floors_of,
    lean_kernel,
    tree_kernel,
)
from presilicon.formats.mac.plan import MacPlan, kernel_mode, wide_grid
from presilicon.formats.rounding import Key


def multiply(a: Tensor, b: Tensor, plan: MacPlan, key: Key) -> Tensor:
    """The product of (batches, M, K) and (batches, K, N) float32 tensors."""
    batches, rows, depth = a.shape
    columns = b.shape[2]
    out = torch.zeros(batches, rows, columns)
    if out.numel() == 0 or depth == 0:
        return out
    left, right, target = a.contiguous().numpy(), b.contiguous().numpy(), out.numpy()
    done = np.zeros((batches * rows, -(-columns // TILE)), dtype=np.bool_)
    chunk = plan.chunk_size(depth)
    source = plan.source
    draws = (
        _keys(plan, key, out.numel() * plan.rounding_count(depth)),
        lfsr_table(source is not None and source.source == "lfsr"),
        0 if source is None else source.bits,
    )
    has_product = plan.product is not None
    modes = (
        kernel_mode(plan.product_mode, plan.product) if plan.product is not None else NEAREST_EVEN,
        kernel_mode(plan.partial_mode, plan.partial),
        kernel_mode(plan.total_mode, plan.total),
    )
    exact = exact_kernel(ORDER_NUMBERS[plan.order], has_product, *modes)
    grids = tuple(wide_grid(grid) for grid in (plan.product or plan.partial, plan.partial, plan.total))
    steps, floors = _lean_steps(plan), floors_of(plan)

    def work(start: int, stop: int) -> None:
        if plan.is_leanable_tree:
            lowest, arguments = plan.partial.low - 127 - 23, _lean_arguments(plan, NARROW, chunk, depth)
            tree_kernel(left, right, target, done, start, stop, chunk, lowest, *arguments)
        for step in steps:
            kernel = lean_kernel(step, modes[2])
            arguments = _lean_arguments(plan, step, chunk, depth)
            kernel(left, right, target, done, start, stop, chunk, *arguments, grids[2], *draws)
            if done[start:stop].all():
                return
        exact(left, right, target, done, start, stop, chunk, plan.width, plan.align_bits, floors, *grids, *draws)

    split_over_threads(work, batches * rows, multiple=1, weight=columns * depth)
    return out


def _lean_steps(plan: MacPlan) -> list[int]:
    """The lean kernels to try on each tile, fastest first."""
    if plan.is_native:
        return [NATIVE if plan.product is None else SEPARATE]
    if plan.is_drawable:
        return [DRAWN]
    return [NARROW] * plan.is_leanable + [WIDE] * plan.is_wide_leanable


def _lean_arguments(plan: MacPlan, step: int, chunk: int, depth: int) -> tuple[object, ...]:
    grid, limits = plan.partial, plan.lean_limits
    if step == DRAWN and plan.source is not None:
        shift, keep = np.int64(52 - grid.mantissa - 32), np.int64(-1 << (52 - grid.mantissa))
        count, last = chunk + math.ceil(depth / chunk), grid.low - 127 - grid.mantissa
        growth = (math.exp(min(count * 2.0**-grid.mantissa, 600)), count * 2.0**last, last)
        return shift, keep, limits.bits, value_of_bits(min(grid.max_positive, grid.max_negative)), growth
    products = (limits.product_bits, limits.product_last, limits.product_largest)
    if step == WIDE:
        low, up = np.int64(grid.low - 127 + 1023 << 52), np.int64((52 - grid.mantissa << 52) + (1 << 51))
        return low, up, limits.bits, limits.largest, products
    narrow_low, narrow_up = np.uint32(grid.low << 23), np.uint32((23 - grid.mantissa << 23) + 0x400000)
    return narrow_low, narrow_up, limits.bits, limits.largest, products


def _keys(plan: MacPlan, key: Key, draws: int) -> np.ndarray:
    """The key words of every block of 2^32 draws."""
    blocks = 1 + (draws >> 32) if plan.source is not None else 1
    words = [key.words(block) for block in range(blocks)] if plan.source is not None else [(0, 0)]
    return np.array(words, dtype=np.uint32)
