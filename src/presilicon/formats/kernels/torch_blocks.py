"""Groups of a tensor, their shared exponents, and block rounding in plain torch operations."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from presilicon.base import FormatError
from presilicon.formats.families.block import BlockFormat, PowerBlocks
from presilicon.formats.kernels.grid import BlockGrid, block_grid_of, value_of_bits
from presilicon.formats.kernels.torch_kernels import power_of_two, round_to_grid
from presilicon.formats.rounding import Stochastic


def block_axis(shape: tuple[int, ...], fmt: BlockFormat) -> int:
    """The axis of the groups, counted from 0. Raises `FormatError` where the shape has no such axis."""
    if fmt.is_square:
        return max(len(shape) - 1, 0)
    if not -max(len(shape), 1) <= fmt.axis < max(len(shape), 1):
        raise FormatError(f"{fmt}: axis {fmt.axis} does not exist in a tensor of shape {shape}; try fmt.along(axis)")
    return fmt.axis % max(len(shape), 1)


def to_groups(x: Tensor, fmt: BlockFormat) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """`x` as (..., groups, members) with short groups padded by zeros, and the function back to the shape of `x`."""
    shape, size, axis = x.shape, fmt.group_size, block_axis(tuple(x.shape), fmt)
    if not fmt.is_square:
        lines = x.reshape(1) if x.dim() == 0 else x.movedim(axis, -1)
        length = lines.shape[-1]
        padded = pad(lines, (0, -length % size))
        blocks = padded.reshape(*padded.shape[:-1], padded.shape[-1] // size, size)

        def back(blocks: Tensor) -> Tensor:
            lines = blocks.flatten(-2)[..., :length]
            return lines.reshape(shape) if len(shape) == 0 else lines.movedim(-1, axis)

        return blocks, back

    plane = x.reshape((1,) * (2 - x.dim()) + tuple(x.shape))
    rows, columns = plane.shape[-2:]
    padded = pad(plane, (0, -columns % size, 0, -rows % size))
    high, wide = padded.shape[-2] // size, padded.shape[-1] // size
    tiles = padded.reshape(*padded.shape[:-2], high, size, wide, size).transpose(-3, -2)
    blocks = tiles.reshape(*tiles.shape[:-2], size * size)

    def back_from_tiles(blocks: Tensor) -> Tensor:
        tiles = blocks.reshape(*blocks.shape[:-1], size, size).transpose(-3, -2)
        plane = tiles.reshape(*tiles.shape[:-4], high * size, wide * size)[..., :rows, :columns]
        return plane.reshape(shape)

    return blocks, back_from_tiles


def shared_exponents(blocks: Tensor, grid: BlockGrid) -> tuple[Tensor, Tensor, Tensor]:
    """Scale exponents k of groups (..., members) in float64, which groups are flushed, and which are NaN."""
    magnitude = blocks.abs()
    special = (~torch.isfinite(magnitude)).any(-1) & bool(grid.poison)
    magnitude = magnitude.nan_to_num(nan=0.0, posinf=value_of_bits(0x7F7FFFFF))
    largest = magnitude.amax(-1)
    raw = ((largest.view(torch.int64) + grid.bump) >> 52) - 1023 - grid.emax
    lowest = torch.full_like(raw, grid.lowest)
    if grid.window and raw.numel():
        lowest = (raw.max() - grid.window).clamp(min=grid.lowest).expand_as(raw)
    flushed = (raw < lowest) & bool(grid.flush)
    return torch.maximum(raw, lowest).clamp(max=grid.highest), flushed, special


def round_blocks(x: Tensor, fmt: PowerBlocks, mode: str | Stochastic, words: Tensor | None) -> Tensor:
    """`x` (float32 or float64) in a block format; the result has the shape and type of `x`."""
    grid = block_grid_of(fmt)
    if x.numel() == 0:
        return x.clone()
    blocks, back = to_groups(x.to(torch.float64), fmt)
    drawn = None if words is None else to_groups(words, fmt)[0]
    exponents, flushed, special = shared_exponents(blocks, grid)
    scale = power_of_two(exponents).unsqueeze(-1)
    clean = blocks
    if not grid.poison:
        largest = value_of_bits(0x7F7FFFFF)
        clean = blocks.nan_to_num(nan=0.0, posinf=largest, neginf=-largest)
    values = round_to_grid(clean / scale, grid.grid, mode, drawn)
    # An element whose scaled value exceeds float32 becomes the largest one whose scaled value does not.
    beyond = power_of_two(128 - exponents).unsqueeze(-1)
    most = round_to_grid(torch.nextafter(beyond, torch.zeros_like(beyond)), grid.grid, "toward-zero")
    values = torch.where(values.abs() >= beyond, torch.copysign(most, values), values) * scale
    values = torch.where(flushed.unsqueeze(-1), torch.copysign(torch.zeros_like(values), clean), values)
    values = torch.where(special.unsqueeze(-1), torch.nan, values)
    return back(values).to(x.dtype)
