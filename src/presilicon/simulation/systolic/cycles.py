"""Cycles of a matrix product on a systolic array, in closed form.

An array of R rows and C columns of multiply-add cells computes C[m, n] = A[m, k] B[k, n] in folds, one after another.
Each fold of the three dataflows, counted cell by cell in `presilicon.simulation.systolic.reference`:

    weight-stationary   a tile of B is loaded through the top edge (R cycles), then m rows of A stream through with
                        their skew: R + (m + R + C - 2)
    input-stationary    the same with A and B exchanged: R + (n + R + C - 2)
    output-stationary   k steps of both operands stream in with their skew, k + R + C - 2, then the sums that stayed in
                        the cells are shifted out over R cycles

The reduction k of the first two lies on the rows of the array, or on its columns when `reduction="columns"`; in output
stationary folds it is m that lies on the rows, or on the columns. So the form of a fold is the same both ways, and the
number of folds is not.

With `fold_overlap` each cell has two stationary registers: the load of the next fold, or the drain of the last one,
hides behind the streaming, which always takes at least as long: R + folds x (streaming).

Ragged folds cost as much as full ones: the data still crosses the whole array.

SCALE-Sim's published counts follow the same forms except that they leave out the drain of output-stationary folds and
subtract one cycle in each product; `convention="scale-sim"` gives those.
"""

from math import ceil

from msgspec import Struct

from presilicon.base import ConfigError
from presilicon.designs import Convention
from presilicon.records import Gemm
from presilicon.simulation.systolic.machine import Reduction, Stationary


class ArrayCycles(Struct, frozen=True):
    """Cycles of a product, and how it was cut into folds; a dimension that streams is not cut."""

    cycles: int
    folds: int
    """Folds of all products together."""
    fold_m: int
    """Folds of one product along each dimension."""
    fold_k: int
    fold_n: int


def gemm_cycles(
    gemm: Gemm,
    rows: int,
    cols: int,
    dataflow: Stationary,
    convention: Convention = "exact",
    passes: int = 1,
    *,
    reduction: Reduction = "rows",
    fold_overlap: bool = False,
    resident: bool = False,
    loads: int = 1,
    depth: int = 1,
) -> ArrayCycles:
    """Compute cycles of `gemm` on a rows x cols array, all `count` products one after another.

    `passes` is how often a cell's multiplier works for one product: the array advances once in so many
    cycles while operands stream, and in every cycle while it is loaded or drained. `resident` says that the first
    fold's stationary tile is in the array already, so that its load is saved. `loads` says how often each fold comes
    to the array, with a part of the stream each time; SCALE-Sim streams each fold as a whole. `depth` is the number of
    pipeline stages of a cell: sums that move need so many cycles for each cell along the reduction, and a sum that
    stays can be added to once in so many cycles.

    Raises:
        ConfigError: SCALE-Sim does not model columns, overlap, passes or resident tiles, or output-stationary folds
            were given a resident tile.

    >>> gemm_cycles(Gemm(m=4, k=2, n=2), rows=2, cols=2, dataflow="weight-stationary").cycles
    8
    >>> gemm_cycles(Gemm(m=1024, k=512, n=64), rows=256, cols=64, dataflow="weight-stationary").folds
    2
    >>> gemm_cycles(Gemm(1024, 512, 64), 256, 64, "weight-stationary", reduction="columns").folds
    8
    """
    _check(dataflow, convention, passes, reduction, fold_overlap, resident, depth)
    on_reduction, across = (rows, cols) if reduction == "rows" else (cols, rows)
    fold_m = fold_k = fold_n = 1
    if dataflow == "weight-stationary":
        fold_k, fold_n, streamed = ceil(gemm.k / on_reduction), ceil(gemm.n / across), gemm.m
    elif dataflow == "input-stationary":
        fold_k, fold_m, streamed = ceil(gemm.k / on_reduction), ceil(gemm.m / across), gemm.n
    else:
        fold_m, fold_n, streamed = ceil(gemm.m / on_reduction), ceil(gemm.n / across), gemm.k
    folds = gemm.count * fold_m * fold_k * fold_n
    still = rows if convention == "exact" or dataflow != "output-stationary" else 0
    loads = loads if convention == "exact" else 1
    if dataflow == "output-stationary":
        passes = max(passes, depth)
    cycles = folds * passes * (streamed + loads * (rows + cols - 2)) + still * (1 if fold_overlap else loads * folds)
    if dataflow != "output-stationary":
        cycles += folds * loads * (depth - 1) * on_reduction
    if resident:
        cycles -= rows
    if convention == "scale-sim":
        cycles -= gemm.count
    return ArrayCycles(cycles, folds, fold_m, fold_k, fold_n)


def transposer_cycles(height: int, width: int, rows: int, cols: int, count: int = 1) -> int:
    """Cycles that a separate transposer needs for `count` height x width matrices.

    It is a square of rows x cols registers: each tile enters row by row through the top and leaves column by column
    through the side, one tile after another.

    >>> transposer_cycles(height=256, width=100, rows=128, cols=128)
    512
    """
    return count * ceil(height / rows) * ceil(width / cols) * (rows + cols)


def transposer_writes(height: int, width: int, rows: int, cols: int, count: int = 1) -> int:
    """Register writes of the transposer for `count` height x width matrices.

    A tile of h x w enters row by row and leaves column by column: the first row moves through h registers, the last one
    through one, and on the way out the columns through w to one. That is h w (h + w + 2) / 2 writes a tile.

    >>> transposer_writes(height=2, width=2, rows=4, cols=4)
    12
    """
    whole = [(height // rows, rows), (1, height % rows)]
    across = [(width // cols, cols), (1, width % cols)]
    return count * sum(m * n * (h * w * (h + w + 2) // 2) for m, h in whole for n, w in across)


def _check(
    dataflow: Stationary,
    convention: Convention,
    passes: int,
    reduction: Reduction,
    fold_overlap: bool,
    resident: bool,
    depth: int,
) -> None:
    if convention == "scale-sim":
        unsupported = {
            'reduction = "columns"': reduction != "rows",
            "fold overlap": fold_overlap,
            "multipliers of several passes": passes != 1,
            "resident tiles": resident,
            "cells with several stages": depth != 1,
        }
        for what, wanted in unsupported.items():
            if wanted:
                raise ConfigError(f'SCALE-Sim does not model {what}: use the convention "exact", or leave that out')
    if resident and dataflow == "output-stationary":
        raise ConfigError("output-stationary folds load no tile, so none can be resident")
