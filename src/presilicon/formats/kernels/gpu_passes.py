"""The Triton passes over whole GPU tensors: float32 in memory order, into float32 or a type that holds the format."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from presilicon.formats.families.block import PowerBlocks
from presilicon.formats.kernels import triton_kernels
from presilicon.formats.kernels.gpu_keys import is_recording, rows_of
from presilicon.formats.kernels.gpu_launch import start
from presilicon.formats.kernels.gpu_layout import ELEMENTS, WARPS, plan_groups, plan_transfer
from presilicon.formats.kernels.grid import (
    COUNTER,
    GENERAL,
    LEVEL,
    LIFTED,
    NEAREST_EVEN,
    SPLIT,
    TOWARD_ZERO,
    Grid,
    block_grid_of,
    core_for,
    fast_scales,
    is_plain,
    mode_number,
)
from presilicon.formats.kernels.torch_kernels import block_axis
from presilicon.formats.rounding import LFSR_BITS, Key, Mode, Stochastic, lfsr_states

_LEVEL_SPLIT = 5
"""The kernels' id of `SPLIT` for grids with one step, which have no full binades."""
_AMAX_ELEMENTS, _AMAX_PROGRAMS = 4096, 2112
"""Elements that a program searches at once, and programs that share a tensor (measured on an H200)."""
_LAUNCH = 1 << 30
"""Elements in one launch of the element kernel: offsets within it fit 32 bits."""


def round_elements(x: Tensor, grid: Grid, mode: Mode, key: Key, out: Tensor | None) -> Tensor:
    """`x` on a grid, into `out` or a new tensor; random words follow the row-major index."""
    is_random = isinstance(mode, Stochastic)
    transfer = plan_transfer(x, out, is_random, in_rows=is_random and x.numel() > _LAUNCH)
    rows, cols = transfer.transposed or (1, 1)
    states, constants = facts(grid, mode, x.device)
    constants = {**constants, "IS_TRANSPOSED": transfer.transposed is not None, "BLOCK": ELEMENTS, "num_warps": WARPS}
    total = x.numel()
    for begin in range(0, total, _LAUNCH):
        count = min(_LAUNCH, total - begin)
        source, target = transfer.source, transfer.target
        if total > _LAUNCH:
            source, target = (y.as_strided((count,), (1,), y.storage_offset() + begin) for y in (source, target))
        sizes = count, _signed(begin & 0xFFFFFFFF), rows, cols
        words, programs = key_words(mode, key, begin >> 32), triton.cdiv(count, ELEMENTS)
        start(triton_kernels.element_kernel, programs, (source, target, states), sizes, constants, words)
    return transfer.finish()


def round_blocks(x: Tensor, fmt: PowerBlocks, mode: Mode, key: Key, out: Tensor | None) -> Tensor:
    """`x` in a block format, into `out` or a new tensor."""
    axis = block_axis(tuple(x.shape), fmt)
    if x.numel() == 0:
        return plan_transfer(x, out, is_random=False).finish()
    transfer, tiling = plan_groups(x, out, axis, fmt.group_size, fmt.is_square, isinstance(mode, Stochastic))
    states, constants = facts(block_grid_of(fmt).grid, mode, x.device)
    block = _block_facts(fmt, constants["CORE"])
    # NaN does not count, and infinities are the largest number.
    top = largest_of_all(transfer.source, limit=0x7F800001) if block["WINDOW"] else states
    sizes = tiling.tiles, tiling.rows, tiling.cols
    constants = {**tiling.constants, **block, **constants}
    tensors = transfer.source, transfer.target, states, top
    start(triton_kernels.block_kernel, tiling.programs, tensors, sizes, constants, key_words(mode, key))
    return transfer.finish()


def largest_of_all(x: Tensor, limit: int) -> Tensor:
    """The bits of the largest magnitude below `limit` in a dense tensor, as one int32 number."""
    return largest_of_lines(x, 1, x.numel(), 1, limit)


def largest_of_lines(x: Tensor, lines: int, length: int, turns: int, limit: int) -> Tensor:
    """The bits of the largest magnitudes below `limit` of lines in memory, of every `turns`-th one together."""
    largest = torch.zeros(turns, dtype=torch.int32, device=x.device)
    block = min(_AMAX_ELEMENTS, triton.next_power_of_2(length))
    parts = max(1, min(triton.cdiv(length, block), _AMAX_PROGRAMS // lines))
    constants = {"LIMIT": limit, "BLOCK": block, "num_warps": max(1, block // 512)}
    start(triton_kernels.largest_kernel, lines * parts, (x, largest), (length, parts, turns), constants)
    return largest


@lru_cache(maxsize=1024)
def _block_facts(fmt: PowerBlocks, core: int) -> dict[str, Any]:
    """The constants of a block format, with the range of exponents in which `core` is exact."""
    block = block_grid_of(fmt)
    names = ("emax", "bump", "lowest", "highest", "window", "flush", "poison")
    first_fast, last_fast = fast_scales(block, core)
    return {name.upper(): getattr(block, name) for name in names} | {"FIRST_FAST": first_fast, "LAST_FAST": last_fast}


def _core(grid: Grid, number: int) -> int:
    """The core for a grid and a mode; here toward-zero has those of nearest-even, and random modes are not lifted."""
    core = core_for(grid, NEAREST_EVEN if number == TOWARD_ZERO else number)
    if core == SPLIT and max(grid.max_positive, grid.max_negative) >> 23 < grid.low:
        return _LEVEL_SPLIT
    return GENERAL if number >= COUNTER and core in (LIFTED, LEVEL) else core


def facts(grid: Grid, mode: Mode, device: torch.device) -> tuple[Tensor, dict[str, Any]]:
    """The shift register's states, and the constants of a grid and a mode."""
    has_states = isinstance(mode, Stochastic) and mode.source == "lfsr"
    return (_states if has_states else _no_states)(device), _constants(grid, mode)


def key_words(mode: Mode, key: Key, block: int = 0) -> "tuple[int | Tensor, int]":
    """The words of a key for 2^32 elements, as signed numbers; zeros where nothing is drawn.

    In a step that is captured, the first is the memory that holds both.
    """
    if not isinstance(mode, Stochastic):
        return 0, 0
    if (row := rows_of([(key, block)])) is not None:
        return row, 0
    return signed_words(key, block)


def signed_words(key: Key, block: int = 0) -> tuple[int, int]:
    """The words of a key, as signed numbers."""
    first, second = key.words(block)
    return _signed(first), _signed(second)


@lru_cache(maxsize=1024)
def _constants(grid: Grid, mode: Mode) -> dict[str, Any]:
    number = mode_number(mode)
    mask = (0xFFFFFFFF << (32 - mode.bits)) & 0xFFFFFFFF if isinstance(mode, Stochastic) else 0
    constants = {"MASK": mask, "MODE": number, "CORE": _core(grid, number)}
    return constants | {"PLAIN": is_plain(grid)} | {name.upper(): getattr(grid, name) for name in Grid.__slots__}


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


CHUNK, _WARPS = 2048, 4
"""Elements that one program rounds, and its warps."""
_LISTS = 64
"""Lists whose tables stay on the device."""


class _Tables(NamedTuple):
    """A list of tensors as the kernel takes it."""

    tensors: Tensor
    """Address and size of each."""
    chunks: Tensor
    """Tensor and first element of each program."""


_tables: dict[tuple[Any, ...], _Tables] = {}
_captured: list[_Tables] = []
"""Tables that CUDA graphs read when they are replayed, and which must not be freed."""


def round_list(tensors: Sequence[Tensor], grid: Grid, mode: Mode, keys: Sequence[Key]) -> None:
    """Round row-major float32 tensors of one device on a grid, in place, without waiting for the GPU."""
    device = tensors[0].device
    name = device, *((x.data_ptr(), x.numel()) for x in tensors)
    is_random = isinstance(mode, Stochastic)
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        if name not in _tables or (is_random and not is_recording()):
            # A graph cannot copy numbers that this call alone has.
            for x, key in zip(tensors, keys, strict=True):
                round_elements(x, grid, mode, key, x)
            return
        _captured.append(_tables[name])
    if name not in _tables:
        if len(_tables) >= _LISTS:
            del _tables[next(iter(_tables))]
        _tables[name] = _tables_of(tensors)
    tables = _tables[name]
    states, constants = facts(grid, mode, device)
    words = states
    if is_random:
        rows = rows_of([(key, 0) for key in keys])
        own = [word for key in keys for word in signed_words(key)] if rows is None else []
        words = _upload(own, torch.int32, device) if rows is None else rows
    constants = {**constants, "BLOCK": CHUNK, "num_warps": _WARPS}
    start(triton_kernels.list_kernel, len(tables.chunks) // 2, (*tables, words, states), (), constants)


def _tables_of(tensors: Sequence[Tensor]) -> _Tables:
    device = tensors[0].device
    table = [number for x in tensors for number in (x.data_ptr(), x.numel())]
    starts = [(index, start) for index, x in enumerate(tensors) for start in range(0, x.numel(), CHUNK)]
    chunks = [number for pair in starts for number in pair]
    return _Tables(_upload(table, torch.int64, device), _upload(chunks, torch.int64, device))


def _upload(numbers: list[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers on the device; from pinned memory, so that nothing waits for the copy."""
    host = torch.tensor(numbers, dtype=dtype)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host
