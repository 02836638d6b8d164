"""Slow reference: a systolic array stepped cell by cell, for values and cycles.

Every cell has the registers of a real one and all cells step together; no closed form is used. Small arrays
only.

An array is loaded through its top edge, one row of cells a cycle. Where sums move, and where the operands that stream
move, depends on the product:

    reduction   forward                     input gradient in place      sums that stay (output-stationary)
    rows        A from the left, sums down  E from the top, sums right   A from the left, B from the top
    columns     A from below, sums right    E from the left, sums up     B from the left, A from below
"""

from collections.abc import Callable, Sequence

from presilicon.records import CellFrame
from presilicon.simulation.systolic.cells import Direction, HeldOperandCells, Matrix, OutputStationaryCells
from presilicon.simulation.systolic.machine import Reduction, Stationary

Watch = Callable[[CellFrame], None]
"""Receives the cells after each cycle."""


def run_array(
    a: Matrix,
    b: Matrix,
    rows: int,
    cols: int,
    dataflow: Stationary,
    reduction: Reduction = "rows",
    *,
    fold_overlap: bool = False,
    passes: int = 1,
    watch: Watch | None = None,
) -> tuple[list[list[float]], int]:
    """The product of `a` and `b` as a rows x cols array computes it, and the cycles that it took."""
    (result,), cycles = run_products(
        [(a, b)], rows, cols, dataflow, reduction, fold_overlap=fold_overlap, passes=passes, watch=watch
    )
    return result, cycles


def run_products(
    products: Sequence[tuple[Matrix, Matrix]],
    rows: int,
    cols: int,
    dataflow: Stationary,
    reduction: Reduction = "rows",
    *,
    fold_overlap: bool = False,
    passes: int = 1,
    watch: Watch | None = None,
) -> tuple[list[list[list[float]]], int]:
    """Independent products, one after another, and the cycles of all; `watch` sees the cells after each cycle."""
    if dataflow == "input-stationary":
        swapped = [(_transpose(b), _transpose(a)) for a, b in products]
        shown = None if watch is None else lambda frame: watch(frame.transposed())
        results, cycles = run_products(
            swapped, rows, cols, "weight-stationary", reduction, fold_overlap=fold_overlap, passes=passes, watch=shown
        )
        return [_transpose(result) for result in results], cycles
    if dataflow == "output-stationary":
        return _run_output_stationary(products, rows, cols, reduction, fold_overlap, passes, watch)
    folds = [fold for a, b in products for fold in _weight_folds(a, b, rows, cols, reduction)]
    sums_to: Direction = "down" if reduction == "rows" else "right"
    values_to: Direction = "right" if reduction == "rows" else "up"
    parts, _, cycles = _run_weight_folds(
        [(fold[0], fold[1]) for fold in folds],
        sums_to,
        values_to,
        fold_overlap,
        passes,
        watch=watch,
        columns=[fold[2] for fold in folds],
    )
    results, at = [], 0
    for a, b in products:
        result = [[0.0] * len(b[0]) for _ in a]
        for _, _, n0 in _weight_folds(a, b, rows, cols, reduction):
            _add(result, parts[at], 0, n0)
            at += 1
        results.append(result)
    return results, cycles


def run_in_place(
    x: Matrix,
    w: Matrix,
    e: Matrix,
    rows: int,
    cols: int,
    reduction: Reduction = "rows",
    *,
    fold_overlap: bool = False,
    tile_stays: bool = True,
) -> tuple[list[list[float]], list[list[float]], int, int]:
    """Forward X W and input gradient E W^T from one layout of W: both results, and the cycles of each.

    The input gradient starts on the tile that the forward product left in the cells and takes the other folds from
    there backwards, loading each in the layout of the forward product; nothing is ever transposed. Where the array was
    used in between (not `tile_stays`), that tile is loaded again too.
    """
    folds = _weight_folds(x, w, rows, cols, reduction)
    forward: tuple[Direction, Direction] = ("down", "right") if reduction == "rows" else ("right", "up")
    parts, resident, cycles = _run_weight_folds([fold[:2] for fold in folds], *forward, fold_overlap, 1)
    y = [[0.0] * len(w[0]) for _ in x]
    for part, fold in zip(parts, folds, strict=True):
        _add(y, part, 0, fold[2])
    backward: tuple[Direction, Direction] = ("right", "down") if reduction == "rows" else ("up", "right")
    on_reduction, across = (rows, cols) if reduction == "rows" else (cols, rows)
    corners = [(k0, n0) for k0 in range(0, len(w), on_reduction) for n0 in range(0, len(w[0]), across)]
    reversed_folds = [
        (tile, [[_at(e, i, n0 + lane) for lane in range(across)] for i in range(len(e))])
        for (tile, _, _), (_, n0) in zip(reversed(folds), reversed(corners), strict=True)
    ]
    parts, _, cycles_back = _run_weight_folds(
        reversed_folds, *backward, fold_overlap, 1, resident if tile_stays else None
    )
    dx = [[0.0] * len(w) for _ in e]
    for part, (k0, _) in zip(parts, reversed(corners), strict=True):
        _add(dx, part, 0, k0)
    return y, dx, cycles, cycles_back


Fold = tuple[list[list[float]], list[list[float]], int]


def _weight_folds(a: Matrix, b: Matrix, rows: int, cols: int, reduction: Reduction) -> list[Fold]:
    """For each fold: the tile in the cells, the vectors that stream, and the first column of the result."""
    folds: list[Fold] = []
    on_reduction, across = (rows, cols) if reduction == "rows" else (cols, rows)
    for k0 in range(0, len(b), on_reduction):
        for n0 in range(0, len(b[0]), across):
            if reduction == "rows":
                tile = [[_at(b, k0 + r, n0 + c) for c in range(cols)] for r in range(rows)]
            else:
                tile = [[_at(b, k0 + c, n0 + r) for c in range(cols)] for r in range(rows)]
            vectors = [[_at(a, i, k0 + lane) for lane in range(on_reduction)] for i in range(len(a))]
            folds.append((tile, vectors, n0))
    return folds


def _run_weight_folds(
    folds: Sequence[tuple[Matrix, Matrix]],
    sums_to: Direction,
    values_to: Direction,
    overlap: bool,
    passes: int,
    resident: Matrix | None = None,
    watch: Watch | None = None,
    columns: Sequence[int] = (),
) -> tuple[list[list[list[float]]], Matrix, int]:
    """Results of the folds, the tile that is left in the cells, and the cycles.

    Tiles enter a second register of the cells row by row and are taken over when the streaming before has ended;
    without overlap the loader waits for that too. A resident tile must be the first fold's, and is not loaded. With
    `watch`, `columns` gives the first column of the result that each fold adds to.
    """
    rows, cols = len(folds[0][0]), len(folds[0][0][0])
    weights: Matrix = [[0.0] * cols for _ in range(rows)]
    loading = [[0.0] * cols for _ in range(rows)]
    to_load = [list(reversed(tile)) for tile, _ in folds]
    ready = False
    if resident is not None:
        loading, ready = [list(line) for line in resident], True
        to_load.pop(0)
    results: list[list[list[float]]] = []
    stream: HeldOperandCells | None = None
    cycle = 0
    while len(results) < len(folds):
        if stream is None and ready:
            weights, ready = loading, False
            stream = HeldOperandCells(weights, folds[len(results)][1], sums_to, values_to, cycle, passes)
        if to_load and not ready and (overlap or stream is None):
            loading = [list(to_load[0].pop(0)), *loading[:-1]]
            if not to_load[0]:
                to_load.pop(0)
                ready = True
        done = stream is not None and stream.step(cycle)
        if watch is not None:
            watch(_show_stream(cycle, weights, loading, stream, columns[len(results)]))
        if stream is not None and done:
            results.append(stream.out)
            stream = None
        cycle += 1
    return results, weights, cycle


def _show_stream(
    cycle: int, weights: Matrix, loading: Matrix, stream: HeldOperandCells | None, column: int
) -> CellFrame:
    still = [[0.0] * len(line) for line in weights]
    return CellFrame(
        cycle=cycle,
        registers={
            "stationary": _copied(weights),
            "loading": _copied(loading),
            "moving": _copied(stream.values if stream else still),
            "sum": _copied(stream.sums if stream else still),
        },
        out=tuple((vector, column + lane, value) for vector, lane, value in stream.left) if stream else (),
    )


def _run_output_stationary(
    products: Sequence[tuple[Matrix, Matrix]],
    rows: int,
    cols: int,
    reduction: Reduction,
    overlap: bool,
    passes: int,
    watch: Watch | None = None,
) -> tuple[list[list[list[float]]], int]:
    """Folds whose sums stay in the cells, are moved to a second register when complete, and leave row by row."""
    results = [[[0.0] * len(b[0]) for _ in a] for a, b in products]
    waiting = [
        fold for number in range(len(products)) for fold in _sum_folds(number, products[number], rows, cols, reduction)
    ]
    draining: list[list[float]] = []
    leaving: tuple[int, int, int] = (0, 0, 0)
    multiply: OutputStationaryCells | None = None
    cycle = 0
    while waiting or multiply or draining:
        if multiply is None and waiting and (overlap or not draining):
            left, top, origin = waiting.pop(0)
            multiply = OutputStationaryCells(left, top, origin, rows, cols, cycle, passes)
        out: list[tuple[int, int, float]] = []
        if draining:
            number, m0, n0 = leaving
            line = draining.pop()
            if reduction == "rows":
                out = [(m0 + len(draining), n0 + lane, value) for lane, value in enumerate(line)]
            else:
                out = [(m0 + lane, n0 + len(draining), value) for lane, value in enumerate(line)]
            for i, j, value in out:
                _add(results[number], [[value]], i, j)
        done = multiply is not None and multiply.step(cycle)
        if watch is not None:
            watch(_show_multiply(cycle, rows, cols, multiply, draining, out))
        if multiply is not None and done and not draining:
            draining, leaving = multiply.sums, multiply.origin
            multiply = None
        cycle += 1
    return results, cycle


def _show_multiply(
    cycle: int,
    rows: int,
    cols: int,
    multiply: OutputStationaryCells | None,
    draining: Matrix,
    out: list[tuple[int, int, float]],
) -> CellFrame:
    still = [[0.0] * cols for _ in range(rows)]
    # Draining lines move towards the edge they leave through, so the remaining ones lie next to it.
    leaving = [*still[len(draining) :], *draining]
    return CellFrame(
        cycle=cycle,
        registers={
            "right": _copied(multiply.going_right if multiply else still),
            "down": _copied(multiply.going_down if multiply else still),
            "sum": _copied(multiply.sums if multiply else still),
            "leaving": _copied(leaving),
        },
        out=tuple(out),
    )


def _copied(matrix: Matrix) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(line) for line in matrix)


SumFold = tuple[list[list[float]], list[list[float]], tuple[int, int, int]]


def _sum_folds(
    number: int, product: tuple[Matrix, Matrix], rows: int, cols: int, reduction: Reduction
) -> list[SumFold]:
    """For each fold: the values that enter each row and each column over time, and the origin of its results."""
    a, b = product
    m_lanes, n_lanes = (rows, cols) if reduction == "rows" else (cols, rows)
    folds: list[SumFold] = []
    for m0 in range(0, len(a), m_lanes):
        for n0 in range(0, len(b[0]), n_lanes):
            of_a = [[_at(a, m0 + lane, i) for i in range(len(b))] for lane in range(m_lanes)]
            of_b = [[_at(b, i, n0 + lane) for i in range(len(b))] for lane in range(n_lanes)]
            left, other = (of_a, of_b) if reduction == "rows" else (of_b, of_a)
            folds.append((left, other, (number, m0, n0)))
    return folds


def _add(result: list[list[float]], part: Matrix, i0: int, j0: int) -> None:
    for i, line in enumerate(part, start=i0):
        for j, value in enumerate(line, start=j0):
            if i < len(result) and j < len(result[0]):
                result[i][j] += value


def _at(matrix: Matrix, i: int, j: int) -> float:
    return matrix[i][j] if i < len(matrix) and j < len(matrix[0]) else 0.0


def _transpose(matrix: Matrix) -> list[list[float]]:
    return [list(line) for line in zip(*matrix, strict=True)]
