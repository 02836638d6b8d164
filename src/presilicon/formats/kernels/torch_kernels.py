"""Rounding in plain torch operations, for tensors on any device and for float64: exact, not fast.

Numbers are widened to float64 and all decisions are integer arithmetic in int64, so the results have the bits of the
compiled kernels.
"""

import torch
from torch import Tensor

from presilicon.formats.kernels.gpu_keys import is_recording
from presilicon.formats.kernels.grid import Grid, value_of_bits
from presilicon.formats.rounding import LFSR_BITS, WEYL, Key, Stochastic, lfsr_states

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


def draw_words(x: Tensor, mode: str | Stochastic, key: Key) -> Tensor | None:
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


def round_to_grid(x: Tensor, grid: Grid, mode: str | Stochastic, words: Tensor | None = None) -> Tensor:
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
    significand: Tensor, drop: Tensor, mode: str | Stochastic, negative: Tensor, code_base: Tensor, words: Tensor | None
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


def _limit(value: Tensor, grid: Grid, mode: str | Stochastic, negative: Tensor, infinite: Tensor) -> Tensor:
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
