"""The compiled passes over whole CPU tensors: float32 in memory order, split over torch's threads."""

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from presilicon.base import split_over_threads
from presilicon.formats.families.block import PowerBlocks
from presilicon.formats.format import Format
from presilicon.formats.kernels import numba_kernels, torch_kernels
from presilicon.formats.kernels.grid import LFSR, BlockGrid, Grid, block_grid_of, core_for, is_plain, mode_number
from presilicon.formats.kernels.step_tables import step_table
from presilicon.formats.kernels.torch_kernels import block_axis
from presilicon.formats.rounding import Key, Mode, Stochastic

_NEAR = 1 << 16
"""Elements that the column pass works on together: they stay in the second-level cache."""


def round_elements(x: Tensor, grid: Grid, mode: Mode, key: Key, out: Tensor | None) -> Tensor:
    """`x` on a grid, into `out` or a new tensor."""
    if out is None:
        out = torch.empty_like(x)
    if x.stride() == out.stride() and _is_flat(x, row_major=isinstance(mode, Stochastic)):
        _element_pass(x, out, grid, mode, key)
        return out
    source, fresh = dense(x, out)
    _element_pass(source, fresh, grid, mode, key)
    return out if fresh is out else out.copy_(fresh)


def round_blocks(x: Tensor, fmt: PowerBlocks, mode: Mode, key: Key, out: Tensor | None) -> Tensor:
    """`x` in a block format, into `out` or a new tensor."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    axis = block_axis(tuple(x.shape), fmt)
    if x.numel():
        source, fresh = dense(x, out)
        _block_pass(source, fresh, axis, fmt, mode, key)
        out = out if fresh is out else out.copy_(fresh)
    return out


def round_steps(x: Tensor, fmt: Format, mode: Mode, key: Key, out: Tensor | None) -> Tensor:
    """`x` in a format that is a list of values, into `out` or a new tensor."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    table = step_table(fmt, None if isinstance(mode, Stochastic) else mode)
    arrays = (table.first, table.edges, table.low, table.high, table.near, table.far)
    number = mode_number(mode)
    kernel = numba_kernels.step_kernel(number, table.halvings)
    source, fresh = dense(x, out)
    read, write = words_of(source), words_of(fresh)
    draw, states = numba_kernels.draw_words(mode, key, 0), numba_kernels.lfsr_table(number == LFSR)

    def work(start: int, stop: int) -> None:
        kernel(read[start:stop], write[start:stop], start, arrays, draw, states)

    split_over_threads(work, read.size)
    return out if fresh is out else out.copy_(fresh)


def round_posits(x: Tensor, bits: int, es: int, mode: str, out: Tensor | None) -> Tensor:
    """`x` as posits, into `out` or a new tensor; not for random modes."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    source, fresh = dense(x, out)
    read, write = words_of(source), words_of(fresh)
    kernel = numba_kernels.posit_kernel(mode_number(mode), is_one(source, fresh))

    def work(start: int, stop: int) -> None:
        kernel(read[start:stop], write[start:stop], bits, es)

    split_over_threads(work, read.size)
    return out if fresh is out else out.copy_(fresh)


def wrap(values: Tensor, integer: int, signed: bool) -> Tensor:
    """Rounded values modulo 2^integer, in place."""
    span = 2.0**integer
    if not _is_flat(values, row_major=False):
        return torch_kernels.wrap(values, integer, signed)
    words, top = words_of(values), np.float32(span / 2 if signed else span)

    def work(start: int, stop: int) -> None:
        numba_kernels.wrap_numbers(words[start:stop], np.float32(span), top)

    split_over_threads(work, words.size)
    return values


def dense(x: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
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


def words_of(x: Tensor) -> Any:
    """The bit patterns of a dense tensor, in the order of its memory."""
    return x.as_strided((x.numel(),), (1,)).numpy().view(np.uint32)


def _element_pass(x: Tensor, out: Tensor, grid: Grid, mode: Mode, key: Key) -> None:
    read, write = words_of(x), words_of(out)
    number = mode_number(mode)
    core, plain = core_for(grid, number), is_plain(grid)
    kernel = numba_kernels.element_kernel(number, core, plain, is_one(x, out))
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


def _block_pass(x: Tensor, out: Tensor, axis: int, fmt: PowerBlocks, mode: Mode, key: Key) -> None:
    number = mode_number(mode)
    block, core, plain, grid, limits = _block_words(fmt, number)
    read, write, shape = words_of(x), words_of(out), tuple(x.shape)
    if block.window:
        top = int(numba_kernels.largest_number(read))
        exponent = int(numba_kernels.scale_exponent(np.uint32(top), block.poison, block.emax, block.bump))
        limits = numba_kernels.block_words(block, core, max(block.lowest, exponent - block.window))
    draw, states = numba_kernels.draw_words(mode, key, 0), numba_kernels.lfsr_table(number == LFSR)
    size, square, in_place = fmt.group_size, fmt.is_square, is_one(x, out)
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


def is_one(x: Tensor, out: Tensor) -> bool:
    """Whether a pass works in place."""
    return x.data_ptr() == out.data_ptr()
