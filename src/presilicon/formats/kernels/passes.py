"""The choice between the compiled passes and plain torch for a tensor."""

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

from presilicon.base import torch
from presilicon.formats.format import MOST_LISTED_BITS
from presilicon.formats.rounding import Key, Mode, Stochastic

if TYPE_CHECKING:
    from torch import Tensor

    from presilicon.formats.families.block import BlockFormat, PowerBlocks
    from presilicon.formats.format import Format
    from presilicon.formats.kernels.gpu_keys import KeyBank
    from presilicon.formats.kernels.grid import Grid


@lru_cache(maxsize=1)
def has_numba() -> bool:
    """Whether the compiled CPU kernels can be used; without Numba the torch ones do the same work slowly."""
    return find_spec("numba") is not None


@lru_cache(maxsize=1)
def has_triton() -> bool:
    """Whether the compiled GPU kernels can be used."""
    return find_spec("triton") is not None


def key_bank(device: "torch.device") -> "KeyBank":
    """Memory for the keys of random numbers of a CUDA graph."""
    from presilicon.formats.kernels.gpu_keys import KeyBank

    return KeyBank(device)


def compiled_passes(x: "Tensor") -> ModuleType | None:
    """The module of compiled passes for `x`; None if plain torch does the work."""
    if x.dtype != torch.float32:
        return None
    if x.device.type == "cpu" and has_numba():
        from presilicon.formats.kernels import cpu_passes

        return cpu_passes
    if x.device.type == "cuda" and has_triton():
        from presilicon.formats.kernels import gpu_passes

        return gpu_passes
    return None


def cpu_passes_for(x: "Tensor", mode: Mode) -> ModuleType | None:
    """The compiled passes for value lists, which only CPUs have."""
    if x.device.type != "cpu" or x.numel() == 0 or (isinstance(mode, Stochastic) and x.numel() > 2**32):
        return None
    return compiled_passes(x)


def scaled_passes_for(x: "Tensor", mode: Mode, fmt: "BlockFormat | None" = None) -> ModuleType | None:
    """The compiled passes for scales that are not powers of two, of `fmt`'s groups if it has such."""
    if x.numel() == 0 or compiled_passes(x) is None or (isinstance(mode, Stochastic) and x.numel() > 2**32):
        return None
    if x.device.type == "cpu":
        from presilicon.formats.kernels import scaled_passes

        return scaled_passes
    from presilicon.formats.kernels import gpu_scaled_passes

    return gpu_scaled_passes if fmt is None or gpu_scaled_passes.holds_groups(fmt) else None


def lists_for(tensors: "Sequence[Tensor]", fmt: "Format") -> set[int]:
    """Which tensors one launch of a compiled pass can round together: several on a GPU, without shared scales."""
    if len(tensors) < 2 or fmt.grid() is None or fmt.wraps or fmt.is_blocked or not has_triton():
        return set()
    return {
        index
        for index, x in enumerate(tensors)
        if x.device.type == "cuda" and x.dtype is torch.float32 and x.is_contiguous() and 0 < x.numel() < 1 << 31
    }


def deliver(result: "Tensor", out: "Tensor | None") -> "Tensor":
    """The result, copied to `out` if there is one."""
    return result if out is None else out.copy_(result)


def round_on_grid(x: "Tensor", grid: "Grid", mode: Mode, key: Key, out: "Tensor | None") -> "Tensor":
    """`x` on a grid, written to `out` or a new tensor."""
    passes = compiled_passes(x)
    if passes is not None:
        result: Tensor = passes.round_elements(x, grid, mode, key, out)
        return result
    from presilicon.formats.kernels.torch_kernels import draw_words, round_to_grid

    return deliver(round_to_grid(x, grid, mode, draw_words(x, mode, key)), out)


def wrap_around(values: "Tensor", integer: int, signed: bool) -> "Tensor":
    """Rounded values modulo 2^integer, in place."""
    passes = compiled_passes(values) if values.device.type == "cpu" else None
    if passes is not None:
        wrapped: Tensor = passes.wrap(values, integer, signed)
        return wrapped
    from presilicon.formats.kernels.torch_kernels import wrap

    return wrap(values, integer, signed)


def round_in_blocks(x: "Tensor", fmt: "PowerBlocks", mode: Mode, key: Key, out: "Tensor | None") -> "Tensor":
    """`x` in a format with a power of two per block, written to `out` or a new tensor."""
    passes = compiled_passes(x)
    if passes is not None and not (isinstance(mode, Stochastic) and x.numel() > 2**32):
        result: Tensor = passes.round_blocks(x, fmt, mode, key, out)
        return result
    from presilicon.formats.kernels.torch_kernels import draw_words, round_blocks

    return deliver(round_blocks(x, fmt, mode, draw_words(x, mode, key)), out)


def round_to_values(x: "Tensor", fmt: "Format", mode: Mode, key: Key, out: "Tensor | None") -> "Tensor":
    """`x` in a format whose values are listed, written to `out` or a new tensor."""
    passes = cpu_passes_for(x, mode) if fmt.bits <= MOST_LISTED_BITS else None
    if passes is not None:
        result: Tensor = passes.round_steps(x, fmt, mode, key, out)
        return result
    from presilicon.formats.kernels.torch_kernels import draw_words

    return deliver(fmt.round_plain(x.double(), mode, draw_words(x, mode, key)).to(x.dtype), out)
