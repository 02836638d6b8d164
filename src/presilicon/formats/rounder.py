"""`rounder`: quantisation prepared once per format, for rounding many small tensors."""

from collections.abc import Callable
from functools import lru_cache

from presilicon.base import np, torch
from presilicon.formats.format import Format
from presilicon.formats.kernels.grid import grid_of
from presilicon.formats.kernels.passes import has_numba
from presilicon.formats.quantization import quantize
from presilicon.formats.rounding import Key, Rounding, Stochastic, check_rounding

SMALL = 1 << 15
"""Elements up to which one thread does the work, however many torch has."""


@lru_cache(maxsize=256)
def rounder(
    fmt: Format, rounding: Rounding | Stochastic | None = None, *, over: bool = False
) -> "Callable[[torch.Tensor], torch.Tensor]":
    """A function with the result of `quantize(x, fmt, rounding=rounding)`, faster for small tensors.

    With `over` it may write the result to its argument, for tensors that are not used afterwards.

    float32 tensors on the CPU that are small, or rounded with one thread, go straight to the compiled pass if the
    format has a grid and no random numbers are drawn; all else is left to `quantize`. The result is row-major, or the
    transpose of a row-major one.

    >>> import torch
    >>> from presilicon.formats import parse
    >>> rounder(parse("e5m2"))(torch.tensor([1.1, 1.2]))
    tensor([1.0000, 1.2500])
    """
    mode = check_rounding(rounding)
    on_grid = fmt.grid() is not None and not fmt.wraps
    if not on_grid or isinstance(mode, Stochastic) or not has_numba():
        return lambda x: quantize(x, fmt, rounding=rounding)
    from presilicon.formats.kernels import numba_kernels
    from presilicon.formats.kernels.grid import core_for, is_plain, mode_number

    grid, number = grid_of(fmt), mode_number(mode)
    kernel, in_place = (
        numba_kernels.element_kernel(number, core_for(grid, number), is_plain(grid), same) for same in (False, True)
    )
    words, draw = numba_kernels.grid_words(grid), numba_kernels.draw_words(mode, Key(), 0)
    states = numba_kernels.lfsr_table(False)
    bits, float32 = np.uint32, torch.float32

    def round_small(x: "torch.Tensor") -> "torch.Tensor":
        count = x.numel()
        few = count <= SMALL or (torch.get_num_threads() == 1 and count < 1 << 32)
        if not few or x.dtype is not float32 or x.device.type != "cpu":
            return quantize(x, fmt, rounding=rounding)
        x = x.detach() if x.requires_grad else x
        if x.is_contiguous():
            if over:
                words_of_x = x.numpy().reshape(-1).view(bits)
                in_place(words_of_x, words_of_x, 0, words, draw, states)
                return x
            out = torch.empty_like(x)
            kernel(x.numpy().reshape(-1).view(bits), out.numpy().reshape(-1).view(bits), 0, words, draw, states)
            return out
        if x.dim() > 1 and x.stride(-2) == 1 != x.stride(-1):  # a transposed matrix stays one: products take either
            return round_small(x.mT).mT
        out = x.contiguous()
        words_of_out = out.numpy().reshape(-1).view(bits)
        in_place(words_of_out, words_of_out, 0, words, draw, states)
        return out

    return round_small
