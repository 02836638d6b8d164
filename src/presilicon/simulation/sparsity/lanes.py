"""Dot products whose lanes skip pairs with a zero: TensorDash (Mahmoud et al., MICRO 2020, arXiv 2009.00748).

A row of operand pairs enters the lanes in each cycle. A lane whose own pair has a zero takes another one: from the rows
behind, in its own lane or in a neighbour's, through a multiplexer of eight inputs. Lanes choose one after another, each
the first pair in its order that is still there. Rows that have been used up leave, so that up to as many as are held
leave in one cycle.
"""

from typing import Any

import numpy as np
from numba import njit

from presilicon.base import ConfigError

LANES = 16
DEPTH = 3
"""Rows that are held: the one in the lanes, and two to look ahead."""
OPTIONS = ((0, 0), (1, 0), (2, 0), (1, 1), (1, -1), (2, 2), (2, -2), (1, 3))
"""The pairs that a lane may take, first to last: rows ahead, and lanes aside (around the end)."""


def lane_cycles(pairs: Any, options: tuple[tuple[int, int], ...] = OPTIONS, depth: int = DEPTH) -> int:
    """Cycles for rows of operand pairs, True where neither operand is zero: (rows, lanes), or (lines, rows, lanes).

    Lines share one operand, and so advance together, by the least of what each could.

    >>> lane_cycles(np.ones((30, 16), bool)), lane_cycles(np.zeros((30, 16), bool))
    (30, 10)

    Raises:
        ConfigError: an option is outside of the rows that are held, or the first is not the lane's own pair.
    """
    if not options or options[0] != (0, 0) or any(not 0 <= ahead < depth for ahead, _ in options):
        raise ConfigError(f"options must begin with (0, 0) and look less than {depth} rows ahead, not {options}")
    lines = np.ascontiguousarray(pairs, dtype=np.bool_)
    lines = lines[None] if lines.ndim == 2 else lines
    return int(_cycles(lines, np.array(options, dtype=np.int64), depth))


def lane_speedup(pairs: Any, options: tuple[tuple[int, int], ...] = OPTIONS, depth: int = DEPTH) -> float:
    """Rows over the cycles that they take; 1 where there is nothing to do."""
    rows = np.asarray(pairs).shape[-2]
    return rows / lane_cycles(pairs, options, depth) if rows else 1.0


@njit(cache=True)
def _cycles(lines, options, depth):  # type: ignore[no-untyped-def]
    count, rows, lanes = lines.shape
    waiting = lines.copy()
    first = cycles = 0
    while first < rows:
        advance = depth
        for line in range(count):
            held = waiting[line]
            for lane in range(lanes):
                for option in range(len(options)):
                    row = first + options[option, 0]
                    if row >= rows:
                        continue
                    aside = (lane + options[option, 1]) % lanes
                    if held[row, aside]:
                        held[row, aside] = False
                        break
            used = 1
            while used < advance and first + used < rows and not held[first + used].any():
                used += 1
            advance = min(advance, used)
        first += advance
        cycles += 1
    return cycles
