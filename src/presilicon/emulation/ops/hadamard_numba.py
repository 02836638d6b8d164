"""Butterflies of Hadamard transforms, compiled by Numba: one pass over the memory."""

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from presilicon.base import split_over_threads

_STRIP = 64
"""Columns that are worked on together: with 16 rows they stay in the first-level cache."""


@numba.njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _butterflies(numbers: Any, begin: Any, end: Any, signs: Any, inner: Any, factor: Any) -> None:
    """Blocks `begin` to `end` of rows of `inner` numbers, as many as signs, transformed in place along the rows."""
    length = signs.size
    strips = -(-inner // _STRIP)
    for part in range(begin * strips, end * strips):
        block, left = part // strips, (part % strips) * _STRIP
        wide = min(_STRIP, inner - left)
        base = block * length * inner + left
        half = 1
        while half < length:
            for pair in range(length // 2):
                row = (pair // half) * 2 * half + pair % half
                upper = numbers[base + row * inner : base + row * inner + wide]
                lower = numbers[base + (row + half) * inner : base + (row + half) * inner + wide]
                one, other = np.float32(1), np.float32(1)
                if half == 1:
                    one, other = signs[row], signs[row + 1]
                for j in range(wide):
                    first, second = np.float32(upper[j] * one), np.float32(lower[j] * other)
                    upper[j], lower[j] = np.float32(first + second), np.float32(first - second)
            half *= 2
        for row in range(length):
            line = numbers[base + row * inner : base + row * inner + wide]
            for j in range(wide):
                line[j] = np.float32(line[j] * factor)


def mixed_blocks(x: Tensor, signs: Tensor, inner: int, factor: float) -> Tensor:
    """`x` (float32 on the CPU, row-major in the result) in blocks of rows of `inner` numbers, one row per sign."""
    out = x.clone(memory_format=torch.contiguous_format)
    numbers, factors = out.view(-1).numpy(), signs.view(-1).numpy()

    def work(begin: int, end: int) -> None:
        _butterflies(numbers, begin, end, factors, inner, np.float32(factor))

    weight = factors.size * inner
    split_over_threads(work, numbers.size // weight, multiple=1, weight=weight)
    return out
