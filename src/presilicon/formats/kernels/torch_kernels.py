"""Rounding of elements and blocks in plain torch operations, for any device and float64: exact, not fast.

Numbers are widened to float64 and all decisions are integer arithmetic in int64, so the results have the bits of the
compiled kernels.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from presilicon.base import FormatError
from presilicon.formats.families.block import BlockFormat, PowerBlocks
from presilicon.formats.kernels.gpu_keys import is_recording
from presilicon.formats.kernels.grid import BlockGrid, Grid, block_grid_of, value_of_bits
from presilicon.formats.rounding import LFSR_BITS, WEYL, Key, Mode, Stochastic, lfsr_states

_MASK = 0xFFFFFFFF
_WIDTH, _BIAS = 52, 1023


def random_words(key: Key, mode: Stochastic, start: int, count: int, device: torch.device) -> Tensor:
    """The random words of `count` elements from flat index `start`, cut to the mode's bits, as int64.

    Raises:
        RuntimeError: a step is being captured, whose replays would draw the same words again.
    """
    if is_recording():
        raise RuntimeError("random numbers of plain torch operations cannot be captured")
    index = torch.arange(start, start + count, dtype=torch.int64, device=device)
    words = torch.empty_like(index)
    for block in range(start >> 32, (start + max(count, 1) - 1 >> 32) + 1):
        first, second = key.words(block)
        inside = index >> 32 == block
        words[inside] = _words(index[inside] & _MASK, first, second, mode.source)
    return words >> (32 - mode.bits) << (32 - mode.bits)


def draw_words(x: Tensor, mode: Mode, key: Key) -> Tensor | None:
    """The random words of a tensor's elements, if the mode needs them."""
    if not isinstance(mode, Stochastic):
        return None
    return random_words(key, mode, 0, x.numel(), x.device).view(x.shape)


def _words(index: Tensor, first: int, second: int, source: str) -> Tensor:
    if source == "lfsr":
        states = torch.tensor(lfsr_states(), dtype=torch.int64, device=index.device)
        return states[(index + first) % len(states)] << (32 - LFSR_BITS)
    x = (index * WEYL + first) & _MASK
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & _MASK
    x = (x + second) & _MASK
    return ((x ^ (x >> 15)) * 0xD35A2D97) & _MASK


def round_to_grid(x: Tensor, grid: Grid, mode: Mode, words: Tensor | None = None) -> Tensor:
    """`x` (float32 or float64) on a grid; the result has the shape and type of `x`."""
    bits = x.to(torch.float64).view(torch.int64)
    magnitude = bits & ((1 << 63) - 1)
    negative = bits < 0

    low = grid.low - 127 + _BIAS
    field = magnitude >> _WIDTH
    exponent = field.clamp(min=1)
    significand = (magnitude & ((1 << _WIDTH) - 1)) | ((field > 0).to(torch.int64) << _WIDTH)
    top = exponent.clamp(min=low)
    drop = _WIDTH - grid.mantissa + top - exponent
    code_base = (top - low) << grid.mantissa
    rounded = _round(significand, drop, mode, negative, code_base, words)
    value = rounded.to(torch.float64) * power_of_two(top - _BIAS - grid.mantissa)

    value = _limit(value, grid, mode, negative, torch.isinf(x))
    value = torch.where(torch.isnan(x), torch.full_like(value, value_of_bits(grid.nan)), value)
    signed = negative if grid.negative_zero else negative & (value != 0)
    return torch.where(signed, -value, value).to(x.dtype)


def _round(
    significand: Tensor, drop: Tensor, mode: Mode, negative: Tensor, code_base: Tensor, words: Tensor | None
) -> Tensor:
    if isinstance(mode, Stochastic):
        assert words is not None
        covered = drop.clamp(max=31)
        return ((significand >> (drop - covered).clamp(max=62)) + (words >> (32 - covered))) >> covered
    drop = drop.clamp(max=60)
    unit = torch.ones_like(drop) << drop
    match mode:
        case "nearest-even":
            odd = ((significand >> drop) + code_base) & 1
            bump = ((unit >> 1) - 1 + odd) & (unit - 1)
        case "nearest-away":
            bump = unit >> 1
        case "toward-zero":
            bump = torch.zeros_like(unit)
        case "up":
            bump = torch.where(negative, 0, unit - 1)
        case _:
            bump = torch.where(negative, unit - 1, 0)
    return (significand + bump) >> drop


def _limit(value: Tensor, grid: Grid, mode: Mode, negative: Tensor, infinite: Tensor) -> Tensor:
    largest = _by_sign(negative, grid.max_negative, grid.max_positive)
    over = _by_sign(negative, grid.over_negative, grid.over_positive)
    match mode:
        case "toward-zero":
            beyond = largest
        case "up":
            beyond = torch.where(negative, largest, over)
        case "down":
            beyond = torch.where(negative, over, largest)
        case _:
            beyond = over
    value = torch.where(value > largest, beyond, value)
    value = torch.where(infinite, over, value)
    return torch.where(value < value_of_bits(grid.tiny), 0.0, value)


def _by_sign(negative: Tensor, if_negative: int, if_positive: int) -> Tensor:
    choices = torch.tensor([value_of_bits(if_positive), value_of_bits(if_negative)], dtype=torch.float64)
    return choices.to(negative.device)[negative.to(torch.int64)]


def power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent as float64, for integer exponents of normal numbers."""
    return ((exponent + _BIAS) << _WIDTH).view(torch.float64)


def wrap(values: Tensor, integer: int, signed: bool) -> Tensor:
    """Values modulo 2^integer, brought into the range of two's complement (or from 0 up), in place."""
    span = 2.0**integer
    values.fmod_(span)
    top = span / 2 if signed else span
    values.sub_((values >= top) * span)
    return values.add_((values < (top - span)) * span)


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


def round_blocks(x: Tensor, fmt: PowerBlocks, mode: Mode, words: Tensor | None) -> Tensor:
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
