"""Levels of arithmetic: which kernel gives the exact bits of a tile of outputs on a GPU."""

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from presilicon.formats.families.float import Float
from presilicon.formats.kernels.grid import Grid, grid_of, is_plain, value_of_bits
from presilicon.formats.mac import plain, triton_sums
from presilicon.formats.mac.plan import NEAREST_EVEN, MacPlan

EXACT, ODD, WIDE, NARROW, HALF = range(5)
"""Kernels by their level: a tile of outputs goes to the highest level that gives the exact bits of its numbers."""
LEVEL_TILE = (64, 256)
"""Rows and columns of outputs that share a level: a multiple of every tile."""
RANGE_TILE = (16, 128)
"""Rows and numbers per row that a program of `range_kernel` reads at once."""


def levels_of(plan: MacPlan, outputs: int, hardware: bool = True) -> list[int]:
    """The levels to try on each tile, highest first."""
    half = hardware and plan.is_wide_leanable and half_type(plan) is not None
    narrow = plan.is_leanable and not half
    wide = _is_wide(plan) and outputs < 2**32
    return [HALF] * half + [NARROW] * narrow + [WIDE, ODD] * wide


@lru_cache(maxsize=256)
def half_type(plan: MacPlan) -> torch.dtype | None:
    """The 16-bit type of the processor whose multiply-add is the unit's."""
    types = {grid_of(Float(5, 10)): torch.float16, grid_of(Float(8, 7)): torch.bfloat16}
    return types.get(plan.partial) if plan.product in (None, plan.partial) else None


def _is_wide(plan: MacPlan) -> bool:
    """Whether `wide_kernel` has the unit's grid and rounding."""
    mode = plan.partial_mode
    return (
        plan.product is None and is_plain_float(plan.partial) and mode == plan.total_mode and mode not in ("up", "down")
    )


def is_plain_float(grid: Grid) -> bool:
    """Whether a grid is that of a float with subnormals, -0, equal limits on both sides and 1 to 20 mantissa bits."""
    return is_plain(grid) and 0 < grid.mantissa <= 20


class _Ranges(NamedTuple):
    """Ranges of a tile's rows: largest magnitude, exponent of the last bit, longest significand, sum of magnitudes."""

    largest: Tensor
    last: Tensor
    bits: Tensor
    norm: Tensor


def tile_levels(a: Tensor, b: Tensor, plan: MacPlan, steps: list[int]) -> Tensor:
    """For each tile of outputs, the highest level that gives the exact bits: see `mac.numba_kernels.is_lean`."""
    down, across = math.ceil(a.shape[1] / LEVEL_TILE[0]), math.ceil(b.shape[2] / LEVEL_TILE[1])
    levels = torch.full((a.shape[0], down, across), EXACT, dtype=torch.int32, device=a.device)
    if not steps:
        return levels
    left = _Ranges(*(x.unsqueeze(2) for x in _ranges(a, LEVEL_TILE[0])))
    right = _Ranges(*(x.unsqueeze(1) for x in _ranges(b.mT, LEVEL_TILE[1])))
    finite = torch.isfinite(left.largest) & torch.isfinite(right.largest)
    zero = (left.largest == 0) | (right.largest == 0)
    for step in reversed(steps):
        if step == HALF:
            fits = _fits_half(left, plan) & _fits_half(right, plan)
        elif step == ODD:
            fits = finite
        else:
            fits = finite & (zero | _fits(left, right, plan, step))
        levels = torch.where(fits, step, levels)
    return levels


def _fits(left: _Ranges, right: _Ranges, plan: MacPlan, step: int) -> Tensor:
    """Whether sums in float32 or float64 have the exact bits once they are rounded."""
    limits, grid = plan.lean_limits, plan.partial
    significand, last = left.bits + right.bits, left.last + right.last
    high, total = left.largest * right.largest, left.norm * right.largest
    on_grid = last >= grid.low - 127 - grid.mantissa  # so are all sums below the lowest full binade
    if step == NARROW:
        fits = (significand <= limits.product_bits) & (last >= limits.product_last) & (high <= limits.product_largest)
        return on_grid & fits & (4.0 * total <= limits.largest) & (significand <= limits.bits) & (last >= -126)
    if plan.partial_mode == NEAREST_EVEN:
        near = plain.exponent_of(high) - last <= 52
        return on_grid & (significand + limits.bits <= 52) & ((significand <= limits.bits) | near)
    # Each rounding adds less than a step; sums are exact if they span no more bits than float64 has.
    count = min(plan.chunk or 2**20, 2**20)
    growth = math.exp(min(count * 2.0**-grid.mantissa, 600))
    bound = (total + count * 2.0 ** (grid.low - 127 - grid.mantissa)) * growth
    bound = bound.clamp(max=value_of_bits(grid.max_positive)) + high
    return on_grid & (plain.exponent_of(bound) - last <= 51)


def _fits_half(ranges: _Ranges, plan: MacPlan) -> Tensor:
    """Whether numbers are on the grid of the sums."""
    grid = plan.partial
    last = grid.low - 127 - grid.mantissa
    in_range = (ranges.last >= last) & (ranges.largest <= value_of_bits(grid.max_positive))
    return in_range & (ranges.bits <= grid.mantissa + 1)


def _ranges(x: Tensor, tile: int) -> _Ranges:
    """The ranges of every `tile` rows of a batch of matrices."""
    batches, rows, depth = x.shape
    largest, last, bits = (torch.empty(batches, rows, dtype=torch.int32, device=x.device) for _ in range(3))
    norm = torch.empty(batches, rows, dtype=torch.float64, device=x.device)
    triton_sums.range_kernel[(math.ceil(rows / RANGE_TILE[0]), batches)](
        x, largest, last, bits, norm, rows, depth, *x.stride(), ROWS=RANGE_TILE[0], DEPTH=RANGE_TILE[1]
    )
    return _Ranges(
        _per_tile(largest.view(torch.float32).to(torch.float64), tile, 0.0).amax(-1),
        _per_tile(last, tile, 1000).amin(-1),
        _per_tile(bits, tile, 1).amax(-1),
        _per_tile(norm, tile, 0.0).amax(-1),
    )


def _per_tile(x: Tensor, tile: int, filler: float) -> Tensor:
    padded = torch.nn.functional.pad(x, (0, -x.shape[-1] % tile), value=filler)
    return padded.reshape(*padded.shape[:-1], -1, tile)
