"""Stages of a program: which reductions are stored for all elements that share them, and which reads may go wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf

from presilicon.programs.program import REDUCTIONS, Program, ProgramResult
from presilicon.programs.reference import apply


@dataclass(frozen=True, eq=False)
class ProgramStage:
    """A tensor that is computed in one pass: a stored reduction, or a result."""

    axes: tuple[int, ...]
    """Index variables over which it is computed."""
    value: int
    result: ProgramResult | None = None
    """None for a stored reduction."""


@lru_cache(maxsize=512)
def stages_of(program: Program) -> tuple[ProgramStage, ...]:
    """The stages of a program, in an order in which they can be computed.

    A reduction is stored if values with more index variables use it, or several stages do: softmax stores the largest
    element and the sum of each row. Others are computed where they are used.
    """
    roots = [ProgramStage(result.axes, result.value, result) for result in program.results]
    stored: set[int] = set()
    while True:
        found = _shared(program, roots, stored)
        if found <= stored:
            break
        stored |= found
    reductions = [ProgramStage(tuple(sorted(program.free[value])), value) for value in sorted(stored)]
    return (*reductions, *roots)


def _shared(program: Program, roots: list[ProgramStage], stored: set[int]) -> set[int]:
    """The reductions that are used with other index variables than their own, or by several stages."""
    users: dict[int, set[int]] = {}
    shared: set[int] = set()
    for number, (value, axes, extra) in enumerate(
        [(root.value, frozenset(root.axes), _also(root)) for root in roots]
        + [(value, program.free[value], ()) for value in sorted(stored)]
    ):
        pending = [(register, axes) for register in (value, *extra)]
        seen: set[tuple[int, frozenset[int]]] = set()
        while pending:
            register, context = pending.pop()
            if (register, context) in seen:
                continue
            seen.add((register, context))
            instruction = program.instructions[register]
            if instruction.operation in REDUCTIONS:
                is_root = register == value and number >= len(roots)
                if not is_root:
                    users.setdefault(register, set()).add(number)
                    if context != program.free[register] or len(users[register]) > 1:
                        shared.add(register)
                    if register in stored:
                        continue
                pending.append((instruction.arguments[0], context | {instruction.arguments[1]}))
            elif instruction.operation != "axis":
                pending += [(argument, context) for argument in instruction.arguments]
    # A whole number that does not depend on data, such as an extent, is no work.
    return {register for register in shared if register not in stored} | stored


def _also(stage: ProgramStage) -> tuple[int, ...]:
    result = stage.result
    if result is None or result.indices is None:
        return ()
    return (*result.indices, *(() if result.condition is None else (result.condition,)))


def extents_of(program: Program, sizes: Mapping[str, int]) -> dict[int, int]:
    """The number of values of each index variable."""
    return dict(_extents(program, tuple(sorted(sizes.items()))))


@lru_cache(maxsize=4096)
def _extents(program: Program, sizes: tuple[tuple[str, int], ...]) -> dict[int, int]:
    named = dict(sizes)
    values: dict[int, float] = {}
    for position, instruction in enumerate(program.instructions):
        if instruction.operation == "size":
            values[position] = named[instruction.name]
        elif instruction.operation == "integer":
            values[position] = int(instruction.value)
        elif (
            program.kinds[position] == "integer"
            and instruction.operation not in ("axis", *REDUCTIONS)
            and all(argument in values for argument in instruction.arguments)
        ):
            values[position] = apply(instruction, [values[argument] for argument in instruction.arguments])
    axes = [position for position, step in enumerate(program.instructions) if step.operation == "axis"]
    return {axis: max(0, int(values[program.instructions[axis].arguments[0]])) for axis in axes}


def unproven_reads(program: Program, sizes: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]) -> frozenset[int]:
    """The reads whose indices are not known to lie inside of their operands, by the ranges of their parts."""
    return _unproven(program, tuple(sorted(sizes.items())), tuple(sorted(shapes.items())))


@lru_cache(maxsize=4096)
def _unproven(
    program: Program, sizes: tuple[tuple[str, int], ...], shapes: tuple[tuple[str, tuple[int, ...]], ...]
) -> frozenset[int]:
    extents, ranges, named = _extents(program, sizes), _ranges(program, sizes), dict(shapes)
    is_empty = 0 in extents.values()  # the ranges below are those of loops that run
    unproven = set()
    for position, instruction in enumerate(program.instructions):
        if instruction.operation == "read" and is_empty:
            unproven.add(position)
        elif instruction.operation == "read":
            limits = _limits(program, instruction.arguments[0], ranges)
            for index, size in zip(instruction.arguments[1:], named[instruction.name], strict=True):
                low, high = ranges.get(index, (-inf, inf))
                above, below = limits.get(index, (-inf, inf))
                if max(low, above) < 0 or min(high, below) >= size:
                    unproven.add(position)
    return frozenset(unproven)


def _limits(
    program: Program, condition: int, ranges: Mapping[int, tuple[float, float]]
) -> dict[int, tuple[float, float]]:
    """The ranges of whole numbers where a condition holds, as far as its comparisons say."""
    limits: dict[int, tuple[float, float]] = {}
    pending = [(condition, True)]
    while pending:
        register, holds = pending.pop()
        instruction = program.instructions[register]
        if instruction.operation == "not":
            pending.append((instruction.arguments[0], not holds))
        elif instruction.operation == ("and" if holds else "or"):
            pending += [(argument, holds) for argument in instruction.arguments]
        elif instruction.operation in ("lt", "le") and program.kinds[instruction.arguments[0]] == "integer":
            one, other = instruction.arguments if holds else instruction.arguments[::-1]
            gap = int((instruction.operation == "lt") == holds)  # one + gap <= other
            low, high = limits.get(other, (-inf, inf))
            limits[other] = (max(low, ranges.get(one, (-inf, inf))[0] + gap), high)
            low, high = limits.get(one, (-inf, inf))
            limits[one] = (low, min(high, ranges.get(other, (-inf, inf))[1] - gap))
    return limits


def _ranges(program: Program, sizes: tuple[tuple[str, int], ...]) -> dict[int, tuple[float, float]]:
    """The least and the greatest value of whole numbers that do not come from data."""
    extents, named = _extents(program, sizes), dict(sizes)
    ranges: dict[int, tuple[float, float]] = {}
    for position, instruction in enumerate(program.instructions):
        if program.kinds[position] != "integer":
            continue
        at = instruction.arguments
        if instruction.operation == "axis":
            ranges[position] = (0, extents[position] - 1)
        elif instruction.operation in ("argmax", "argmin"):
            ranges[position] = (0, extents[at[1]] - 1)
        elif instruction.operation == "size":
            ranges[position] = (named[instruction.name],) * 2
        elif instruction.operation == "integer":
            ranges[position] = (int(instruction.value),) * 2
        elif instruction.operation == "select":
            sides = [ranges.get(side, (-inf, inf)) for side in at[1:]]
            ranges[position] = min(low for low, _ in sides), max(high for _, high in sides)
        elif instruction.operation == "mod" and at[1] in ranges and ranges[at[1]][0] > 0:
            ranges[position] = (0, ranges[at[1]][1] - 1)
        elif instruction.operation in ("add", "sub", "mul", "neg", "min", "max", "floordiv") and all(
            argument in ranges for argument in at
        ):
            ends = [ranges[argument] for argument in at]
            if instruction.operation == "floordiv" and ends[1][0] <= 0 <= ends[1][1]:
                continue
            corners = [(end,) for end in ends[0]] if len(at) == 1 else [(a, b) for a in ends[0] for b in ends[1]]
            if any(abs(end) == inf for corner in corners for end in corner):
                continue
            values = [apply(instruction, corner) for corner in corners]
            ranges[position] = (min(values), max(values))
    return ranges
