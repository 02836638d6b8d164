"""The compiled passes over whole CPU tensors: float32 in memory order, split over torch's threads."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from presilicon.formats.families.block import PowerBlocks
from presilicon.formats.families.nvfp import ELEMENT_FORMAT, LEAST_SCALES, SCALE_FORMAT, Nvfp4
from presilicon.formats.families.scaled import Scaled
from presilicon.formats.format import Format
from presilicon.formats.kernels import numba_kernels, torch_kernels
from presilicon.formats.kernels.cores import LFSR, core_for, is_plain, mode_number
from presilicon.formats.kernels.grid import BlockGrid, Grid, block_grid_of, grid_of
from presilicon.formats.kernels.numba_kernels import DIVIDE, DIVIDE_NUMBERS, MULTIPLY, MULTIPLY_NUMBERS
from presilicon.formats.kernels.step_tables import step_table
from presilicon.formats.kernels.threads import split_over_threads
from presilicon.formats.kernels.torch_blocks import block_axis
from presilicon.formats.rounding import Key, Stochastic

_NEAR = 1 << 16
"""Elements that the column pass works on together: they stay in the second-level cache."""


def round_elements(x: Tensor, grid: Grid, mode: str | Stochastic, key: Key, out: Tensor | None) -> Tensor:
    """`x` on a grid, into `out` or a new tensor."""
    if out is None:
        out = torch.empty_like(x)
    if x.stride() == out.stride() and _is_flat(x, row_major=isinstance(mode, Stochastic)):
        _element_pass(x, out, grid, mode, key)
        return out
    dense, fresh = _dense(x, out)
    _element_pass(dense, fresh, grid, mode, key)
    return out if fresh is out else out.copy_(fresh)


def round_blocks(x: Tensor, fmt: PowerBlocks, mode: str | Stochastic, key: Key, out: Tensor | None) -> Tensor:
    """`x` in a block format, into `out` or a new tensor."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    axis = block_axis(tuple(x.shape), fmt)
    if x.numel():
        dense, fresh = _dense(x, out)
        _block_pass(dense, fresh, axis, fmt, mode, key)
        out = out if fresh is out else out.copy_(fresh)
    return out


def round_steps(x: Tensor, fmt: Format, mode: str | Stochastic, key: Key, out: Tensor | None) -> Tensor:
    """`x` in a format that is a list of values, into `out` or a new tensor."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    table = step_table(fmt, None if isinstance(mode, Stochastic) else mode)
    arrays = (table.first, table.edges, table.low, table.high, table.near, table.far)
    number = mode_number(mode)
    kernel = numba_kernels.step_kernel(number, table.halvings)
    dense, fresh = _dense(x, out)
    read, write = _words(dense), _words(fresh)
    draw, states = numba_kernels.draw_words(mode, key, 0), numba_kernels.lfsr_table(number == LFSR)

    def work(start: int, stop: int) -> None:
        kernel(read[start:stop], write[start:stop], start, arrays, draw, states)

    split_over_threads(work, read.size)
    return out if fresh is out else out.copy_(fresh)


def wrap(values: Tensor, integer: int, signed: bool) -> Tensor:
    """Rounded values modulo 2^integer, in place."""
    span = 2.0**integer
    if not _is_flat(values, row_major=False):
        return torch_kernels.wrap(values, integer, signed)
    words, top = _words(values), np.float32(span / 2 if signed else span)

    def work(start: int, stop: int) -> None:
        numba_kernels.wrap_numbers(words[start:stop], np.float32(span), top)

    split_over_threads(work, words.size)
    return values


@dataclass(frozen=True, slots=True)
class _Layout:
    """Layout of scales over a row-major tensor, as `numba_kernels.scaled_kernel` takes it."""

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
    def usual(self) -> int:
        """The size of short rows that deserve a kernel of their own, else 0."""
        return self.size if self.size == 16 else 0

    @property
    def weight(self) -> int:
        """Elements in a row."""
        return self.width or self.size


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
    groups, bands = -(-length // size), -(-height // size)
    return _Layout(False, lines * groups, 0, length, size, lines // height * bands * groups, height, size)


def _layout(x: Tensor, fmt: Nvfp4 | Scaled) -> _Layout:
    shape = tuple(x.shape)
    axis = block_axis(shape, fmt) if fmt.is_oriented else 0
    if fmt.is_square:
        return _by_tile(shape, fmt.group_size)
    if fmt.is_oriented:
        return _by_block(shape, axis, fmt.group_size or (shape[axis] if shape else 1))
    return _by_channel(shape, None)


def largest_by_channel(x: Tensor, axis: int | None) -> Tensor:
    """The largest finite magnitude of each channel along `axis`, or of the whole tensor; `x` is not empty."""
    return _largest(x, _by_channel(tuple(x.shape), axis))


def largest_magnitude(x: Tensor) -> Tensor:
    """The largest magnitude, in a tensor of no dimension; NaN and infinities count. `x` is not empty."""
    return _largest(x, _by_channel(tuple(x.shape), None), finite=False).view(())


def round_by_channel(
    x: Tensor, scale: Tensor, axis: int | None, grid: Grid, mode: str | Stochastic, key: Key, out: Tensor | None
) -> Tensor:
    """`x` over its channels' scales, on a grid, times the scales."""
    return _round_scaled(x, scale, scale, _by_channel(tuple(x.shape), axis), DIVIDE_NUMBERS, grid, mode, key, out)


def round_nvfp4(x: Tensor, fmt: Nvfp4, mode: str | Stochastic, key: Key, out: Tensor | None) -> Tensor:
    """`x` in NVFP4; `x` is not empty."""
    layout = _layout(x, fmt)
    largest = _largest(x, layout)
    forward, back = torch.empty_like(largest), torch.empty_like(largest)
    numba_kernels.nvfp4_factors(
        largest.numpy(), forward.numpy(), back.numpy(), fmt.tensor_scale, fmt.apply == "divide",
        fmt.apply == "reciprocal", np.float32(LEAST_SCALES[fmt.apply]), numba_kernels.grid_words(grid_of(SCALE_FORMAT)),
    )  # fmt: skip
    how = DIVIDE_NUMBERS if fmt.apply == "divide" else MULTIPLY_NUMBERS
    return _round_scaled(x, forward, back, layout, how, grid_of(ELEMENT_FORMAT), mode, key, out)


def scale_factors(amax: Tensor, fmt: Scaled) -> tuple[Tensor, Tensor]:
    """`Scaled.factors` of largest magnitudes."""
    amax = amax.contiguous()
    forward, back = torch.empty_like(amax), torch.empty_like(amax)
    numba_kernels.scale_factors(
        _numbers(amax), _numbers(forward), _numbers(back), fmt.element.max, 2.0**fmt.margin, fmt.least,
        fmt.apply == "reciprocal", fmt.apply == "divide", fmt.scale == "e8m0",
    )  # fmt: skip
    return forward, back


def round_scaled(
    x: Tensor, fmt: Scaled, amax: Tensor | None, mode: str | Stochastic, key: Key, out: Tensor | None
) -> Tensor:
    """`x` in a scaled format, with the largest magnitudes of `x` or a given one; `x` is not empty."""
    layout = _layout(x, fmt)
    forward, back = fmt.factors(_largest(x, layout, finite=False) if amax is None else amax)
    how = DIVIDE if fmt.apply == "divide" else MULTIPLY
    return _round_scaled(x, forward, back, layout, how, grid_of(fmt.unit_format), mode, key, out)


def _largest(x: Tensor, layout: _Layout, finite: bool = True) -> Tensor:
    read = _words(x.contiguous())
    limit = np.uint32(0x7F800000 if finite else 0xFFFFFFFF)
    by_row = numba_kernels.largest_by_row(layout.usual)
    find: Callable[..., None] = numba_kernels.largest_by_column if layout.columns else by_row
    shares = []

    def work(start: int, stop: int) -> None:
        into = np.zeros(layout.scales, dtype=np.uint32)
        find(read, start, stop, *layout.numbers, limit, into)
        shares.append(into)

    split_over_threads(work, layout.rows, multiple=1, weight=layout.weight)
    return torch.from_numpy((shares[0] if len(shares) == 1 else np.maximum.reduce(shares)).view(np.float32))


def _round_scaled(
    x: Tensor, forward: Tensor, back: Tensor, layout: _Layout, how: int, grid: Grid, mode: str | Stochastic, key: Key,
    out: Tensor | None,
) -> Tensor:  # fmt: skip
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    dense, fresh = _dense(x, out)
    read, write = _words(dense), _words(fresh)
    factors, scales = forward.reshape(-1).numpy(), back.reshape(-1).numpy()
    number = mode_number(mode)
    core, plain = core_for(grid, number), is_plain(grid)
    if layout.columns:
        kernel = numba_kernels.scaled_column_kernel(number, core, plain, how, _is_one(dense, fresh))
    else:
        kernel = numba_kernels.scaled_kernel(number, core, plain, how, _is_one(dense, fresh), layout.usual)
    words, states = numba_kernels.grid_words(grid), numba_kernels.lfsr_table(number == LFSR)
    draw = numba_kernels.draw_words(mode, key, 0)

    def work(start: int, stop: int) -> None:
        kernel(read, write, start, stop, *layout.numbers, factors, scales, words, draw, states)

    split_over_threads(work, layout.rows, multiple=1, weight=layout.weight)
    return out if fresh is out else out.copy_(fresh)


def _dense(x: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """A row-major tensor to read and one to write; `x` and `out` themselves if they are row-major."""
    fresh = out if out.is_contiguous() else torch.empty(x.shape, dtype=x.dtype)
    return x.contiguous(), fresh


def _is_flat(x: Tensor, row_major: bool) -> bool:
    """Whether the elements lie one after another in memory: in row-major order, or in any."""
    if x.is_contiguous() or row_major:
        return x.is_contiguous()
    expected = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _words(x: Tensor) -> Any:
    return _numbers(x).view(np.uint32)


def _numbers(x: Tensor) -> Any:
    return x.as_strided((x.numel(),), (1,)).numpy()


def _element_pass(x: Tensor, out: Tensor, grid: Grid, mode: str | Stochastic, key: Key) -> None:
    read, write = _words(x), _words(out)
    number = mode_number(mode)
    core, plain = core_for(grid, number), is_plain(grid)
    kernel = numba_kernels.element_kernel(number, core, plain, _is_one(x, out))
    words, states = numba_kernels.grid_words(grid), numba_kernels.lfsr_table(number == LFSR)
    for block in range(-(-read.size // 2**32)):
        draw = numba_kernels.draw_words(mode, key, block)
        base = block * 2**32

        def work(start: int, stop: int, base: int = base, draw: Any = draw) -> None:
            kernel(read[base + start : base + stop], write[base + start : base + stop], start, words, draw, states)

        split_over_threads(work, min(read.size - base, 2**32))


@lru_cache(maxsize=1024)
def _block_words(fmt: PowerBlocks, number: int) -> tuple[BlockGrid, int, bool, Any, Any]:
    """The block grid of a format, the core and whether it is plain, and the words that the kernels take."""
    block = block_grid_of(fmt)
    core = core_for(block.grid, number)
    limits = numba_kernels.block_words(block, core, block.lowest)
    return block, core, is_plain(block.grid), numba_kernels.grid_words(block.grid), limits


def _block_pass(x: Tensor, out: Tensor, axis: int, fmt: PowerBlocks, mode: str | Stochastic, key: Key) -> None:
    number = mode_number(mode)
    block, core, plain, grid, limits = _block_words(fmt, number)
    read, write, shape = _words(x), _words(out), tuple(x.shape)
    if block.window:
        top = int(numba_kernels.largest_number(read))
        exponent = int(numba_kernels.scale_exponent(np.uint32(top), block.poison, block.emax, block.bump))
        limits = numba_kernels.block_words(block, core, max(block.lowest, exponent - block.window))
    draw, states = numba_kernels.draw_words(mode, key, 0), numba_kernels.lfsr_table(number == LFSR)
    size, square, in_place = fmt.group_size, fmt.is_square, _is_one(x, out)
    after = prod(shape[axis + 1 :])
    if square or after == 1:
        rows = shape[-2] if square and len(shape) > 1 else 1
        width, tile_rows = (shape[axis] if shape else 1), (size if square else 1)
        if rows == 1 and width % size == 0:
            width = read.size
        tile = numba_kernels.tile_kernel(number, core, plain, in_place)
        count = read.size // (rows * width) * -(-rows // tile_rows) * -(-width // size)

        def work(start: int, stop: int) -> None:
            tile(read, write, start, stop, rows, width, tile_rows, size, grid, limits, draw, states)

        split_over_threads(work, count, multiple=1, weight=size * tile_rows)
        return
    rows, width = shape[axis], after
    column = numba_kernels.column_kernel(number, core, plain, in_place)
    strip = max(16, _NEAR // size)
    count = read.size // (rows * width) * -(-rows // size) * -(-width // strip)

    def column_work(start: int, stop: int) -> None:
        column(read, write, start, stop, rows, width, size, strip, grid, limits, draw, states)

    split_over_threads(column_work, count, multiple=1, weight=size * min(strip, width))


def _is_one(x: Tensor, out: Tensor) -> bool:
    return x.data_ptr() == out.data_ptr()
