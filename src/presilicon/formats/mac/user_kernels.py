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

    A multiply-add is rows[index[a, b] + c]. In a tree each product, index[a, b] >> bits, is a slot of its own. Four
    steps at a time are half again as fast where there is one running sum.
    """
    depth, columns = a.shape[1], out.shape[1]
    part = np.empty((slots, columns), np.uint8)
    for m in range(start, stop):
        base = m // group * depth
        for begin in range(0, depth, size):
            end = min(begin + size, depth)
            used = min(slots, end - begin)
            part[:used] = zero
            whole = begin if is_tree or slots > 1 else begin + (end - begin) // 4 * 4
            for k in range(begin, whole, 4):
                line0, line1, line2, line3 = index[a[m, k]], index[a[m, k + 1]], index[a[m, k + 2]], index[a[m, k + 3]]
                at = base + k
                row0, row1, row2, row3, lane = b[at], b[at + 1], b[at + 2], b[at + 3], part[0]
                for n in range(columns):
                    code = rows[line0[row0[n]] + lane[n]]
                    code = rows[line1[row1[n]] + code]
                    code = rows[line2[row2[n]] + code]
                    lane[n] = rows[line3[row3[n]] + code]
            for k in range(whole, end):
                line, row, lane = index[a[m, k]], b[base + k], part[(k - begin) % slots]
                if is_tree:
                    for n in range(columns):
                        lane[n] = line[row[n]] >> bits
                else:
                    for n in range(columns):
                        lane[n] = rows[line[row[n]] + lane[n]]
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
