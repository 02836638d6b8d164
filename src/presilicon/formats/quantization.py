"""`quantize`: a tensor with every element on a format's values."""

from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from presilicon.base.errors import FormatError
from presilicon.formats.format import Format
from presilicon.formats.grid import Grid, grid_of
from presilicon.formats.rounding import Key, Rounding, Stochastic, check_rounding

if TYPE_CHECKING:
    from torch import Tensor


def quantize(
    x: "Tensor",
    fmt: Format,
    *,
    rounding: Rounding | Stochastic | None = None,
    key: Key | None = None,
    out: "Tensor | None" = None,
) -> "Tensor":
    """`x` with every element rounded, once, to a value of `fmt`.

    Args:
        x: A float32 tensor of any shape and strides on the CPU or a CUDA device. float64 is rounded from its own
            value and gives float64; float16 and bfloat16 are widened exactly and give float32.
        fmt: The format, as `parse` gives it.
        rounding: A mode's name, or a `Stochastic` with its random bits and source. None is nearest-even.
        key: Seed, step and tensor of stochastic rounding; None is `Key()`. The random word of an element depends on
            the key and its row-major index only.
        out: Where to write, of the result's shape and type; `out=x` works in place. Reusing an output saves more
            time than the arithmetic takes.

    Returns:
        `out`, or a new tensor. It carries no gradient: emulation adds its own.

    Raises:
        FormatError: An integer or complex tensor, a device that is neither CPU nor CUDA, or an unfit `out`.

    >>> import torch
    >>> from presilicon.formats import parse
    >>> quantize(torch.tensor([1.1, 1.2, -70000.0, float("nan")]), parse("e5m2"))
    tensor([1.0000, 1.2500,   -inf,    nan])
    """
    import torch

    mode = check_rounding(rounding)
    x = _check_input(x, fmt)
    if out is not None:
        _check_output(out, x, fmt)
        out = out.detach()
    if x.device.type == "cpu" and x.dtype == torch.float32 and numba_is_here():
        return _quantize_numba(x, grid_of(fmt), mode, key or Key(), out)
    return _quantize_torch(x, grid_of(fmt), mode, key or Key(), out)


@lru_cache(maxsize=1)
def numba_is_here() -> bool:
    """Whether the compiled CPU kernels can be used; without Numba the torch ones do the same work slowly."""
    return find_spec("numba") is not None


def _check_input(x: "Tensor", fmt: Format) -> "Tensor":
    import torch

    if not isinstance(x, torch.Tensor):
        raise FormatError(f"{fmt}: a torch tensor is needed, not {type(x).__name__}; try torch.as_tensor(...)")
    what = f"{fmt}: a tensor of shape {tuple(x.shape)}"
    if x.device.type not in ("cpu", "cuda") or x.layout != torch.strided:
        place = f"on device {x.device}" if x.layout == torch.strided else f"of layout {x.layout}"
        raise FormatError(f"{what} {place} cannot be quantised; allowed: strided tensors on cpu, cuda")
    if x.dtype in (torch.float16, torch.bfloat16):
        return x.detach().to(torch.float32)
    if x.dtype not in (torch.float32, torch.float64):
        raise FormatError(
            f"{what} and type {x.dtype} cannot be quantised; allowed: float32, float64, float16, bfloat16; "
            "try x.float()"
        )
    return x.detach()


def _check_output(out: "Tensor", x: "Tensor", fmt: Format) -> None:
    if (out.shape, out.dtype, out.device) != (x.shape, x.dtype, x.device):
        raise FormatError(
            f"{fmt}: out is {tuple(out.shape)} {out.dtype} on {out.device}; "
            f"needed: {tuple(x.shape)} {x.dtype} on {x.device}"
        )


def _quantize_torch(x: "Tensor", grid: Grid, mode: str | Stochastic, key: Key, out: "Tensor | None") -> "Tensor":
    from presilicon.formats import torch_kernels

    words = None
    if isinstance(mode, Stochastic):
        words = torch_kernels.random_words(key, mode, 0, x.numel(), x.device).view(x.shape)
    result = torch_kernels.round_to_grid(x, grid, mode, words)
    return result if out is None else out.copy_(result)


def _quantize_numba(x: "Tensor", grid: Grid, mode: str | Stochastic, key: Key, out: "Tensor | None") -> "Tensor":
    import torch

    if out is None:
        out = torch.empty_like(x)
    if x.stride() == out.stride() and _is_flat(x, row_major=isinstance(mode, Stochastic)):
        _run_numba(_flat(x), _flat(out), grid, mode, key)
        return out
    dense = x.contiguous()
    if out.is_contiguous():
        _run_numba(_flat(dense), _flat(out), grid, mode, key)
        return out
    fresh = torch.empty_like(dense, memory_format=torch.contiguous_format)
    _run_numba(_flat(dense), _flat(fresh), grid, mode, key)
    return out.copy_(fresh)


def _is_flat(x: "Tensor", row_major: bool) -> bool:
    """Whether the elements lie one after another in memory: in row-major order, or in any."""
    if x.is_contiguous() or row_major:
        return x.is_contiguous()
    expected = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _flat(x: "Tensor") -> "Tensor":
    return x.as_strided((x.numel(),), (1,))


def _run_numba(source: "Tensor", target: "Tensor", grid: Grid, mode: str | Stochastic, key: Key) -> None:
    import numpy as np

    from presilicon.formats import numba_kernels, threads

    count = source.numel()
    read, write = source.numpy().view(np.uint32), target.numpy().view(np.uint32)
    number = numba_kernels.mode_number(mode)
    core, plain = numba_kernels.core_for(grid, number), numba_kernels.is_plain(grid)
    kernel = numba_kernels.element_kernel(number, core, plain)
    words = numba_kernels.grid_words(grid)
    states = numba_kernels.lfsr_table(isinstance(mode, Stochastic) and mode.source == "lfsr")
    for block in range(-(-count // 2**32)):
        draw = numba_kernels.draw_words(mode, key, block)
        base = block * 2**32

        def work(start: int, stop: int, base: int = base, draw: object = draw) -> None:
            kernel(read[base + start : base + stop], write[base + start : base + stop], start, words, draw, states)

        threads.split(work, min(count - base, 2**32))
