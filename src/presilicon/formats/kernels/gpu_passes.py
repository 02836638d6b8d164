"""The Triton passes over whole GPU tensors: float32 in memory order."""

from functools import lru_cache
from math import prod
from typing import Any

import torch
import triton
from torch import Tensor

from presilicon.formats.families.block import PowerBlocks
from presilicon.formats.kernels import triton_kernels
from presilicon.formats.kernels.cores import (
    COUNTER,
    GENERAL,
    LEVEL,
    LIFTED,
    core_for,
    fast_scales,
    is_plain,
    mode_number,
)
from presilicon.formats.kernels.grid import BlockGrid, Grid, block_grid_of
from presilicon.formats.kernels.torch_blocks import block_axis
from presilicon.formats.rounding import LFSR_BITS, Key, Stochastic, lfsr_states

_ELEMENTS, _WARPS = 512, 2
"""Elements that one program rounds, and its warps: small ones keep more loads in flight (measured on an H200)."""
_LAUNCH = 1 << 30
"""Elements in one launch of the element kernel: offsets within it fit 32 bits."""


def round_elements(x: Tensor, grid: Grid, mode: str | Stochastic, key: Key, out: Tensor | None) -> Tensor:
    """`x` on a grid, into `out` or a new tensor; random words follow the row-major index."""
    source, target, out = _prepare(x, out)
    number, mask, states = _random(mode, x.device)
    for begin in range(0, x.numel(), _LAUNCH):
        count = min(_LAUNCH, x.numel() - begin)
        first, second = key.words(begin >> 32)
        triton_kernels.element_kernel[(triton.cdiv(count, _ELEMENTS),)](
            source[begin : begin + count],
            target[begin : begin + count],
            states,
            count,
            _signed(begin & 0xFFFFFFFF),
            _signed(first),
            _signed(second),
            MASK=mask,
            STATES=2**LFSR_BITS - 1,
            MODE=number,
            CORE=_core(grid, number),
            **_constants(grid),
            BLOCK=_ELEMENTS,
            num_warps=_WARPS,
        )
    return _finish(target, out)


def round_blocks(x: Tensor, fmt: PowerBlocks, mode: str | Stochastic, key: Key, out: Tensor | None) -> Tensor:
    """`x` in a block format, into `out` or a new tensor."""
    axis = block_axis(tuple(x.shape), fmt)
    source, target, out = _prepare(x, out)
    if x.numel() == 0:
        return out
    block = block_grid_of(fmt)
    rows, cols, tile_rows, tile_cols = _tiling(tuple(x.shape), axis, fmt)
    tiles = x.numel() // (rows * cols) * triton.cdiv(rows, tile_rows) * triton.cdiv(cols, tile_cols)
    members = triton.next_power_of_2(tile_rows * tile_cols)
    groups = max(1, _ELEMENTS // members)
    number, mask, states = _random(mode, x.device)
    core = _core(block.grid, number)
    first_fast, last_fast = fast_scales(block, core)
    first, second = key.words(0)
    triton_kernels.block_kernel[(triton.cdiv(tiles, groups),)](
        source,
        target,
        states,
        tiles,
        rows,
        cols,
        _signed(first),
        _signed(second),
        _lowest(x, block),
        TILE_ROWS=tile_rows,
        TILE_COLS=tile_cols,
        FLAT=tile_rows == 1 and cols % tile_cols == 0,
        EMAX=block.emax,
        BUMP=block.bump,
        HIGHEST=block.highest,
        FLUSH=block.flush,
        POISON=block.poison,
        FIRST_FAST=first_fast,
        LAST_FAST=last_fast,
        MASK=mask,
        STATES=2**LFSR_BITS - 1,
        MODE=number,
        CORE=core,
        **_constants(block.grid),
        GROUPS=groups,
        MEMBERS=members,
        num_warps=_WARPS,
    )
    return _finish(target, out)


def _core(grid: Grid, number: int) -> int:
    """The core for a grid and a mode; rounding at random by lifting is for CPUs."""
    core = core_for(grid, number)
    return GENERAL if number >= COUNTER and core in (LIFTED, LEVEL) else core


def _prepare(x: Tensor, out: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Row-major words to read and to write, and where the result goes; an `out` of another type has numbers of it."""
    if out is not None and out.dtype is not torch.float32:
        return x.contiguous().view(-1).view(torch.int32), out.view(-1), out
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    fresh = out if out.is_contiguous() else torch.empty_like(x, memory_format=torch.contiguous_format)
    return x.contiguous().view(-1).view(torch.int32), fresh.view(-1).view(torch.int32), out


def _finish(target: Tensor, out: Tensor) -> Tensor:
    if out.is_contiguous():
        return out
    return out.copy_(target.view(torch.float32).view(out.shape))


def _tiling(shape: tuple[int, ...], axis: int, fmt: PowerBlocks) -> tuple[int, int, int, int]:
    """Rows and columns of the stacked matrices, and of the tiles that share a scale."""
    size = fmt.group_size
    if fmt.is_square:
        return (shape[-2] if len(shape) > 1 else 1), (shape[-1] if shape else 1), size, size
    after = prod(shape[axis + 1 :])
    if after == 1:
        return 1, (shape[axis] if shape else 1), 1, size
    return shape[axis], after, size, 1


def _lowest(x: Tensor, block: BlockGrid) -> int:
    """The lowest exponent of a scale; a window hangs below the largest of the tensor."""
    if not block.window:
        return block.lowest
    finite = x.abs().nan_to_num(nan=0.0, posinf=torch.finfo(torch.float32).max).double().amax()
    top = (int(finite.view(torch.int64)) + block.bump >> 52) - 1023 - block.emax
    return max(block.lowest, top - block.window)


def _random(mode: str | Stochastic, device: torch.device) -> tuple[int, int, Tensor]:
    """The kernels' number of a mode, the mask of its random bits, and the shift register's states."""
    if not isinstance(mode, Stochastic):
        return mode_number(mode), 0, _no_states(device)
    mask = (0xFFFFFFFF << (32 - mode.bits)) & 0xFFFFFFFF
    return mode_number(mode), mask, _states(device) if mode.source == "lfsr" else _no_states(device)


def _constants(grid: Grid) -> dict[str, Any]:
    return {"PLAIN": is_plain(grid)} | {name.upper(): getattr(grid, name) for name in Grid.__slots__}


def _signed(word: int) -> int:
    """A 32-bit word as the signed number of the same bits, so that a kernel's argument always has one type."""
    return word - (1 << 32) if word >> 31 else word


@lru_cache(maxsize=8)
def _no_states(device: torch.device) -> Tensor:
    return torch.zeros(1, dtype=torch.int32, device=device)


@lru_cache(maxsize=8)
def _states(device: torch.device) -> Tensor:
    """The shift register's states in the top bits of words."""
    words = [_signed(state << (32 - LFSR_BITS)) for state in lfsr_states()]
    return torch.tensor(words, dtype=torch.int32, device=device)
