"""The Triton passes over GPU tensors in formats whose scales are numbers fitted to the data."""

from functools import lru_cache
from math import prod
from typing import Any

import torch
import triton
from torch import Tensor

from presilicon.formats.families.block import BlockFormat
from presilicon.formats.families.nvfp import ELEMENT_FORMAT, LEAST_SCALES, SCALE_FORMAT, Nvfp4
from presilicon.formats.families.scaled import Scaled
from presilicon.formats.kernels import triton_kernels, triton_scaled
from presilicon.formats.kernels.gpu_launch import start
from presilicon.formats.kernels.gpu_layout import (
    DOWN,
    MOST_ROWS,
    MOST_SIDE,
    Tiling,
    Transfer,
    plan_groups,
    plan_transfer,
    tiling_of,
)
from presilicon.formats.kernels.gpu_passes import facts, key_words, largest_of_all, largest_of_lines
from presilicon.formats.kernels.grid import (
    INFINITY_BITS,
    LARGEST_BITS,
    LIFTED,
    Grid,
    float_bits,
    grid_of,
    value_of_bits,
)
from presilicon.formats.kernels.reference import float32
from presilicon.formats.kernels.torch_kernels import block_axis
from presilicon.formats.rounding import Key, Mode, Stochastic

_NUMBERS, _SCALED, _NVFP4 = range(3)
_APPLY = {"divide": 0, "reciprocal": 1, "multiply": 2}
_ALL = 0xFFFFFFFF
_LARGEST = value_of_bits(LARGEST_BITS)
_STRIP, _STRIP_ROWS, _STRIP_PROGRAMS = 128, 16, 2112
"""Columns and rows that a program searches at once, and programs that share a tensor."""


def holds_groups(fmt: BlockFormat) -> bool:
    """Whether a program can hold a group of a format."""
    return fmt.group_size <= (MOST_SIDE if fmt.is_square else MOST_ROWS)


def largest_by_channel(x: Tensor, axis: int | None) -> Tensor:
    """The largest finite magnitude of each channel along `axis`, or of the whole tensor; `x` is not empty."""
    x = x.contiguous()
    if axis is None:
        return largest_of_all(x, INFINITY_BITS).view(torch.float32)
    channels, inner = x.shape[axis], prod(x.shape[axis + 1 :])
    if inner == 1:
        return _largest_of_columns(x, x.numel() // channels, channels, INFINITY_BITS).view(torch.float32)
    return largest_of_lines(x, x.numel() // inner, inner, channels, INFINITY_BITS).view(torch.float32)


def largest_magnitude(x: Tensor) -> Tensor:
    """The largest magnitude, in a tensor of no dimension; NaN and infinities count. `x` is not empty."""
    return largest_of_all(x.contiguous(), _ALL).view(torch.float32).view(())


def round_by_channel(
    x: Tensor, scale: Tensor, axis: int | None, grid: Grid, mode: Mode, key: Key, out: Tensor | None
) -> Tensor:
    """`x` over its channels' scales, on a grid, times the scales."""
    transfer = plan_transfer(x, out, isinstance(mode, Stochastic), in_rows=True)
    count = x.numel()
    inner = count if axis is None else prod(x.shape[axis + 1 :])
    if inner == 1:
        tiling = tiling_of((count // scale.numel(), scale.numel()), 0, 0, False, None)
    else:
        tiling = tiling_of((count // inner, inner), 1, 0, False, None)
    assert tiling is not None
    given = scale.reshape(-1).to(torch.float32).view(torch.int32)
    return _round(transfer, tiling, grid, mode, key, given, {"FAMILY": _NUMBERS, "APPLY": 0, "IS_SHARED": True})


def round_nvfp4(
    x: Tensor, fmt: Nvfp4, mode: Mode, key: Key, out: Tensor | None, scales: Tensor | None = None
) -> Tensor:
    """`x` in NVFP4; `x` is not empty. With `scales`, that of the tensor goes there and not into the result."""
    axis = block_axis(tuple(x.shape), fmt)
    transfer, tiling = plan_groups(x, out, axis, fmt.group_size, fmt.is_square, isinstance(mode, Stochastic))
    given = largest_of_all(transfer.source, INFINITY_BITS) if fmt.tensor_scale else None
    return _round(transfer, tiling, grid_of(ELEMENT_FORMAT), mode, key, given, _nvfp4_facts(fmt), scales=scales)


def round_scaled(x: Tensor, fmt: Scaled, amax: Tensor | None, mode: Mode, key: Key, out: Tensor | None) -> Tensor:
    """`x` in a scaled format, with the largest magnitudes of `x` or a given one; `x` is not empty."""
    return _scaled(x, fmt, amax, mode, key, out, is_apart=False)[0]


def take_apart(
    x: Tensor, fmt: Scaled | Nvfp4, amax: Tensor | None, mode: Mode, key: Key, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The codes of `x` in a type that holds them, and their float32 scales, as `taken_apart` has them."""
    out = torch.empty_like(x, dtype=dtype)
    if isinstance(fmt, Scaled):
        return _scaled(x, fmt, amax, mode, key, out, is_apart=True)
    scale = torch.empty((), device=x.device)
    return round_nvfp4(x, fmt, mode, key, out, scale), scale


def _scaled(
    x: Tensor, fmt: Scaled, amax: Tensor | None, mode: Mode, key: Key, out: Tensor | None, is_apart: bool
) -> tuple[Tensor, Tensor]:
    axis = None if fmt.per == "tensor" else block_axis(tuple(x.shape), fmt)
    transfer, tiling = plan_groups(x, out, axis, fmt.group_size, fmt.is_square, isinstance(mode, Stochastic))
    given = None
    if amax is not None:
        given = amax.to(torch.float32).view(1).view(torch.int32)
    elif not tiling.is_held:
        given = _largest_of_lines(transfer, tiling)
    constants, numbers = _scaled_facts(fmt, given is not None)
    scales = _empty_scales(x, fmt, transfer, axis) if is_apart else None
    result = _round(transfer, tiling, grid_of(fmt.unit_format()), mode, key, given, constants, numbers, scales)
    return result, result if scales is None else scales.permute(_inverse(transfer.order)) if scales.dim() else scales


def _empty_scales(x: Tensor, fmt: Scaled, transfer: Transfer, axis: int | None) -> Tensor:
    """Memory for the scales of groups, in the order of the tensor's memory."""
    if axis is None:
        return torch.empty((), device=x.device)
    shape = list(x.shape) or [1]
    for dim in range(max(len(shape) - 2, 0), len(shape)) if fmt.is_square else (axis,):
        shape[dim] = triton.cdiv(shape[dim], fmt.group_size or shape[dim])
    return torch.empty([shape[dim] for dim in transfer.order] or shape, device=x.device)


def _inverse(order: tuple[int, ...]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__) or [0]


def _largest_of_lines(transfer: Transfer, tiling: Tiling) -> Tensor:
    """The bits of the largest magnitudes of lines that are too long for a program."""
    if tiling.constants["LAYOUT"] == DOWN:
        return _largest_of_columns(transfer.source, tiling.rows, tiling.cols, _ALL)
    lines = transfer.source.numel() // tiling.cols
    return largest_of_lines(transfer.source, lines, tiling.cols, lines, _ALL)


def _largest_of_columns(x: Tensor, rows: int, cols: int, limit: int) -> Tensor:
    matrices = x.numel() // (rows * cols)
    largest = torch.zeros(matrices * cols, dtype=torch.int32, device=x.device)
    strips = triton.cdiv(cols, _STRIP) * matrices
    parts = max(1, min(triton.cdiv(rows, _STRIP_ROWS), _STRIP_PROGRAMS // strips))
    constants = {"LIMIT": limit, "ROWS": _STRIP_ROWS, "COLS": _STRIP, "num_warps": 4}
    start(triton_kernels.largest_column_kernel, strips * parts, (x, largest), (rows, cols, parts), constants)
    return largest


def _round(
    transfer: Transfer,
    tiling: Tiling,
    grid: Grid,
    mode: Mode,
    key: Key,
    given: Tensor | None,
    constants: dict[str, Any],
    numbers: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0),
    scales: Tensor | None = None,
) -> Tensor:
    """One pass over the groups, with the bits of largest magnitudes, or the scales, that come from outside.

    With `scales`, those that are float32 go there and not into the result.
    """
    states, grid_constants = facts(grid, mode, transfer.source.device)
    out_scales, magnitudes = states if scales is None else scales, states if given is None else given
    start(
        triton_scaled.scaled_kernel,
        tiling.programs,
        (transfer.source, transfer.target, out_scales, states, magnitudes),
        (tiling.tiles, tiling.rows, tiling.cols, 1 if given is None else given.numel()),
        {
            **_NO_SCALES,
            **constants,
            "IS_APART": scales is not None,
            **tiling.constants,
            **grid_constants,
            "enable_fp_fusion": False,
        },
        (*key_words(mode, key), *numbers),
    )
    return transfer.finish()


_NO_SCALES = {"HAS_POWERS": False, "HAS_TENSOR_SCALE": False, "IS_SHARED": False} | {
    f"SCALE_{name}": 0 for name in ("CORE", "MANTISSA", "LOW", "MAX", "LEAST")
}


@lru_cache(maxsize=256)
def _nvfp4_facts(fmt: Nvfp4) -> dict[str, Any]:
    grid = grid_of(SCALE_FORMAT)
    scales = {"CORE": LIFTED, "MANTISSA": grid.mantissa, "LOW": grid.low, "MAX": grid.max_positive}
    scales["LEAST"] = float_bits(LEAST_SCALES[fmt.apply])
    constants = {"FAMILY": _NVFP4, "APPLY": _APPLY[fmt.apply], "HAS_TENSOR_SCALE": fmt.tensor_scale}
    return constants | {f"SCALE_{name}": value for name, value in scales.items()}


@lru_cache(maxsize=256)
def _scaled_facts(fmt: Scaled, is_shared: bool) -> tuple[dict[str, Any], tuple[float, ...]]:
    """The constants of a scaled format, and its numbers: M, the least magnitude, the scale of that, the margin."""
    constants = {
        "FAMILY": _SCALED,
        "APPLY": _APPLY[fmt.apply],
        "HAS_POWERS": fmt.scale == "e8m0",
        "IS_SHARED": is_shared,
    }
    top, spread = fmt.element.max, 2.0**fmt.margin
    if fmt.apply != "reciprocal":
        return constants, (top, float32(fmt.least), 0.0, spread)
    # `least` is compared in float64: a float32 number is above it if it is above the largest float32 not above it.
    least = float32(fmt.least)
    if least > fmt.least:
        least = float(torch.nextafter(torch.tensor(least), torch.tensor(0.0)))
    floor = float32(min(top / spread / fmt.least, _LARGEST)) if fmt.least else 1.0
    return constants, (top / spread, least, floor, 1.0)
