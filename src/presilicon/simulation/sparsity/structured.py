"""Sparse weights: of each M neighbours along the reduction at most N, or any, packed along columns of cells."""

from typing import Any

import numpy as np

from presilicon.simulation.sparsity.description import parse_pattern


def structured_share(nonzero: Any, pattern: str) -> float | None:
    """Cycles of a product with weights in slots of a pattern over those with all of them; None if they do not fit.

    `nonzero` is (reduction, outputs), True for weights that are not zero. A group with fewer than N weights takes as
    long as a full one, and a last group with fewer than M neighbours has N slots, or as many as neighbours.

    >>> mask = np.array([[True], [False], [True], [False], [True]])
    >>> structured_share(mask, "2:4"), structured_share(mask, "1:4")
    (0.6, None)
    """
    slots, group = parse_pattern(pattern)
    mask = np.asarray(nonzero, dtype=np.bool_)
    length = len(mask)
    if not mask.size:
        return 1.0
    counts = np.add.reduceat(mask.astype(np.int64), np.arange(0, length, group), axis=0)
    if int(counts.max()) > slots:
        return None
    whole, rest = divmod(length, group)
    return (whole * slots + min(rest, slots)) / length


def keep_largest(weights: Any, pattern: str) -> Any:
    """The mask, (reduction, outputs), that keeps the N largest weights of each group of M; ties go to the first."""
    slots, group = parse_pattern(pattern)
    sizes = np.abs(np.asarray(weights))
    mask = np.zeros(sizes.shape, np.bool_)
    for first in range(0, len(sizes), group):
        order = np.argsort(-sizes[first : first + group], axis=0, kind="stable")[:slots]
        np.put_along_axis(mask[first : first + group], order, True, axis=0)
    return mask


def packed_share(nonzero: Any, columns: int, *, balanced: bool) -> float:
    """Cycles of a product with zero weights left out over those with all of them.

    `nonzero` is (reduction, outputs), True for weights that are not zero. A tile is as many outputs as there are
    columns of cells, each of which takes the weights of one output, packed along the reduction; a tile takes as long
    as its fullest column. `balanced` columns take half of the weights of two outputs instead, so that they finish
    nearly together: the fullest half with the emptiest, and so on (Procrustes: Yang et al., MICRO 2020).

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
