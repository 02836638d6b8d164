"""Where a program goes from one piece to the next."""

import math
from itertools import pairwise

from presilicon.operators.program import CONDITIONS, Program
from presilicon.operators.reference import apply, table_index

_STEPS = 4096


def find_breakpoints(program: Program, low: float, high: float) -> list[float]:
    """The inputs between `low` and `high` at which a branch, a table's entry or a side of abs, min or max changes.

    They are found on a fine grid (and at every constant of the program) and closed in on to the last bit of float64;
    pieces narrower than the grid that no constant marks can be missed.
    """
    marks = {sign * each.value for each in program.instructions if each.operation == "constant" for sign in (1, -1)}
    marks |= {bound for each in program.instructions if each.operation == "locate" for bound in each.table}
    inner = {mark for mark in marks if low < mark < high}
    nearby = {math.nextafter(mark, end) for mark in inner for end in (-math.inf, math.inf)}
    grid = {low + (high - low) * step / _STEPS for step in range(_STEPS + 1)}
    points = sorted({x for x in (*grid, *inner, *nearby) if low <= x <= high})
    found: list[float] = []
    for a, b in pairwise(points):
        left, end = a, _piece(program, b)
        while (here := _piece(program, left)) != end:
            right = b
            while (middle := (left + right) / 2) not in (left, right):
                if _piece(program, middle) == here:
                    left = middle
                else:
                    right = middle
            # A piece that begins just above a constant begins, for a reader, at the constant: x > 1 changes at 1.
            mark = below if (below := math.nextafter(right, -math.inf)) in inner else right
            left = right
            if not found or mark > math.nextafter(found[-1], math.inf):  # x == 0 is a piece of one number
                found.append(mark)
    return found


def _piece(program: Program, x: float) -> tuple[float, ...]:
    """What tells one piece from another: every condition, whole number, entry and side."""
    values: list[float] = []
    marks: list[float] = []
    for each in program.instructions:
        given = [values[argument] for argument in each.arguments]
        if each.operation == "input":
            values.append(x)
        elif each.operation in ("constant", "truth"):
            values.append(each.value)
        else:
            values.append(apply(each, given))
        if each.operation in CONDITIONS or each.operation in ("floor", "locate"):
            marks.append(values[-1])
        elif each.operation == "abs":
            marks.append(float(given[0] < 0))
        elif each.operation in ("min", "max"):
            marks.append(float(given[1] < given[0] if each.operation == "min" else given[1] > given[0]))
        elif each.operation == "lookup":
            marks.append(float(table_index(given[0], len(each.table))))
    return tuple(marks)
