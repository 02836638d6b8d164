"""Cycles of a matrix product on a systolic array, in closed form.

An array of R rows and C columns of multiply-add cells computes C[m, n] = A[m, k] B[k, n] in folds, one after another.
Each fold of the three dataflows, counted cell by cell in `presilicon.simulation.reference`:

    weight-stationary   a tile of B is loaded row by row (R cycles), then m rows of A stream through with their skew:
                        R + (m + R + C - 2); the reduction k lies on the rows
    input-stationary    the same with A and B exchanged: R + (n + R + C - 2)
    output-stationary   k steps of both operands stream in with their skew, k + R + C - 2, then the sums that stayed in
                        the cells are shifted out over R cycles

Ragged folds cost as much as full ones: the data still crosses the whole array.

SCALE-Sim's published counts follow the same forms except that they leave out the drain of output-stationary folds and
subtract one cycle in each product; `convention="scale-sim"` gives those.
"""

from math import ceil
from typing import Literal

from msgspec import Struct

from presilicon.designs import Dataflow
from presilicon.records import Gemm

Convention = Literal["exact", "scale-sim"]


class ArrayCycles(Struct, frozen=True):
    """Cycles of a product, and how it was cut into folds."""

    cycles: int
    folds: int
    fold_rows: int
    """Folds along the rows of the array."""
    fold_cols: int


def gemm_cycles(
    gemm: Gemm, rows: int, cols: int, dataflow: Dataflow, convention: Convention = "exact", passes: int = 1
) -> ArrayCycles:
    """Compute cycles of `gemm` on a rows x cols array, all `count` products one after another.

    `passes` is how often a cell's multiplier works for one product: the array advances once in so many
    cycles while operands stream, and in every cycle while it is loaded or drained.

    >>> gemm_cycles(Gemm(m=4, k=2, n=2), rows=2, cols=2, dataflow="weight-stationary").cycles
    8
    """
    if dataflow == "weight-stationary":
        on_rows, on_cols, streamed, still = gemm.k, gemm.n, gemm.m, rows
    elif dataflow == "input-stationary":
        on_rows, on_cols, streamed, still = gemm.k, gemm.m, gemm.n, rows
    else:
        on_rows, on_cols, streamed, still = gemm.m, gemm.n, gemm.k, rows if convention == "exact" else 0
    fold_rows, fold_cols = ceil(on_rows / rows), ceil(on_cols / cols)
    per_fold = still + passes * (streamed + rows + cols - 2)
    per_product = fold_rows * fold_cols * per_fold - (1 if convention == "scale-sim" else 0)
    return ArrayCycles(gemm.count * per_product, gemm.count * fold_rows * fold_cols, fold_rows, fold_cols)
