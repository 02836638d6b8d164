"""Slow reference of the transposer: a square of registers stepped cycle by cycle, for values and cycles."""

from collections.abc import Sequence


def run_transposer(matrix: Sequence[Sequence[float]], rows: int, cols: int) -> tuple[list[list[float]], int]:
    """The transposed matrix as a rows x cols square of registers makes it, tile by tile, and its cycles."""
    result = [[0.0] * len(matrix) for _ in matrix[0]]
    cycles = 0
    for i0 in range(0, len(matrix), rows):
        for j0 in range(0, len(matrix[0]), cols):
            cells = [[0.0] * cols for _ in range(rows)]
            for r in reversed(range(rows)):
                cells = [
                    [
                        matrix[i0 + r][j0 + c] if i0 + r < len(matrix) and j0 + c < len(matrix[0]) else 0.0
                        for c in range(cols)
                    ],
                    *cells[:-1],
                ]
                cycles += 1
            for c in reversed(range(cols)):
                leaving = [line[-1] for line in cells]
                cells = [[0.0, *line[:-1]] for line in cells]
                for r, value in enumerate(leaving):
                    if i0 + r < len(matrix) and j0 + c < len(matrix[0]):
                        result[j0 + c][i0 + r] = value
                cycles += 1
    return result, cycles
