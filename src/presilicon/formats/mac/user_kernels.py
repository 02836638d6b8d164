"""Products of codes by tables, compiled by Numba."""

from typing import Any

import numpy as np

from presilicon.formats.kernels.numba_kernels import compiled


@compiled
def table_kernel(
    a: Any, b: Any, out: Any, start: int, stop: int, group: int, size: int, slots: int, is_tree: bool, zero: int,
    index: Any, rows: Any, bits: Any, joins: Any,
) -> None:  # fmt: skip
    """Rows `start` to `stop` of the outputs; `group` rows share a matrix of `b`, whose matrices lie one below another.

    A multiply-add is rows[index[a, b] << bits | c]. In a tree each product is a slot of its own.
    """
    depth, columns = a.shape[1], out.shape[1]
    part = np.empty((slots, columns), np.uint8)
    for m in range(start, stop):
        base = m // group * depth
        for begin in range(0, depth, size):
            end = min(begin + size, depth)
            used = min(slots, end - begin)
            part[:used] = zero
            for k in range(begin, end):
                line, row, lane = index[a[m, k]], b[base + k], part[(k - begin) % slots]
                if is_tree:
                    for n in range(columns):
                        lane[n] = line[row[n]]
                else:
                    for n in range(columns):
                        lane[n] = rows[(line[row[n]] << bits) | lane[n]]
            while used > 1:
                half = used // 2
                for j in range(half):
                    for n in range(columns):
                        part[j, n] = joins[part[2 * j, n], part[2 * j + 1, n]]
                if used % 2:
                    part[half] = part[used - 1]
                used = half + used % 2
            for n in range(columns):
                out[m, n] = part[0, n] if begin == 0 else joins[out[m, n], part[0, n]]
