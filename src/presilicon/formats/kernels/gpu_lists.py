"""Many GPU tensors rounded in place by one launch."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from presilicon.formats.kernels import triton_kernels
from presilicon.formats.kernels.gpu_keys import is_recording, rows_of
from presilicon.formats.kernels.gpu_launch import start
from presilicon.formats.kernels.gpu_passes import facts, round_elements, signed_words
from presilicon.formats.kernels.grid import Grid
from presilicon.formats.rounding import Key, Stochastic

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


def round_list(tensors: Sequence[Tensor], grid: Grid, mode: str | Stochastic, keys: Sequence[Key]) -> None:
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
