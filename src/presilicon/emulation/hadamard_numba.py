"""Butterflies of Hadamard transforms, compiled by Numba: one pass over the memory."""

from typing import Any

import numba
import numpy as np
from torch import Tensor

from presilicon.formats import split_over_threads

_STRIP = 64
"""Columns that are worked on together: with 16 rows they stay in the first-level cache."""


@numba.njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _butterflies(numbers: Any, begin: Any, end: Any, length: Any, inner: Any, factor: Any) -> None:
    """Blocks `begin` to `end` of `length` x `inner` numbers, transformed along their first axis in place."""
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
                for j in range(wide):
                    first, second = upper[j], lower[j]
                    upper[j], lower[j] = np.float32(first + second), np.float32(first - second)
            half *= 2
        for row in range(length):
            line = numbers[base + row * inner : base + row * inner + wide]
            for j in range(wide):
                line[j] = np.float32(line[j] * factor)


def mix_blocks_(x: Tensor, length: int, inner: int, factor: float) -> None:
    """Blocks of `length` rows of `inner` numbers in a row-major float32 tensor, transformed in place."""
    numbers = x.view(-1).numpy()

    def work(begin: int, end: int) -> None:
        _butterflies(numbers, begin, end, length, inner, np.float32(factor))

    split_over_threads(work, numbers.size // (length * inner), multiple=1, weight=length * inner)
