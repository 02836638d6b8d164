"""Matrix products on a GPU by Triton kernels: a kernel for each level that tiles of outputs may have."""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from presilicon.formats.kernels.gpu_keys import rows_of
from presilicon.formats.kernels.grid import Grid, float_bits, grid_of, value_of_bits
from presilicon.formats.mac import gpu_levels, plain, triton_kernels, triton_sums
from presilicon.formats.mac.gpu_levels import (
    EXACT,
    HALF,
    NARROW,
    ODD,
    WIDE,
    half_type,
    is_plain_float,
    levels_of,
    tile_levels,
)
from presilicon.formats.mac.plan import NEAREST_EVEN, MacPlan, kernel_mode, wide_grid
from presilicon.formats.mac.unit import FLOAT32
from presilicon.formats.rounding import Key, Mode, Stochastic

TILES = {HALF: (16, 256, 4), NARROW: (64, 64, 4), WIDE: (16, 64, 2), ODD: (16, 64, 2), EXACT: (32, 32, 4)}
"""Rows and columns of outputs per program, and warps: the fastest on an H200 (benchmarks/gpu_matmul.py --sweep)."""
NATIVE_TILE, NATIVE_DEPTH, NATIVE_WARPS = (64, 64), 16, 4


def multiply(a: Tensor, b: Tensor, plan: MacPlan, key: Key, hardware: bool = True) -> Tensor:
    """The product of (batches, M, K) and (batches, K, N) float32 tensors on a GPU.

    `hardware` lets kernels use instructions and orders of sums that Triton's interpreter does not have. Orders other
    than sequential sums, and shift registers, go through `plain`.
    """
    batches, rows, depth = a.shape
    columns = b.shape[2]
    source = plan.source
    if not plan.is_sequential or (source is not None and source.source == "lfsr") or a.numel() * b.numel() == 0:
        return plain.multiply(a, b, plan, key)
    out = torch.empty(batches, rows, columns, device=a.device)
    keys = keys_of(plan, key, out.numel() * plan.rounding_count(depth), a.device)
    work = _Work(a, b, out, plan, keys, hardware, {})
    if plan.is_native and plan.product is None:
        _add_natively(work)
        return out
    steps = levels_of(plan, out.numel(), hardware)
    levels = tile_levels(a, b, plan, steps)
    for step in (*steps, EXACT):
        _LAUNCHERS[step](work, levels)
    return out


class _Work(NamedTuple):
    """A product to compute."""

    a: Tensor
    b: Tensor
    out: Tensor
    plan: MacPlan
    keys: Tensor
    hardware: bool
    typed: dict[torch.dtype, tuple[Tensor, Tensor]]
    """Operands as kernels read them, by their type."""

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Rows, columns and depth, and products per chunk."""
        depth = self.a.shape[2]
        return self.a.shape[1], self.b.shape[2], depth, self.plan.chunk_size(depth)

    @property
    def bits(self) -> int:
        return 0 if self.plan.source is None else self.plan.source.bits

    def operands(self, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """The operands as kernels read them: the left one transposed."""
        if dtype not in self.typed:
            self.typed[dtype] = self.a.to(dtype).mT.contiguous(), self.b.to(dtype).contiguous()
        return self.typed[dtype]

    def grid(self, step: int) -> tuple[int, int, int]:
        """Programs for all outputs, in whole tiles of levels."""
        (rows, columns), (tile_rows, tile_columns, _) = gpu_levels.LEVEL_TILE, TILES[step]
        batches, height, width = self.out.shape
        return (
            math.ceil(height / rows) * (rows // tile_rows),
            math.ceil(width / columns) * (columns // tile_columns),
            batches,
        )

    def options(self, step: int) -> dict[str, Any]:
        """A kernel's tile."""
        rows, columns, warps = TILES[step]
        share = {"SHARE_ROWS": gpu_levels.LEVEL_TILE[0] // rows, "SHARE_COLUMNS": gpu_levels.LEVEL_TILE[1] // columns}
        return {"ROWS": rows, "COLUMNS": columns, "num_warps": warps, **share}


def _add_natively(work: _Work) -> None:
    rows, columns = NATIVE_TILE
    sizes, plan = work.sizes, work.plan
    integers, reals = grids_of(plan, work.a.device)
    grid = (math.ceil(sizes[0] / rows), math.ceil(sizes[1] / columns), work.out.shape[0])
    triton_kernels.native_kernel[grid](
        *work.operands(), work.out, work.keys, work.keys.shape[0] - 1, integers, reals, *sizes, work.out.numel(),
        **join_of(plan, work.out.numel() >= 2**32), HARDWARE=work.hardware,
        ROWS=rows, COLUMNS=columns, DEPTH=NATIVE_DEPTH, num_warps=NATIVE_WARPS,
    )  # fmt: skip


def _add_halves(work: _Work, levels: Tensor) -> None:
    dtype = half_type(work.plan)
    assert dtype is not None
    name = "bf16x2" if dtype is torch.bfloat16 else "f16x2"
    left, right = work.operands(dtype)
    right = torch.nn.functional.pad(right, (0, right.shape[2] % 2)).contiguous().view(torch.int32)
    left = (left.view(torch.int16).to(torch.int32) & 0xFFFF) * 0x10001
    step = f"fma.rn.{name} $0, $1, $2, $3;"
    if work.plan.product is not None:
        step = f"{{ .reg .b32 p; mul.rn.{name} p, $1, $2; add.rn.{name} $0, p, $3; }}"
    options = work.options(HALF)
    pairs = options.pop("COLUMNS") // 2
    triton_sums.half_kernel[work.grid(HALF)](
        left, right, work.out, levels, *work.sizes, LEVEL=HALF, ADD=f"add.rn.{name} $0, $1, $2;", STEP=step,
        IS_BFLOAT=dtype is torch.bfloat16, PAIRS=pairs, **options,
    )  # fmt: skip


def _add_lean(work: _Work, levels: Tensor) -> None:
    grid = work.plan.partial
    triton_sums.lean_kernel[work.grid(NARROW)](
        *work.operands(), work.out, levels, *work.sizes, LEVEL=NARROW, LOW=0,
        UP=(23 - grid.mantissa << 23) + 0x400000, **work.options(NARROW),
    )  # fmt: skip


def _add_widely(work: _Work, levels: Tensor, step: int) -> None:
    plan, grid = work.plan, work.plan.partial
    integers, reals = grids_of(plan, work.a.device)
    constants = _in_high_half(grid, plan.partial_mode) | ({"LOW": 0} if step == WIDE else {})
    triton_sums.wide_kernel[work.grid(step)](
        *work.operands(torch.float64), work.out, levels, work.keys, integers, reals, *work.sizes, work.out.numel(),
        work.keys.shape[0] - 1, LEVEL=step, IS_ODD=step == ODD, HARDWARE=work.hardware,
        MODE=kernel_mode(plan.partial_mode, grid), DRAW_BITS=work.bits, **constants,
        **work.options(step),
    )  # fmt: skip


def _add_exactly(work: _Work, levels: Tensor) -> None:
    plan = work.plan
    integers, reals = grids_of(plan, work.a.device)
    product = plan.product or plan.partial
    triton_sums.exact_kernel[work.grid(EXACT)](
        *work.operands(), work.out, levels, work.keys, integers, reals, *work.sizes,
        work.out.numel(), HAS_PRODUCT=plan.product is not None, PRODUCT_MODE=kernel_mode(plan.product_mode, product),
        PARTIAL_MODE=kernel_mode(plan.partial_mode, plan.partial), MODE=kernel_mode(plan.total_mode, plan.total),
        DRAW_BITS=work.bits, **work.options(EXACT),
    )  # fmt: skip


_LAUNCHERS = {
    HALF: _add_halves,
    NARROW: _add_lean,
    WIDE: lambda work, levels: _add_widely(work, levels, WIDE),
    ODD: lambda work, levels: _add_widely(work, levels, ODD),
    EXACT: _add_exactly,
}


@lru_cache(maxsize=256)
def join_of(plan: MacPlan, is_large: bool) -> dict[str, Any]:
    """How the sums of chunks are joined, as compile-time constants of `triton_rounding._join`.

    `is_large`: there are 2^32 outputs or more, whose numbers need 64 bits.
    """
    grid, mode = plan.total, plan.total_mode
    ways = {"JOIN": 0, "LOW": 0, "UP": 0, "LIMIT": 0, "BEYOND": 0, "OVER": grid.over_positive}
    ways |= {"MODE": kernel_mode(mode, grid), "DRAW_BITS": 0 if plan.source is None else plan.source.bits}
    largest = value_of_bits(grid.max_positive)
    if grid == grid_of(FLOAT32) and mode == NEAREST_EVEN:
        return ways | {"JOIN": 1}
    if is_large or mode in ("up", "down") or not is_plain_float(grid) or not math.isnan(value_of_bits(grid.nan)):
        return ways
    if mode != NEAREST_EVEN:
        return ways | {"JOIN": 3} | _in_high_half(grid, mode)
    if largest >= 2.0**100:
        return ways
    exponent = max(math.frexp(largest)[1] - 1, grid.low - 127)
    middle = float_bits(largest + 2.0 ** (exponent - grid.mantissa - 1))
    # The middle between the largest number and the next goes to the even one.
    is_odd = largest / 2.0 ** (exponent - grid.mantissa) % 2 == 1
    limit = value_of_bits(middle - 1 if is_odd else middle)
    return ways | {"JOIN": 2, "LOW": grid.low << 23, "UP": (23 - grid.mantissa << 23) + 0x400000, "LIMIT": limit}


def _in_high_half(grid: Grid, mode: Mode) -> dict[str, int]:
    """The constants of `triton_rounding._round_high`."""
    beyond = grid.max_positive if mode == "toward-zero" else grid.over_positive
    if mode == NEAREST_EVEN:
        up = (52 - grid.mantissa << 20) + 0x80000
    else:
        up = 52 - grid.mantissa - (mode.bits if isinstance(mode, Stochastic) else 1) << 20
    largest = _high_half(grid.max_positive)
    return {"LOW": grid.low - 127 + 1023 << 20, "UP": up, "LIMIT": largest, "BEYOND": _high_half(beyond)}


def _high_half(bits: int) -> int:
    """The upper half of a float32 magnitude as a float64."""
    if bits >= 0x7F800000:
        return 0x7FF00000 if bits == 0x7F800000 else 0x7FF80000
    return int(torch.tensor(value_of_bits(bits), dtype=torch.float64).view(torch.int64)) >> 32


@lru_cache(maxsize=256)
def grids_of(plan: MacPlan, device: torch.device) -> tuple[Tensor, Tensor]:
    """The grids of products, partial sums and totals, as kernels read them."""
    grids = [wide_grid(grid) for grid in (plan.product or plan.partial, plan.partial, plan.total)]
    integers, reals = [grid[:3] for grid in grids], [grid[3:] for grid in grids]
    return torch.tensor(integers, device=device), torch.tensor(reals, dtype=torch.float64, device=device)


def keys_of(plan: MacPlan, key: Key, draws: int, device: torch.device) -> Tensor:
    """The key words of every block of 2^32 draws."""
    if plan.source is None:
        return _no_keys(device)
    blocks = range(1 + (draws >> 32))
    rows = rows_of([(key, block) for block in blocks])
    if rows is not None:
        return rows
    return torch.tensor([key.words(block) for block in blocks], dtype=torch.int64, device=device).to(torch.int32)


@lru_cache(maxsize=32)
def _no_keys(device: torch.device) -> Tensor:
    return torch.zeros(1, 2, dtype=torch.int32, device=device)
