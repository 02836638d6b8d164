"""Rounding in plain torch operations, for tensors on any device and for float64: exact, not fast.

Every step is integer arithmetic in int64, so the bits are those of the compiled kernels.
"""

import torch
from torch import Tensor

from presilicon.formats.grid import Grid
from presilicon.formats.rounding import LFSR_BITS, WEYL, Key, Stochastic, lfsr_states

_MASK = 0xFFFFFFFF


def random_words(key: Key, mode: Stochastic, start: int, count: int, device: torch.device) -> Tensor:
    """The random words of `count` elements from flat index `start`, cut to the mode's bits, as int64."""
    index = torch.arange(start, start + count, dtype=torch.int64, device=device)
    words = torch.empty_like(index)
    for block in range(start >> 32, (start + max(count, 1) - 1 >> 32) + 1):
        first, second = key.words(block)
        inside = index >> 32 == block
        words[inside] = _words(index[inside] & _MASK, first, second, mode.source)
    return words >> (32 - mode.bits) << (32 - mode.bits)


def _words(index: Tensor, first: int, second: int, source: str) -> Tensor:
    if source == "lfsr":
        states = torch.tensor(lfsr_states(), dtype=torch.int64, device=index.device)
        return states[(index + first) % len(states)] << (32 - LFSR_BITS)
    x = (index * WEYL + first) & _MASK
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & _MASK
    x = (x + second) & _MASK
    return ((x ^ (x >> 15)) * 0xD35A2D97) & _MASK


def round_to_grid(x: Tensor, grid: Grid, mode: str | Stochastic, words: Tensor | None = None) -> Tensor:
    """`x` (float32 or float64) on a grid; the result has the shape and type of `x`."""
    wide = x.dtype == torch.float64
    width, bias = (52, 1023) if wide else (23, 127)
    bits = x.view(torch.int64) if wide else x.view(torch.int32).to(torch.int64)
    magnitude = bits & ((1 << (63 if wide else 31)) - 1)
    negative = bits < 0

    field = magnitude >> width
    exponent = field.clamp(min=1)
    significand = (magnitude & ((1 << width) - 1)) | ((field > 0).to(torch.int64) << width)
    top = exponent.clamp(min=grid.low - 127 + bias)
    drop = width - grid.mantissa + top - exponent
    code_base = (top - (grid.low - 127 + bias)) << grid.mantissa
    rounded = _round(significand, drop, mode, negative, code_base, words)
    value = rounded.to(torch.float64) * _power_of_two(top - bias - grid.mantissa)

    infinite = magnitude == (0x7FF if wide else 0xFF) << width
    value = _limit(value, grid, mode, negative, infinite)
    value = torch.where(torch.isnan(x), torch.full_like(value, _value(grid.nan)), value)
    signed = negative if grid.negative_zero else negative & (value != 0)
    return torch.where(signed, -value, value).to(x.dtype)


def _round(
    significand: Tensor, drop: Tensor, mode: str | Stochastic, negative: Tensor, code_base: Tensor, words: Tensor | None
) -> Tensor:
    if isinstance(mode, Stochastic):
        assert words is not None
        kept = drop.clamp(max=31)
        return ((significand >> (drop - kept).clamp(max=62)) + (words >> (32 - kept))) >> kept
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


def _limit(value: Tensor, grid: Grid, mode: str | Stochastic, negative: Tensor, infinite: Tensor) -> Tensor:
    largest = torch.where(negative, _value(grid.max_negative), _value(grid.max_positive)).to(torch.float64)
    over = torch.where(negative, _value(grid.over_negative), _value(grid.over_positive)).to(torch.float64)
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
    return torch.where(value < _value(grid.tiny), 0.0, value)


def _power_of_two(exponent: Tensor) -> Tensor:
    return ((exponent + 1023) << 52).view(torch.float64)


def _value(bits: int) -> float:
    return float(torch.tensor(bits, dtype=torch.int32).view(torch.float32))
