"""`rounder`: a format's quantisation worked out once, for those who round many small tensors."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from presilicon.formats.fixed import Fixed
from presilicon.formats.float import Float
from presilicon.formats.format import Format
from presilicon.formats.grid import grid_of
from presilicon.formats.quantization import numba_is_here, quantize
from presilicon.formats.rounding import Key, Rounding, Stochastic, check_rounding

if TYPE_CHECKING:
    from torch import Tensor

SMALL = 1 << 15
"""Elements up to which one thread does the work, whatever torch has."""


@lru_cache(maxsize=256)
def rounder(
    fmt: Format, rounding: Rounding | Stochastic | None = None, *, over: bool = False
) -> "Callable[[Tensor], Tensor]":
    """A function that gives what `quantize(x, fmt, rounding=rounding)` gives, sooner for a small tensor.

    One that rounds `over` its argument may write the result there: for tensors that nobody else will read.

    Where `quantize` has nothing to decide (float32 on the CPU, small or with one thread, a format of a uniform grid, no
    random numbers), it goes straight to the compiled pass; all else is left to `quantize`. The
    result is row-major, or the transpose of a row-major one.

    >>> import torch
    >>> from presilicon.formats import parse
    >>> rounder(parse("e5m2"))(torch.tensor([1.1, 1.2]))
    tensor([1.0000, 1.2500])
    """
    mode = check_rounding(rounding)
    on_grid = isinstance(fmt, Float) or (isinstance(fmt, Fixed) and fmt.overflow != "wrap")
    if not on_grid or isinstance(mode, Stochastic) or not numba_is_here():
        return lambda x: quantize(x, fmt, rounding=rounding)
    import numpy as np
    import torch

    from presilicon.formats import numba_kernels
    from presilicon.formats.cores import core_for, is_plain, mode_number

    grid, number = grid_of(fmt), mode_number(mode)
    kernel, in_place = (
        numba_kernels.element_kernel(number, core_for(grid, number), is_plain(grid), same) for same in (False, True)
    )
    words, draw = numba_kernels.grid_words(grid), numba_kernels.draw_words(mode, Key(), 0)
    states = numba_kernels.lfsr_table(False)
    bits, float32 = np.uint32, torch.float32

    def round_small(x: "Tensor") -> "Tensor":
        count = x.numel()
        few = count <= SMALL or (torch.get_num_threads() == 1 and count < 1 << 32)
        if not few or x.dtype is not float32 or x.device.type != "cpu":
            return quantize(x, fmt, rounding=rounding)
        x = x.detach() if x.requires_grad else x
        if x.is_contiguous():
            if over:
                place = x.numpy().reshape(-1).view(bits)
                in_place(place, place, 0, words, draw, states)
                return x
            out = torch.empty_like(x)
            kernel(x.numpy().reshape(-1).view(bits), out.numpy().reshape(-1).view(bits), 0, words, draw, states)
            return out
        if x.dim() > 1 and x.stride(-2) == 1:  # a transposed matrix stays one: products take either
            return round_small(x.mT).mT
        out = x.contiguous()
        place = out.numpy().reshape(-1).view(bits)
        in_place(place, place, 0, words, draw, states)
        return out

    return round_small
