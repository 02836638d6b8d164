"""Codes of short numbers from a table, compiled by Numba."""

from typing import Any

import numpy as np

from presilicon.formats.kernels.numba_kernels import compiled


@compiled
def look_up_short(words: Any, table: Any, out: Any, start: int, stop: int) -> bool:
    """The codes of float32 numbers with 16 zeros at their end; false if one has others, or is not in the table (-1)."""
    rest, least = np.uint32(0), 0
    for i in range(start, stop):
        rest |= words[i] & np.uint32(0xFFFF)
        code = table[words[i] >> np.uint32(16)]
        least |= code
        out[i] = code
    return bool(rest == 0) and least >= 0
