"""Sparse weights on columns of cells: the densest column of a tile decides, unless halves of columns are balanced.

Procrustes (Yang et al., MICRO 2020) pairs the denser halves of a tile with the sparser ones, so that columns finish
nearly together.
"""

from typing import Any

import numpy as np


def packed_share(nonzero: Any, columns: int, *, balanced: bool) -> float:
    """Cycles of a product with zero weights left out over those with all of them.

    `nonzero` is (reduction, outputs), True for weights that are not zero. A tile is as many outputs as there are
    columns of cells, each of which takes the weights of one output, packed along the reduction; a tile takes as long
    as its fullest column. `balanced` columns take half of the weights of two outputs instead: the fullest half with
    the emptiest, and so on.

    >>> mask = np.zeros((8, 2), bool)
    >>> mask[:, 0] = True  # one output needs all of its inputs, the other none
    >>> packed_share(mask, 2, balanced=False), packed_share(mask, 2, balanced=True)
    (1.0, 0.5)
    """
    mask = np.asarray(nonzero, dtype=np.bool_)
    length, outputs = mask.shape
    if not length or not outputs:
        return 1.0
    halves = np.stack([mask[: length // 2].sum(0), mask[length // 2 :].sum(0)])
    cycles = tiles = 0
    for first in range(0, outputs, columns):
        own = halves[:, first : first + columns]
        if balanced:
            counts = np.sort(own.ravel())
            cycles += int((counts + counts[::-1]).max())
        else:
            cycles += int(own.sum(0).max())
        tiles += 1
    return float(cycles / (tiles * length))
