"""Breakpoints: the inputs at which a program goes from one piece to the next."""

import math
from itertools import pairwise

from presilicon.programs.program import CONDITIONS, Program
from presilicon.programs.reference import step_of, table_index

_STEPS = 4096


def find_breakpoints(program: Program, low: float, high: float) -> list[float]:
    """The inputs between `low` and `high` at which a branch, a table's entry or a side of abs, min or max changes.

    They are searched on a fine grid and at every constant of the program, and bisected to the last bit of float64.
    Pieces that are narrower than the grid and not marked by a constant can be missed.
    """
    marks = {
        sign * instruction.value
        for instruction in program.instructions
        if instruction.operation == "constant"
        for sign in (1, -1)
    }
    marks |= {
        bound
        for instruction in program.instructions
        if instruction.operation == "locate"
        for bound in instruction.table
    }
    inner = {mark for mark in marks if low < mark < high}
    nearby = {math.nextafter(mark, end) for mark in inner for end in (-math.inf, math.inf)}
    grid = {low + (high - low) * step / _STEPS for step in range(_STEPS + 1)}
    points = sorted({x for x in (*grid, *inner, *nearby) if low <= x <= high})
    breakpoints: list[float] = []
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
            if not breakpoints or mark > math.nextafter(breakpoints[-1], math.inf):  # x == 0 is a piece of one number
                breakpoints.append(mark)
    return breakpoints


def _piece(program: Program, x: float) -> tuple[float, ...]:
    """The signature of the piece that `x` is in: every condition, whole number, table entry and side."""
    values: list[float] = []
    marks: list[float] = []
    for instruction in program.instructions:
        arguments = [values[argument] for argument in instruction.arguments]
        if instruction.operation == "read":
            values.append(x)
        elif instruction.operation == "integer":
            values.append(int(instruction.value))
        elif instruction.operation in ("constant", "truth", "size", "axis"):
            values.append(instruction.value)
        else:
            values.append(step_of(instruction, arguments))
        if instruction.operation in CONDITIONS or instruction.operation in ("floor", "locate"):
            marks.append(values[-1])
        elif instruction.operation == "abs":
            marks.append(float(arguments[0] < 0))
        elif instruction.operation in ("min", "max"):
            marks.append(
                float(arguments[1] < arguments[0] if instruction.operation == "min" else arguments[1] > arguments[0])
            )
        elif instruction.operation == "lookup":
            marks.append(float(table_index(arguments[0], len(instruction.table))))
    return tuple(marks)
