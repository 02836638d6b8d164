"""The compiled passes over CPU tensors in formats whose scales are numbers fitted to the data."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from presilicon.base import split_over_threads
from presilicon.formats.families.nvfp import ELEMENT_FORMAT, LEAST_SCALES, SCALE_FORMAT, Nvfp4
from presilicon.formats.families.scaled import Scaled
from presilicon.formats.kernels import numba_kernels
from presilicon.formats.kernels.cpu_passes import dense, is_one, words_of
from presilicon.formats.kernels.grid import LFSR, Grid, core_for, grid_of, is_plain, mode_number
from presilicon.formats.kernels.numba_kernels import DIVIDE, DIVIDE_NUMBERS, MULTIPLY, MULTIPLY_NUMBERS
from presilicon.formats.kernels.torch_kernels import block_axis
from presilicon.formats.rounding import Key, Mode

_NEAR = 1 << 16
"""Elements of a tensor with one scale that are worked on together."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Layout of scales over a row-major tensor, as the kernels take it."""

    columns: bool
    rows: int
    width: int
    length: int
    size: int
    scales: int
    height: int = 1
    tall: int = 1

    @property
    def numbers(self) -> tuple[int, ...]:
        """The arguments of the kernels after the range of rows."""
        return self.width, self.length, self.size, self.height, self.tall, self.scales

    @property
    def weight(self) -> int:
        """Elements in a row."""
        return self.width or self.size


@lru_cache(maxsize=1024)
def _by_channel(shape: tuple[int, ...], axis: int | None) -> _Layout:
    count = prod(shape)
    if axis is None:
        return _Layout(False, -(-count // _NEAR), 0, count, _NEAR, 1)
    inner = prod(shape[axis + 1 :])
    if inner == 1:
        rows = count // shape[axis]
        return _Layout(True, rows, shape[axis], rows, rows, shape[axis])
    return _Layout(False, count // inner, 0, inner, inner, shape[axis])


def _by_block(shape: tuple[int, ...], axis: int, size: int) -> _Layout:
    length = shape[axis] if shape else 1
    inner = prod(shape[axis + 1 :])
    lines = prod(shape) // length
    scales = lines * -(-length // size)
    if inner == 1:
        return _Layout(False, scales, 0, length, size, scales)
    return _Layout(True, lines // inner * length, inner, length, size, scales)


def _by_tile(shape: tuple[int, ...], size: int) -> _Layout:
    height, length = (1, 1, *shape)[-2:]
    lines = prod(shape) // length
    if max(height, length) <= size:  # a matrix is one tile
        return _Layout(False, lines // height, 0, height * length, height * length, lines // height)
    groups, bands = -(-length // size), -(-height // size)
    return _Layout(False, lines * groups, 0, length, size, lines // height * bands * groups, height, size)


@lru_cache(maxsize=1024)
def _layout(shape: tuple[int, ...], fmt: Nvfp4 | Scaled) -> _Layout:
    if fmt.is_square:
        return _by_tile(shape, fmt.group_size)
    if fmt.is_oriented:
        axis = block_axis(shape, fmt)
        return _by_block(shape, axis, fmt.group_size or (shape[axis] if shape else 1))
    return _by_channel(shape, None)


def largest_by_channel(x: Tensor, axis: int | None) -> Tensor:
    """The largest finite magnitude of each channel along `axis`, or of the whole tensor; `x` is not empty."""
    return torch.from_numpy(_largest(words_of(x.contiguous()), _by_channel(tuple(x.shape), axis)))


def largest_magnitude(x: Tensor) -> Tensor:
    """The largest magnitude, in a tensor of no dimension; NaN and infinities count. `x` is not empty."""
    layout = _by_channel(tuple(x.shape), None)
    return torch.from_numpy(_largest(words_of(x.contiguous()), layout, finite=False)).view(())


def round_by_channel(
    x: Tensor, scale: Tensor, axis: int | None, grid: Grid, mode: Mode, key: Key, out: Tensor | None
) -> Tensor:
    """`x` over its channels' scales, on a grid, times the scales."""
    numbers = scale.reshape(-1).numpy()
    layout = _by_channel(tuple(x.shape), axis)
    return _round(x, layout, DIVIDE_NUMBERS, grid, mode, key, out, lambda words: (numbers, numbers))


def round_nvfp4(x: Tensor, fmt: Nvfp4, mode: Mode, key: Key, out: Tensor | None) -> Tensor:
    """`x` in NVFP4; `x` is not empty."""
    layout = _layout(tuple(x.shape), fmt)

    def factors(words: Any) -> tuple[Any, Any]:
        largest = _largest(words, layout)
        forward, back = np.empty_like(largest), np.empty_like(largest)
        numba_kernels.nvfp4_factors(largest, forward, back, *_nvfp4_facts(fmt))
        return forward, back

    how = DIVIDE_NUMBERS if fmt.apply == "divide" else MULTIPLY_NUMBERS
    return _round(x, layout, how, grid_of(ELEMENT_FORMAT), mode, key, out, factors)


@lru_cache(maxsize=256)
def _nvfp4_facts(fmt: Nvfp4) -> tuple[Any, ...]:
    least, words = np.float32(LEAST_SCALES[fmt.apply]), numba_kernels.grid_words(grid_of(SCALE_FORMAT))
    return fmt.tensor_scale, fmt.apply == "divide", fmt.apply == "reciprocal", least, words


def round_scaled(x: Tensor, fmt: Scaled, amax: Tensor | None, mode: Mode, key: Key, out: Tensor | None) -> Tensor:
    """`x` in a scaled format, with the largest magnitudes of `x` or a given one; `x` is not empty."""
    layout = _layout(tuple(x.shape), fmt)

    def factors(words: Any) -> tuple[Any, Any]:
        return _scale_factors(_largest(words, layout, finite=False) if amax is None else _numbers(amax), fmt)

    how, grid = _scaled_facts(fmt)[:2]
    return _round(x, layout, how, grid, mode, key, out, factors)


def scale_factors(amax: Tensor, fmt: Scaled) -> tuple[Tensor, Tensor]:
    """`Scaled.factors` of largest magnitudes."""
    forward, back = _scale_factors(_numbers(amax), fmt)
    return torch.from_numpy(forward).view(amax.shape), torch.from_numpy(back).view(amax.shape)


def _scale_factors(largest: Any, fmt: Scaled) -> tuple[Any, Any]:
    forward, back = np.empty_like(largest), np.empty_like(largest)
    numba_kernels.scale_factors(largest, forward, back, *_scaled_facts(fmt)[2:])
    return forward, back


@lru_cache(maxsize=256)
def _scaled_facts(fmt: Scaled) -> tuple[Any, ...]:
    how, grid = DIVIDE if fmt.apply == "divide" else MULTIPLY, grid_of(fmt.unit_format())
    rules = fmt.apply == "reciprocal", fmt.apply == "divide", fmt.scale == "e8m0"
    return how, grid, fmt.element.max, 2.0**fmt.margin, fmt.least, *rules


def _numbers(x: Tensor) -> Any:
    return x.detach().to(torch.float32).reshape(-1).numpy()


def _largest(words: Any, layout: _Layout, finite: bool = True) -> Any:
    """The largest magnitude of each group, as float32."""
    limit = np.uint32(0x7F800000 if finite else 0xFFFFFFFF)
    find: Callable[..., None] = numba_kernels.largest_by_column if layout.columns else numba_kernels.largest_by_row
    shares = []

    def work(start: int, stop: int) -> None:
        into = np.zeros(layout.scales, dtype=np.uint32)
        find(words, start, stop, *layout.numbers, limit, into)
        shares.append(into)

    split_over_threads(work, layout.rows, multiple=1, weight=layout.weight)
    return (shares[0] if len(shares) == 1 else np.maximum.reduce(shares)).view(np.float32)


@lru_cache(maxsize=1024)
def _grid_facts(grid: Grid, number: int) -> tuple[int, bool, Any]:
    return core_for(grid, number), is_plain(grid), numba_kernels.grid_words(grid)


def _round(
    x: Tensor, layout: _Layout, how: int, grid: Grid, mode: Mode, key: Key, out: Tensor | None,
    factors_of: Callable[[Any], tuple[Any, Any]],
) -> Tensor:  # fmt: skip
    """`x` rounded between two factors per group, which `factors_of` computes from the words of `x`."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    source, fresh = dense(x, out)
    read, write, number = words_of(source), words_of(fresh), mode_number(mode)
    core, plain, words = _grid_facts(grid, number)
    make = numba_kernels.scaled_column_kernel if layout.columns else numba_kernels.scaled_kernel
    kernel = make(number, core, plain, how, is_one(source, fresh))
    states, draw = numba_kernels.lfsr_table(number == LFSR), numba_kernels.draw_words(mode, key, 0)
    forward, back = factors_of(read)

    def work(start: int, stop: int) -> None:
        kernel(read, write, start, stop, *layout.numbers, forward, back, words, draw, states)

    split_over_threads(work, layout.rows, multiple=1, weight=layout.weight)
    return out if fresh is out else out.copy_(fresh)
