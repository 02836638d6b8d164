"""Cells of the slow reference while operands stream through them: registers that step together, cycle by cycle."""

from collections.abc import Sequence
from typing import Literal

Matrix = Sequence[Sequence[float]]
Direction = Literal["down", "up", "right", "left"]

_STEPS: dict[Direction, tuple[int, int]] = {"down": (1, 0), "up": (-1, 0), "right": (0, 1), "left": (0, -1)}


class HeldOperandCells:
    """The cells while vectors stream through them: values move one way, sums across."""

    def __init__(
        self, weights: Matrix, vectors: Matrix, sums_to: Direction, values_to: Direction, start: int, passes: int
    ) -> None:
        self.rows, self.cols = len(weights), len(weights[0])
        self.weights, self.vectors = weights, vectors
        self.sums_to, self.values_to = sums_to, values_to
        self.start, self.passes, self.tick = start, passes, 0
        self.values = [[0.0] * self.cols for _ in range(self.rows)]
        self.sums = [[0.0] * self.cols for _ in range(self.rows)]
        lanes_out = self.cols if sums_to in ("down", "up") else self.rows
        self.out = [[0.0] * lanes_out for _ in vectors]
        self.missing = len(vectors) * lanes_out
        self.left: list[tuple[int, int, float]] = []
        """Vector, lane and value of each result that came out in the last cycle."""

    def step(self, cycle: int) -> bool:
        """One cycle; the cells advance in the last of `passes`. True when every result has come out."""
        self.left = []
        if (cycle - self.start) % self.passes != self.passes - 1:
            return False
        values = [[self._value(r, c) for c in range(self.cols)] for r in range(self.rows)]
        sums = [
            [
                self._neighbour(self.sums, self.sums_to, r, c) + values[r][c] * self.weights[r][c]
                for c in range(self.cols)
            ]
            for r in range(self.rows)
        ]
        self.values, self.sums = values, sums
        for r in range(self.rows):
            for c in range(self.cols):
                if not self._is_inside(r, c, self.sums_to, ahead=True):
                    # A vector reaches the far edge after the whole reduction and after crossing the lanes before.
                    way = self._depth(r, c, self.sums_to) + self._depth(r, c, self.values_to)
                    lane = c if self.sums_to in ("down", "up") else r
                    if 0 <= self.tick - way < len(self.vectors):
                        self.out[self.tick - way][lane] = sums[r][c]
                        self.left.append((self.tick - way, lane, sums[r][c]))
                        self.missing -= 1
        self.tick += 1
        return self.missing == 0

    def _value(self, r: int, c: int) -> float:
        if self._is_inside(r, c, self.values_to, ahead=False):
            return self._neighbour(self.values, self.values_to, r, c)
        # A lane is fed as many cycles late as a sum needs to reach it.
        lane = r if self.values_to in ("right", "left") else c
        number = self.tick - self._depth(r, c, self.sums_to)
        return self.vectors[number][lane] if 0 <= number < len(self.vectors) else 0.0

    def _neighbour(self, registers: Matrix, to: Direction, r: int, c: int) -> float:
        down, right = _STEPS[to]
        return registers[r - down][c - right] if self._is_inside(r, c, to, ahead=False) else 0.0

    def _is_inside(self, r: int, c: int, to: Direction, *, ahead: bool) -> bool:
        sign = 1 if ahead else -1
        down, right = _STEPS[to]
        return 0 <= r + sign * down < self.rows and 0 <= c + sign * right < self.cols

    def _depth(self, r: int, c: int, to: Direction) -> int:
        return {"down": r, "up": self.rows - 1 - r, "right": c, "left": self.cols - 1 - c}[to]


class OutputStationaryCells:
    """The cells while both operands stream through them: one from the left, one down (or up, which is its mirror)."""

    def __init__(
        self, left: Matrix, other: Matrix, origin: tuple[int, int, int], rows: int, cols: int, start: int, passes: int
    ) -> None:
        self.left, self.other, self.origin = left, other, origin
        self.rows, self.cols, self.length = rows, cols, len(left[0])
        self.start, self.passes, self.tick = start, passes, 0
        self.going_right = [[0.0] * cols for _ in range(rows)]
        self.going_down = [[0.0] * cols for _ in range(rows)]
        self.sums = [[0.0] * cols for _ in range(rows)]
        self.done = [[0] * cols for _ in range(rows)]

    def step(self, cycle: int) -> bool:
        """One cycle; true once every cell has all its products."""
        if (cycle - self.start) % self.passes == self.passes - 1 and not self._is_complete():
            from_left = [self._fed(self.left[r], r) for r in range(self.rows)]
            from_top = [self._fed(self.other[c], c) for c in range(self.cols)]
            self.going_right = [[from_left[r], *self.going_right[r][:-1]] for r in range(self.rows)]
            self.going_down = [from_top, *self.going_down[:-1]]
            for r in range(self.rows):
                for c in range(self.cols):
                    self.sums[r][c] += self.going_right[r][c] * self.going_down[r][c]
                    self.done[r][c] += 0 <= self.tick - r - c < self.length
            self.tick += 1
        return self._is_complete()

    def _fed(self, lane: Sequence[float], late: int) -> float:
        return lane[self.tick - late] if 0 <= self.tick - late < self.length else 0.0

    def _is_complete(self) -> bool:
        return all(count >= self.length for line in self.done for count in line)
