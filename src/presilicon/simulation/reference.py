"""The slow judge: a systolic array stepped cell by cell, values and cycles both.

Every cell holds the registers of a real one and all cells step together; nothing here knows a closed form. Small arrays
only.
"""

from collections.abc import Sequence

from presilicon.designs import Dataflow

Matrix = Sequence[Sequence[float]]


def run_array(a: Matrix, b: Matrix, rows: int, cols: int, dataflow: Dataflow) -> tuple[list[list[float]], int]:
    """The product of `a` and `b` as a rows x cols array computes it, and the cycles that it took, folds one by one."""
    if dataflow == "input-stationary":
        transposed, cycles = run_array(_transpose(b), _transpose(a), rows, cols, "weight-stationary")
        return _transpose(transposed), cycles
    m, k, n = len(a), len(b), len(b[0])
    result = [[0.0] * n for _ in range(m)]
    cycles = 0
    stationary = dataflow == "weight-stationary"
    for row0 in range(0, k if stationary else m, rows):
        for col0 in range(0, n, cols):
            if stationary:
                tile = [[_at(b, row0 + r, col0 + c) for c in range(cols)] for r in range(rows)]
                stream = [[_at(a, i, row0 + r) for r in range(rows)] for i in range(m)]
                part, spent = _weight_stationary_fold(tile, stream)
                placed = ((i, col0 + c, part[i][c]) for i in range(m) for c in range(cols))
            else:
                left = [[_at(a, row0 + r, i) for i in range(k)] for r in range(rows)]
                top = [[_at(b, i, col0 + c) for i in range(k)] for c in range(cols)]
                part, spent = _output_stationary_fold(left, top)
                placed = ((row0 + r, col0 + c, part[r][c]) for r in range(rows) for c in range(cols))
            cycles += spent
            for i, j, value in placed:
                if i < m and j < n:
                    result[i][j] += value
    return result, cycles


def _weight_stationary_fold(tile: Matrix, stream: Matrix) -> tuple[list[list[float]], int]:
    """Load `tile` from the top, one row a cycle; then stream rows in from the left, sums moving down."""
    rows, cols, length = len(tile), len(tile[0]), len(stream)
    weights = [[0.0] * cols for _ in range(rows)]
    cycles = 0
    for incoming in reversed(tile):
        weights = [list(incoming), *weights[:-1]]
        cycles += 1
    values = [[0.0] * cols for _ in range(rows)]
    sums = [[0.0] * cols for _ in range(rows)]
    out: list[list[float]] = [[0.0] * cols for _ in range(length)]
    left = length * cols
    cycle = 0
    while left:
        # Row r is fed r cycles late, so that a sum meets its next operand as it moves down.
        fed = [stream[cycle - r][r] if 0 <= cycle - r < length else 0.0 for r in range(rows)]
        values = [[fed[r], *values[r][:-1]] for r in range(rows)]
        above = [[0.0] * cols, *sums[:-1]]
        sums = [[above[r][c] + values[r][c] * weights[r][c] for c in range(cols)] for r in range(rows)]
        for c in range(cols):
            arrived = cycle - (rows - 1) - c
            if 0 <= arrived < length:
                out[arrived][c] = sums[-1][c]
                left -= 1
        cycle += 1
    return out, cycles + cycle


def _output_stationary_fold(left: Matrix, top: Matrix) -> tuple[list[list[float]], int]:
    """Stream both operands in with their skew until every cell has all its products; then shift the sums out."""
    rows, cols, length = len(left), len(top), len(left[0])
    going_right = [[0.0] * cols for _ in range(rows)]
    going_down = [[0.0] * cols for _ in range(rows)]
    sums = [[0.0] * cols for _ in range(rows)]
    done = [[0] * cols for _ in range(rows)]
    cycle = 0
    while any(count < length for line in done for count in line):
        from_left = [left[r][cycle - r] if 0 <= cycle - r < length else 0.0 for r in range(rows)]
        from_top = [top[c][cycle - c] if 0 <= cycle - c < length else 0.0 for c in range(cols)]
        going_right = [[from_left[r], *going_right[r][:-1]] for r in range(rows)]
        going_down = [from_top, *going_down[:-1]]
        for r in range(rows):
            for c in range(cols):
                sums[r][c] += going_right[r][c] * going_down[r][c]
                done[r][c] += 0 <= cycle - r - c < length
        cycle += 1
    out: list[list[float]] = []
    while len(out) < rows:
        out.insert(0, sums[-1])
        sums = [[0.0] * cols, *sums[:-1]]
        cycle += 1
    return out, cycle


def _at(matrix: Matrix, i: int, j: int) -> float:
    return matrix[i][j] if i < len(matrix) and j < len(matrix[0]) else 0.0


def _transpose(matrix: Matrix) -> list[list[float]]:
    return [list(line) for line in zip(*matrix, strict=True)]
