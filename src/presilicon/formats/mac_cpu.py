"""The compiled kernels put to work: which one for which unit, over as many threads as torch uses."""

import math

import numpy as np
import torch
from torch import Tensor

from presilicon.formats import threads
from presilicon.formats.grid import Grid, grid_of
from presilicon.formats.mac import FLOAT32
from presilicon.formats.mac_kernels import (
    LIFTED,
    ORDER_NUMBERS,
    TILE,
    exact_kernel,
    lean_kernel,
    wide_grid,
)
from presilicon.formats.mac_plan import Plan
from presilicon.formats.numba_kernels import NEAREST_EVEN, lfsr_table, mode_number
from presilicon.formats.rounding import Key, Stochastic

_FLOAT32_GRID = grid_of(FLOAT32)
_MOST_LEAN_BITS = 11
_ANY_PRODUCT = (48, -400, math.inf)


def multiply(a: Tensor, b: Tensor, plan: Plan, key: Key) -> Tensor:
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
        _kernel_mode(plan.product_mode, plan.product) if plan.product is not None else NEAREST_EVEN,
        _kernel_mode(plan.partial_mode, plan.partial),
        _kernel_mode(plan.total_mode, plan.total),
    )
    exact = exact_kernel(ORDER_NUMBERS[plan.order], has_product, *modes)
    grids = tuple(wide_grid(grid) for grid in (plan.product or plan.partial, plan.partial, plan.total))
    native, lean = is_native(plan), is_leanable(plan)
    lean_arguments = _lean_arguments(plan) if native or lean else None

    def work(start: int, stop: int) -> None:
        if lean_arguments is not None:
            kernel = lean_kernel(native, not has_product, modes[2])
            kernel(left, right, target, done, start, stop, chunk, *lean_arguments, grids[2], *draws)
        if not done[start:stop].all():
            exact(left, right, target, done, start, stop, chunk, plan.width, plan.align_bits, *grids, *draws)

    threads.split(work, batches * rows, multiple=1, weight=columns * depth)
    return out


def is_native(plan: Plan) -> bool:
    """Whether sums within a chunk are float32 sums, one after another, which the processor computes itself."""
    plain = plan.partial == _FLOAT32_GRID and mode_number(plan.partial_mode) == NEAREST_EVEN
    product = plan.product in (None, _FLOAT32_GRID) and (plan.product is None or plan.product_mode == plan.partial_mode)
    return plain and product and plan.order == "lanes" and plan.width == 1


def is_leanable(plan: Plan) -> bool:
    """Whether sums rounded to nearest-even could be computed in float32, if the numbers allow it."""
    nearest = all(mode == "nearest-even" for mode in (plan.product_mode, plan.partial_mode, plan.total_mode))
    plain = all(grid.tiny == 0 and grid.negative_zero for grid in (plan.partial, plan.product or plan.partial))
    narrow = 1 <= plan.partial.mantissa < _MOST_LEAN_BITS and plan.partial == plan.total
    return nearest and plain and narrow and plan.order == "lanes" and plan.width == 1


def _lean_arguments(plan: Plan) -> tuple[object, ...]:
    grid = plan.partial
    spare = 23 - grid.mantissa
    low, up = np.uint32(grid.low << 23), np.uint32((spare << 23) + 0x400000)
    products = _ANY_PRODUCT
    if plan.product is not None:
        product = plan.product
        products = (product.mantissa + 1, product.low - 127 - product.mantissa, _largest(product))
    return low, up, grid.mantissa + 1, min(_largest(grid), 2.0 ** (126 - spare)), products


def _largest(grid: Grid) -> float:
    """The largest magnitude that has either sign."""
    return float(np.uint32(min(grid.max_positive, grid.max_negative)).view(np.float32))


def _kernel_mode(mode: str | Stochastic, grid: Grid) -> int:
    number = mode_number(mode)
    return LIFTED if number == NEAREST_EVEN and grid.mantissa > 0 else number


def _keys(plan: Plan, key: Key, draws: int) -> np.ndarray:
    """The key words of every block of 2^32 draws."""
    blocks = 1 + (draws >> 32) if plan.source is not None else 1
    words = [key.words(block) for block in range(blocks)] if plan.source is not None else [(0, 0)]
    return np.array(words, dtype=np.uint32)
