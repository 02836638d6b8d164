"""Frames of a small product on a small array, from the cell-by-cell reference."""

from random import Random

from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.records import ArrayFrames, CellFrame, Gemm
from presilicon.simulation.systolic.cycles import gemm_cycles
from presilicon.simulation.systolic.machine import Reduction, Stationary
from presilicon.simulation.systolic.reference import run_array

MOST_CELL_CYCLES = 100_000
"""Cells times cycles; a file of that many has some tens of megabytes."""


def play_product(
    gemm: Gemm,
    rows: int,
    cols: int,
    dataflow: Stationary,
    *,
    reduction: Reduction = "rows",
    fold_overlap: bool = False,
    seed: int = 0,
) -> ArrayFrames:
    """Every register of every cell in every cycle of C[m, n] = A[m, k] B[k, n], on operands of one digit.

    Values that leave idle lanes of a ragged fold are not results and are left out.

    Raises:
        ConfigError: the array has too many cells and cycles to play.

    >>> play = play_product(Gemm(2, 2, 2), 2, 2, "weight-stationary")
    >>> play.cycles, len(play.frames)
    (6, 6)
    """
    cycles = gemm_cycles(gemm, rows, cols, dataflow, reduction=reduction, fold_overlap=fold_overlap).cycles
    if gemm.count * rows * cols * cycles > MOST_CELL_CYCLES:
        raise ConfigError(
            f"{rows} x {cols} cells over {cycles:,} cycles are too many to play; cells times cycles must be "
            f"at most {MOST_CELL_CYCLES:,}: use a smaller --gemm and a smaller --array, as in --gemm 4x4x4 --array 4x4"
        )
    numbers = Random(seed)
    a = [[float(numbers.randint(0, 9)) for _ in range(gemm.k)] for _ in range(gemm.m)]
    b = [[float(numbers.randint(0, 9)) for _ in range(gemm.n)] for _ in range(gemm.k)]
    frames: list[CellFrame] = []
    result, taken = run_array(a, b, rows, cols, dataflow, reduction, fold_overlap=fold_overlap, watch=frames.append)
    return ArrayFrames(
        rows=rows,
        cols=cols,
        dataflow=dataflow,
        reduction=reduction,
        fold_overlap=fold_overlap,
        a=tuple(map(tuple, a)),
        b=tuple(map(tuple, b)),
        result=tuple(map(tuple, result)),
        cycles=taken,
        frames=tuple(_results_only(frame, gemm) for frame in frames),
    )


def _results_only(frame: CellFrame, gemm: Gemm) -> CellFrame:
    return replace(frame, out=tuple(out for out in frame.out if out[0] < gemm.m and out[1] < gemm.n))
