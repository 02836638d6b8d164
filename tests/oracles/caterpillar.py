"""Slow reference of a CATERPILLAR core: processing elements stepped cycle by cycle, values and cycles both.

No closed form is used. In each cycle a PE may start one multiply-add, and everything it started before moves
one stage on. What it adds to is read through a port before, and the result is written through the same port after;
writes come first. Small cores only.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import NamedTuple

Matrix = Sequence[Sequence[float]]
Vector = Sequence[float]


class Counts(NamedTuple):
    """Words that moved in a core, besides the sums."""

    weights: int
    """Weights that PEs read and wrote in their own memory."""
    operands: int
    """Words that PEs read and put on a bus."""


class Slot(NamedTuple):
    """One multiply-add of a PE, or one addition of a neighbour's sum."""

    turn: int
    value: Callable[[], float]
    """Called in the last stage: then the neighbour's sum is there."""
    is_first: bool
    is_last: bool
    weights: int = 0
    """What the PE reads and writes of its own weights for it."""
    operands: int = 0
    """Words that the PE puts on its buses in the same cycle; buses of a core are driven by its PEs in turn."""


class Pe:
    """A processing element: slots in order, a pipeline of stages, an accumulator, and a port for what it adds to."""

    def __init__(self, slots: Sequence[Slot], initial: Sequence[float], stages: int, start: int = 0) -> None:
        self.slots, self.initial, self.start = deque(slots), initial, start
        self.pipeline: deque[tuple[Slot, float] | None] = deque([None] * stages)
        self.accumulator = self.out = 0.0
        self.preloaded: deque[tuple[int, float]] = deque()
        self.finished: deque[tuple[int, float]] = deque()
        self.to_read = 0
        self.results: dict[int, float] = {}
        self.weights = self.operands = 0

    @property
    def is_done(self) -> bool:
        """Whether every result has been written."""
        return len(self.results) == len(self.initial)

    def accumulate(self) -> None:
        """The last stage."""
        leaving = self.pipeline.pop()
        if leaving is None:
            return
        slot, begin = leaving
        self.accumulator = (begin if slot.is_first else self.accumulator) + slot.value()
        if slot.is_last:
            self.finished.append((slot.turn, self.accumulator))

    def issue(self, cycle: int) -> None:
        """The first stage: the next slot, or a bubble where there is none or what it adds to is not there yet."""
        ready = self.slots and cycle >= self.start and (not self.slots[0].is_first or self.preloaded)
        if not ready:
            self.pipeline.appendleft(None)
            return
        slot = self.slots.popleft()
        self.weights += slot.weights
        self.operands += slot.operands
        self.pipeline.appendleft((slot, self.preloaded.popleft()[1] if slot.is_first else 0.0))

    def use_port(self, waiting: Sequence[tuple[int, float]]) -> None:
        """One access: the write of a result that was `waiting` at the start of the cycle, or the next read."""
        if waiting:
            turn, value = self.finished.popleft()
            self.results[turn] = value
        elif self.to_read < len(self.initial) and not self.preloaded:
            self.preloaded.append((self.to_read, self.initial[self.to_read]))
            self.to_read += 1


def run_core_gemm(a: Matrix, b: Matrix, c: Matrix, nr: int, stages: int) -> tuple[list[list[float]], int, Counts]:
    """C + A B by rank-1 updates on nr x nr PEs: the values, the cycles, and the words that moved."""
    m, k, n = len(a), len(b), len(b[0])
    tiles = [(i0, j0) for i0 in range(0, m, nr) for j0 in range(0, n, nr)]
    pes = {}
    for i in range(nr):
        for j in range(nr):
            slots = [
                Slot(
                    turn,
                    _product(_at(a, i0 + i, p), _at(b, p, j0 + j)),
                    p == 0,
                    p == k - 1,
                    operands=(p % nr == j and i0 + i < m) + (p % nr == i and j0 + j < n),
                )
                for turn, (i0, j0) in enumerate(tiles)
                for p in range(k)
            ]
            pes[i, j] = Pe(slots, [_at(c, i0 + i, j0 + j) for i0, j0 in tiles], stages)
    cycles = _run(list(pes.values()))
    result = [[0.0] * n for _ in range(m)]
    for (i, j), pe in pes.items():
        for turn, (i0, j0) in enumerate(tiles):
            if i0 + i < m and j0 + j < n:
                result[i0 + i][j0 + j] = pe.results[turn]
    return result, cycles, _counts(pes.values())


def run_core_gemv(
    w: Matrix, x: Vector, y: Vector, nr: int, stages: int, *, transposed: bool = False
) -> tuple[list[float], int, Counts]:
    """y + W x, or y + W^T x, with W[i, j] in the memory of PE (i mod nr, j mod nr) either way."""
    m, k = (len(w[0]), len(w)) if transposed else (len(w), len(w[0]))
    turns, depth = ceil(m / nr), ceil(k / nr)
    pes: dict[tuple[int, int], Pe] = {}
    for lane in range(nr):
        for position in range(nr):  # along the chain that sums move on
            slots = []
            for turn in range(turns):
                for block in range(depth):
                    row, column = turn * nr + lane, block * nr + position
                    weight = _at(w, column, row) if transposed else _at(w, row, column)
                    value = _product(weight, x[column] if column < k else 0.0)
                    read = int(row < m and column < k)
                    drives = int(block % nr == lane and column < k)
                    slots.append(Slot(turn, value, block == 0, nr == 1 and block == depth - 1, read, drives))
                if nr > 1:
                    slots.append(Slot(turn, _neighbour(pes.get((lane, position - 1)), turn), False, True))
            own = [y[turn * nr + lane] if turn * nr + lane < m else 0.0 for turn in range(turns)]
            ends = position == nr - 1
            pes[lane, position] = Pe(slots, own if ends else [0.0] * turns, stages, start=1 + position)
    # From the far end, so that a PE sees its neighbour's sum as it was at the end of the cycle before.
    cycles = _run([pes[lane, position] for position in reversed(range(nr)) for lane in range(nr)])
    result = [pes[row % nr, nr - 1].results[row // nr] for row in range(m)]
    return result, cycles, _counts(pes.values())


def run_core_update(
    w: Matrix, e: Vector, x: Vector, nr: int, stages: int, port_words: int
) -> tuple[list[list[float]], int, Counts]:
    """W + e x^T in place; the one port of MEM A reads or writes `port_words` weights at once."""
    m, k = len(w), len(w[0])
    places = [(row, column) for row in range(ceil(m / nr)) for column in range(ceil(k / nr))]
    groups = [places[at : at + port_words] for at in range(0, len(places), port_words)]
    done: dict[tuple[int, int], float] = {}
    pes = []
    for i in range(nr):
        for j in range(nr):
            slots = []
            for turn, group in enumerate(groups):
                for at, (row, column) in enumerate(group):
                    value = _updated(w, e, x, row * nr + i, column * nr + j, done)
                    inside = row * nr + i < m and column * nr + j < k
                    drives_x = column % nr == i and column * nr + j < k
                    drives_e = column == 0 and row % nr == j and row * nr + i < m  # kept for the whole row
                    slots.append(Slot(turn, value, at == 0, at == len(group) - 1, 2 * inside, drives_x + drives_e))
            pes.append(Pe(slots, [0.0] * len(groups), stages))
    cycles = _run(pes)
    result = [[done[i, j] for j in range(k)] for i in range(m)]
    return result, cycles, _counts(pes)


def _counts(pes: Iterable[Pe]) -> Counts:
    pes = list(pes)
    return Counts(sum(pe.weights for pe in pes), sum(pe.operands for pe in pes))


def _run(pes: Sequence[Pe]) -> int:
    """Steps all PEs together until the last result is written; the number of cycles."""
    cycle = 0
    while not all(pe.is_done for pe in pes):
        waiting = [tuple(pe.finished) for pe in pes]
        for pe in pes:
            pe.accumulate()
            pe.issue(cycle)
        for pe, had in zip(pes, waiting, strict=True):
            pe.use_port(had)
        cycle += 1
    return cycle


def _product(left: float, right: float) -> Callable[[], float]:
    return lambda: left * right


def _neighbour(pe: Pe | None, turn: int) -> Callable[[], float]:
    """The sum that the PE before made of a turn; there is none before the first."""
    if pe is None:
        return lambda: 0.0

    def take() -> float:
        made = [*pe.finished, *pe.results.items()]
        found = [value for number, value in made if number == turn]
        assert found, "the neighbour's sum is late"
        return found[0]

    return take


def _updated(
    w: Matrix, e: Vector, x: Vector, row: int, column: int, done: dict[tuple[int, int], float]
) -> Callable[[], float]:
    def update() -> float:
        if row < len(w) and column < len(w[0]):
            done[row, column] = w[row][column] + e[row] * x[column]
        return 0.0

    return update


def _at(matrix: Matrix, i: int, j: int) -> float:
    """What the memories hold there; zero beyond the matrix."""
    return matrix[i][j] if i < len(matrix) and j < len(matrix[0]) else 0.0
