"""Matrix products on a GPU: the choice of Triton kernels for a unit and its tiles."""

import math

import torch
from torch import Tensor

from presilicon.formats.kernels.gpu_keys import rows_of
from presilicon.formats.kernels.grid import Grid, value_of_bits
from presilicon.formats.mac import plain, triton_kernels
from presilicon.formats.mac.plan import MacPlan
from presilicon.formats.rounding import Key, Stochastic

_MODES = {"nearest-even": 0, "nearest-away": 1, "toward-zero": 2, "up": 3, "down": 4}
_COUNTER, _LIFTED = 5, 7
LEAN_TILE, LEAN_WARPS = (64, 64), 4
"""Rows and columns of outputs per program: the fastest of those tried on an H200 (benchmarks/gpu_matmul.py --sweep)."""
NATIVE_TILE, NATIVE_DEPTH, NATIVE_WARPS = (64, 32), 32, 4
EXACT_TILE = (32, 32)
"""A divisor of `LEAN_TILE`."""


def multiply(a: Tensor, b: Tensor, plan: MacPlan, key: Key, dot: bool = True) -> Tensor:
    """The product of (batches, M, K) and (batches, K, N) float32 tensors on a GPU.

    `dot` lets chunks of float32 sums go through Triton's own product, which adds in order; its interpreter does not.
    Orders other than sequential sums, and shift registers, go through `plain`.
    """
    batches, rows, depth = a.shape
    columns = b.shape[2]
    source = plan.source
    if not plan.is_sequential or (source is not None and source.source == "lfsr") or a.numel() * b.numel() == 0:
        return plain.multiply(a, b, plan, key)
    out = torch.empty(batches, rows, columns, device=a.device)
    left, right = a.mT.contiguous(), b.contiguous()
    chunk, outputs = plan.chunk_size(depth), out.numel()
    keys = _keys(plan, key, outputs * plan.rounding_count(depth), a.device)
    integers, reals = _grids(plan, a.device)
    bits = 0 if source is None else source.bits
    sizes = (rows, columns, depth, chunk)
    mode = _mode(plan.total_mode, plan.total)
    if plan.is_native and plan.product is None:
        triton_kernels.native_kernel[(*_tiles(rows, columns, NATIVE_TILE), batches)](
            left, right, out, keys, integers, reals, *sizes, outputs, MODE=mode, DRAW_BITS=bits, DOT=dot,
            ROWS=NATIVE_TILE[0], COLUMNS=NATIVE_TILE[1], DEPTH=NATIVE_DEPTH, num_warps=NATIVE_WARPS,
        )  # fmt: skip
        return out
    down, across = _tiles(rows, columns, LEAN_TILE)
    if plan.is_leanable:
        flags = lean_tiles(a, b, plan, LEAN_TILE)
        low, up = plan.partial.low << 23, (23 - plan.partial.mantissa << 23) + 0x400000
        triton_kernels.lean_kernel[(down, across, batches)](
            left, right, out, flags, *sizes, LOW=low, UP=up, ROWS=LEAN_TILE[0], COLUMNS=LEAN_TILE[1],
            num_warps=LEAN_WARPS,
        )  # fmt: skip
    else:
        flags = torch.zeros(batches, down, across, dtype=torch.int32, device=a.device)
    share = LEAN_TILE[0] // EXACT_TILE[0], LEAN_TILE[1] // EXACT_TILE[1]
    product = plan.product or plan.partial
    triton_kernels.exact_kernel[(down * share[0], across * share[1], batches)](
        left, right, out, flags, keys, integers, reals, *sizes, outputs, HAS_PRODUCT=plan.product is not None,
        PRODUCT_MODE=_mode(plan.product_mode, product), PARTIAL_MODE=_mode(plan.partial_mode, plan.partial), MODE=mode,
        DRAW_BITS=bits, SHARE_ROWS=share[0], SHARE_COLUMNS=share[1], ROWS=EXACT_TILE[0], COLUMNS=EXACT_TILE[1],
    )  # fmt: skip
    return out


def _tiles(rows: int, columns: int, tile: tuple[int, int]) -> tuple[int, int]:
    return math.ceil(rows / tile[0]), math.ceil(columns / tile[1])


def lean_tiles(a: Tensor, b: Tensor, plan: MacPlan, tile: tuple[int, int]) -> Tensor:
    """For each tile of outputs, whether float32 arithmetic gives the exact bits: see `mac.numba_kernels.is_lean`."""
    limits = plan.lean_limits
    left, right = _ranges(a, tile[0]), _ranges(b.mT, tile[1])
    rows, columns = (tensor.unsqueeze(2) for tensor in left), (tensor.unsqueeze(1) for tensor in right)
    largest_a, smallest_a, bits_a, norm = rows
    largest_b, smallest_b, bits_b, _ = columns
    finite = torch.isfinite(largest_a) & torch.isfinite(largest_b)
    zero = (largest_a == 0) | (largest_b == 0)
    normal = (smallest_a >= 2.0**-126) & (smallest_b >= 2.0**-126)
    significand = bits_a + bits_b
    last = plain.exponent_of(smallest_a) + plain.exponent_of(smallest_b) - significand + 2
    exact = (significand <= limits.product_bits) & (last >= limits.product_last)
    exact &= largest_a * largest_b <= limits.product_largest
    small = 4.0 * norm * largest_b <= limits.largest
    lean = normal & exact & (significand <= limits.bits) & small & (last >= -126)
    return (finite & (zero | lean)).to(torch.int32).contiguous()


def _ranges(x: Tensor, tile: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Largest magnitude, smallest that is not 0, significant bits and largest sum of magnitudes, per `tile` rows."""
    magnitude = x.abs()
    significand = x.contiguous().view(torch.int32) & 0x7FFFFF | 0x800000
    lowest = (significand & -significand).to(torch.float32).view(torch.int32) >> 23
    bits = torch.where(magnitude == 0, 1, 24 - (lowest - 127)).to(torch.int64)
    smallest = torch.where(magnitude == 0, torch.inf, magnitude)
    largest, norm = magnitude.amax(-1).to(torch.float64), magnitude.sum(-1, dtype=torch.float64)
    return (
        _per_tile(largest, tile, 0.0).amax(-1),
        _per_tile(smallest.amin(-1).to(torch.float64), tile, math.inf).amin(-1),
        _per_tile(bits.amax(-1), tile, 1).amax(-1),
        _per_tile(norm, tile, 0.0).amax(-1),
    )


def _per_tile(x: Tensor, tile: int, filler: float) -> Tensor:
    padded = torch.nn.functional.pad(x, (0, -x.shape[-1] % tile), value=filler)
    return padded.reshape(*padded.shape[:-1], -1, tile)


def _mode(mode: str | Stochastic, grid: Grid) -> int:
    if isinstance(mode, Stochastic):
        return _COUNTER
    return _LIFTED if mode == "nearest-even" and grid.mantissa > 0 else _MODES[mode]


def _grids(plan: MacPlan, device: torch.device) -> tuple[Tensor, Tensor]:
    grids = (plan.product or plan.partial, plan.partial, plan.total)
    integers = [[grid.mantissa, grid.low, grid.negative_zero] for grid in grids]
    fields = ("tiny", "max_positive", "max_negative", "over_positive", "over_negative", "nan")
    reals = [[value_of_bits(getattr(grid, name)) for name in fields] for grid in grids]
    return torch.tensor(integers, device=device), torch.tensor(reals, dtype=torch.float64, device=device)


def _keys(plan: MacPlan, key: Key, draws: int, device: torch.device) -> Tensor:
    """The key words of every block of 2^32 draws."""
    blocks = 1 + (draws >> 32) if plan.source is not None else 0
    rows = rows_of([(key, block) for block in range(blocks)]) if blocks else None
    if rows is not None:
        return rows
    words = [key.words(block) for block in range(blocks)] or [(0, 0)]
    return torch.tensor(words, dtype=torch.int64, device=device).to(torch.int32)
