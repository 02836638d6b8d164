"""The hardware of a program: the count of its units and the cycles of its longest path."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from presilicon.base import ConfigError
from presilicon.formats import Format
from presilicon.programs import (
    MATHEMATICS,
    REDUCTIONS,
    Operation,
    Program,
    ProgramInstruction,
    ProgramStage,
    extents_of,
    needed_by,
    stages_of,
)
from presilicon.records import OperatorCost, OperatorWork

LATENCY: dict[Operation, int] = {
    **dict.fromkeys(("add", "sub", "mul", "floor", "min", "max", "lt", "le", "eq", "ne", "lookup", "locate"), 1),
    **dict.fromkeys(("ldexp", "narrow"), 1),
    **dict.fromkeys(("div", "sqrt", "floordiv", "mod", *MATHEMATICS), 8),
}
"""Cycles from an operation's arguments to its result. Signs, logic and choices take none: they are wires and gates."""


_UNITS: dict[str, str] = {
    **dict.fromkeys(("add", "sub", "floor", "sum", "ldexp", "narrow"), "adders"),
    **dict.fromkeys(("min", "max", "lt", "le", "eq", "ne", "greatest", "least"), "comparators"),
    **dict.fromkeys(("div", "sqrt", "floordiv", "mod", *MATHEMATICS), "special"),
    **dict.fromkeys(("mul", "prod"), "multipliers"),
    "locate": "comparators",
    "lookup": "reads",
}


def unit_of(program: Program, position: int) -> str | None:
    """The unit that computes an instruction; None for wires, logic, and whole numbers, which are addresses."""
    instruction = program.instructions[position]
    operation, arguments = instruction.operation, instruction.arguments
    if operation not in _UNITS or program.kinds[arguments[0]] != "number":
        return None
    factors = [program.instructions[argument] for argument in arguments]
    if operation in ("mul", "div"):
        by = factors if operation == "mul" else factors[1:]
        if any(factor.operation == "constant" and _is_power_of_two(factor.value) for factor in by):
            return "adders"
        if operation == "mul" and any(_is_shift(program, factor) for factor in factors):
            return "adders"
    if operation == "exp2" and _is_shift(program, instruction):
        return None  # the exponent itself
    return _UNITS[operation]


def _latency(program: Program, position: int) -> int:
    unit, operation = unit_of(program, position), program.instructions[position].operation
    if unit is None:
        return 0
    return LATENCY["add"] if operation == "div" and unit == "adders" else LATENCY.get(operation, 1)


def price(program: Program, fmt: Format | None = None) -> OperatorCost:
    """The units of a program, one per instruction, and the cycles of its longest path.

    The units are as wide as `fmt`, or float32. A branch is a choice between results: both sides are built. A reduction
    is one unit that is used again and again: the path has one round of it.

    Raises:
        ConfigError: the rounds of a loop depend on data, so that nobody knows its cycles.
    """
    _check_rounds(program)
    names = ("multipliers", "adders", "comparators", "special", "entries", "reads")
    counts: dict[str, Any] = dict.fromkeys(names, 0)
    ready: list[int] = []
    for position, instruction in enumerate(program.instructions):
        ready.append(max((ready[a] for a in instruction.arguments), default=0) + _latency(program, position))
        unit = unit_of(program, position)
        if unit is not None:
            counts[unit] += len(instruction.table) if instruction.operation == "locate" else 1
        if instruction.operation == "lookup":
            counts["entries"] += len(instruction.table)
    return OperatorCost(cycles=max(1, *(ready[output] for output in program.outputs)), **counts, **_width(fmt))


def work_of(
    program: Program, sizes: Mapping[str, int], name: str, fmt: Format | None = None, *,
    cycles: int | None = None, pipelined: bool = False,
) -> OperatorWork:  # fmt: skip
    """The operations of a call: each value once for every combination of its index variables, stage by stage.

    A lane that is not pipelined is busy from the operands of a value to its result, and in a reduction round by round.
    """
    _check_rounds(program)
    extents = extents_of(program, sizes)
    counts = dict.fromkeys(("multipliers", "adders", "comparators", "special", "reads", "entries"), 0)
    lane_cycles, loads, results = 0, 0, 0
    stored: set[int] = set()
    for stage in stages_of(program):
        elements = _count(extents, stage.axes)
        results += elements if stage.result is not None else 0
        for position in _inside(program, stage, stored):
            instruction = program.instructions[position]
            variables = program.free[position]
            if instruction.operation in REDUCTIONS:
                variables = variables | {instruction.arguments[1]}
            times, unit = _count(extents, variables), unit_of(program, position)
            if unit is not None:
                counts[unit] += times * (len(instruction.table) if instruction.operation == "locate" else 1)
            if instruction.operation == "lookup":
                counts["entries"] = max(counts["entries"], len(instruction.table))
            loads += times if instruction.operation == "read" else 0
        if stage.result is not None and stage.result.indices is not None:
            counts["adders"] += elements
        if pipelined:
            lane_cycles += _rounds(program, stage, extents, stored)
        else:
            lane_cycles += elements * max(1, _path(program, stage.value, extents, stored))
        if stage.result is None:
            stored.add(stage.value)
    if cycles is not None:
        lane_cycles = results * cycles
    return OperatorWork(
        name=name, results=results, multiplications=counts["multipliers"], additions=counts["adders"],
        comparisons=counts["comparators"], special=counts["special"], lookups=counts["reads"],
        entries=counts["entries"], reads=loads, lane_cycles=lane_cycles, **_width(fmt),
    )  # fmt: skip


def together(name: str, works: Sequence[OperatorWork]) -> OperatorWork:
    """Several pieces of work as one."""
    added = {
        field: sum(getattr(work, field) for work in works)
        for field in OperatorWork.__struct_fields__
        if field not in ("name", "entries", "bits", "significand_bits")
    }
    widest = max(works, key=lambda work: work.bits)
    entries = max(work.entries for work in works)
    width: dict[str, Any] = {"bits": widest.bits, "significand_bits": widest.significand_bits}
    return OperatorWork(name=name, entries=entries, **width, **added)


def _check_rounds(program: Program) -> None:
    if any(step.operation == "loop" for step in program.instructions):
        raise ConfigError(
            "a loop whose number of rounds depends on data has no known cost; allowed: a loop over range(n) with a "
            "constant n; try: break out of such a loop"
        )


def _width(fmt: Format | None) -> dict[str, Any]:
    return {} if fmt is None else {"bits": fmt.bits_per_element, "significand_bits": fmt.significand_bits}


def _count(extents: Mapping[int, int], axes: Iterable[int]) -> int:
    return math.prod(extents[axis] for axis in axes)


def _inside(program: Program, stage: ProgramStage, stored: set[int]) -> list[int]:
    """The instructions that a stage computes."""
    result = stage.result
    ends = stored - {stage.value}
    roots = (stage.value, *(result.indices or () if result else ()))
    return [position for position in needed_by(program.instructions, roots, ends.__contains__) if position not in ends]


def _path(program: Program, register: int, extents: Mapping[int, int], stored: set[int]) -> int:
    """Cycles from the operands of a value to its result."""
    ready: dict[int, int] = {}
    for position in range(register + 1):
        instruction = program.instructions[position]
        if position in stored:
            ready[position] = 0
            continue
        begin = max((ready[argument] for argument in instruction.arguments), default=0)
        latency = _latency(program, position)
        if instruction.operation in REDUCTIONS:
            # Every round computes what depends on its variable; the rest is there already.
            ready[position] = extents[instruction.arguments[1]] * max(1, begin + latency)
        else:
            ready[position] = begin + latency
    return ready[register]


def _rounds(program: Program, stage: ProgramStage, extents: Mapping[int, int], stored: set[int]) -> int:
    """Rounds of the innermost loops of a stage, of which a pipelined lane begins one per cycle."""
    inside = _inside(program, stage, stored)
    sums = [position for position in inside if program.instructions[position].operation in REDUCTIONS]
    loops = [program.free[position] | {program.instructions[position].arguments[1]} for position in sums]
    return sum(_count(extents, axes) for axes in loops) or _count(extents, stage.axes)


def _is_shift(program: Program, instruction: ProgramInstruction) -> bool:
    """Whether it is 2 to the power of a whole number."""
    return instruction.operation == "exp2" and program.instructions[instruction.arguments[0]].operation == "floor"


def _is_power_of_two(value: float) -> bool:
    """Whether multiplying by it only moves the exponent (and the sign)."""
    return math.isfinite(value) and value != 0 and math.frexp(abs(value))[0] == 0.5
