"""Plans of the GPU passes: a tensor in the order of its memory, and its division into groups that share a scale."""

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

FLAT, TILES, BANDS, DOWN = range(4)
"""`triton_kernels.tile_offsets` describes them."""

ELEMENTS, WARPS = 512, 2
"""Elements that one program rounds, and its warps: small ones keep more loads in flight (measured on an H200)."""
MOST_MEMBERS, MOST_ROWS, MOST_SIDE = 1 << 14, 1024, 128
"""Elements of a group that one program can hold: side by side, a row apart, and along each side of a tile."""


class StridedTensor(NamedTuple):
    """A tensor in the order of its memory."""

    order: tuple[int, ...] | None
    """Axes from the longest stride to the shortest; None if elements do not lie one after another."""
    transposed: tuple[int, int] | None
    """Sizes of stacked matrices in memory whose transposes are the tensor; None: it is row-major, or neither."""


@lru_cache(maxsize=1024)
def _memory_of(shape: tuple[int, ...], stride: tuple[int, ...]) -> StridedTensor:
    order = tuple(sorted(range(len(shape)), key=lambda axis: (-stride[axis], axis) if shape[axis] > 1 else (0, axis)))
    long = [axis for axis in order if shape[axis] > 1]
    expected = 1
    for axis in reversed(long):
        if stride[axis] != expected:
            return StridedTensor(None, None)
        expected *= shape[axis]
    if long == sorted(long):
        return StridedTensor(_ROW_MAJOR[: len(shape)], None)
    # Stacked transposes: the axes of some suffix are rotated.
    same = next(
        i for i, (axis, expected_axis) in enumerate(zip(long, sorted(long), strict=True)) if axis != expected_axis
    )
    suffix = long[same:]
    cut = suffix.index(min(suffix))
    rotated = suffix[cut:] + suffix[:cut] == sorted(suffix)
    sizes = prod(shape[axis] for axis in suffix[:cut]), prod(shape[axis] for axis in suffix[cut:])
    return StridedTensor(order, sizes if rotated else None)


class Transfer(NamedTuple):
    """A tensor to read and one to write, whose elements lie one after another in the same order."""

    source: Tensor
    target: Tensor
    out: Tensor
    order: tuple[int, ...]
    transposed: tuple[int, int] | None

    def finish(self) -> Tensor:
        """The result; copied to `out` if this has another order."""
        return self.out if self.target is self.out else self.out.copy_(self.target)


def plan_transfer(x: Tensor, out: Tensor | None, is_random: bool, in_rows: bool = False) -> Transfer:
    """The transfer of `x` to `out` or a new tensor, in the order of `x`'s memory if that is possible.

    Random words follow the row-major index, which is known for transposes too. `in_rows` demands row-major order.
    """
    shape, stride = tuple(x.shape), x.stride()
    memory = _memory_of(shape, stride)
    is_row_major = memory.order == _ROW_MAJOR[: len(shape)]
    is_dense = memory.order is not None and (memory.transposed is not None or not is_random)
    if not (is_row_major or (is_dense and not in_rows)) or (out is not None and out.stride() != stride):
        x = x.contiguous()
        memory, stride = StridedTensor(_ROW_MAJOR[: len(shape)], None), x.stride()
    if out is None:
        out = torch.empty_like(x)
    target = out if out.stride() == stride else torch.empty_like(x, dtype=out.dtype)
    assert memory.order is not None
    return Transfer(x, target, out, memory.order, memory.transposed if is_random else None)


_ROW_MAJOR = tuple(range(64))


class Tiling(NamedTuple):
    """A tensor as a stack of matrices of `rows` x `cols` in tiles, as the kernels take it."""

    tiles: int
    rows: int
    cols: int
    programs: int
    constants: dict[str, Any]
    is_held: bool
    """Whether a program holds whole groups; else it reads the largest magnitude of its line."""


@lru_cache(maxsize=1024)
def tiling_of(
    shape: tuple[int, ...], axis: int | None, size: int, is_square: bool, transposed: tuple[int, int] | None
) -> Tiling | None:
    """The tiling of a row-major tensor: groups of `size` along `axis` (0: all of it), square tiles, or one group.

    None where the indices of a transposed tensor do not follow from those of the groups.
    """
    count = prod(shape)
    if axis is None:
        rows, cols, tile_rows, tile_cols, kind, is_held = 1, count, 1, ELEMENTS, TILES, False
    elif is_square:
        rows, cols = (1, 1, *shape)[-2:]
        tile_rows, tile_cols, kind, is_held = size, size, TILES, True
    else:
        length, inner = (shape[axis] if shape else 1), prod(shape[axis + 1 :])
        group = size or length
        is_held = triton.next_power_of_2(group) <= (MOST_MEMBERS if inner == 1 else MOST_ROWS)
        if inner > 1:
            rows, cols, tile_cols, kind = length, inner, 1, DOWN
            tile_rows = group if is_held else 32
        else:
            rows, cols, tile_rows, kind = 1, length, 1, TILES
            tile_cols = group if is_held else ELEMENTS
    if transposed is not None:
        if rows == 1 and cols == transposed[1]:
            rows = transposed[0]
        if (rows, cols) != transposed:
            return None
    elif tile_rows == 1 and cols % tile_cols == 0 and is_held:
        kind = FLAT
    members = triton.next_power_of_2(tile_rows * tile_cols)
    groups, warps = _program(kind, members)
    matrices, down, across = count // (rows * cols), triton.cdiv(rows, tile_rows), triton.cdiv(cols, tile_cols)
    if kind == TILES and across >= groups:
        kind = BANDS
    tiles = matrices * down * across
    programs = matrices * down * triton.cdiv(across, groups) if kind >= BANDS else triton.cdiv(tiles, groups)
    has_whole_tiles = members == tile_rows * tile_cols and not (rows % tile_rows or cols % tile_cols)
    constants = {
        "TILE_ROWS": tile_rows,
        "TILE_COLS": tile_cols,
        "LAYOUT": kind,
        "IS_TRANSPOSED": transposed is not None,
        "IS_WIDE": count >= 1 << 31,
        "IS_EVEN": has_whole_tiles and (across if kind >= BANDS else tiles) % groups == 0,
        "GROUPS": groups,
        "MEMBERS": members,
        "num_warps": warps,
    }
    return Tiling(tiles, rows, cols, programs, constants, is_held)


def _program(kind: int, members: int) -> tuple[int, int]:
    """Groups of a program, and its warps, as measured on an H200."""
    if kind == DOWN:
        groups = 64 if members <= 32 else 32
        return groups, max(2, min(16, groups * members // 1024))
    return max(1, 2 * ELEMENTS // members), max(WARPS, min(16, members // 256))


def plan_groups(
    x: Tensor, out: Tensor | None, axis: int | None, size: int, is_square: bool, is_random: bool
) -> tuple[Transfer, Tiling]:
    """The transfer of a tensor, and its tiling (see `tiling_of`)."""
    for in_rows in (False, True):
        transfer = plan_transfer(x, out, is_random, in_rows)
        if is_square and tuple(sorted(transfer.order[-2:])) != _ROW_MAJOR[: x.dim()][-2:]:
            continue
        shape = tuple(x.shape[dim] for dim in transfer.order)
        own_axis = None if axis is None else transfer.order.index(axis) if shape else 0
        tiling = tiling_of(shape, own_axis, size, is_square, transfer.transposed)
        if tiling is not None:
            return transfer, tiling
    raise AssertionError("a row-major tensor always has a tiling")
