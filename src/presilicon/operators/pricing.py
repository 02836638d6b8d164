"""The hardware of a program: the count of its units and the cycles of its longest path."""

import math

from presilicon.formats import Format
from presilicon.operators.program import Operation, Program
from presilicon.records import OperatorCost

LATENCY: dict[Operation, int] = {
    "add": 1,
    "sub": 1,
    "mul": 1,
    "floor": 1,
    "min": 1,
    "max": 1,
    "lt": 1,
    "le": 1,
    "eq": 1,
    "ne": 1,
    "lookup": 1,
    "locate": 1,
    "div": 8,
    "sqrt": 8,
    "exp": 8,
    "log": 8,
}
"""Cycles from an operation's arguments to its result. Signs, logic and choices take none: they are wires and gates."""


def price(program: Program, fmt: Format | None = None) -> OperatorCost:
    """The units of a program, one per instruction, and the cycles of its longest path.

    The units are as wide as `fmt`, or float32. A branch is a choice between results: both sides are built.
    """
    counts = dict.fromkeys(("multipliers", "adders", "comparators", "special", "entries", "reads"), 0)
    ready: list[int] = []
    for instruction in program.instructions:
        ready.append(max((ready[a] for a in instruction.arguments), default=0) + LATENCY.get(instruction.operation, 0))
        match instruction.operation:
            case "mul":
                operands = [program.instructions[argument] for argument in instruction.arguments]
                shift = any(operand.operation == "constant" and _is_power_of_two(operand.value) for operand in operands)
                counts["adders" if shift else "multipliers"] += 1
            case "div":
                divisor = program.instructions[instruction.arguments[1]]
                shift = divisor.operation == "constant" and _is_power_of_two(divisor.value)
                counts["adders" if shift else "special"] += 1
                if shift:
                    ready[-1] += LATENCY["add"] - LATENCY["div"]
            case "add" | "sub" | "floor":
                counts["adders"] += 1
            case "min" | "max" | "lt" | "le" | "eq" | "ne":
                counts["comparators"] += 1
            case "sqrt" | "exp" | "log":
                counts["special"] += 1
            case "lookup":
                counts["entries"] += len(instruction.table)
                counts["reads"] += 1
            case "locate":
                counts["comparators"] += len(instruction.table)
    width = {} if fmt is None else {"bits": fmt.bits_per_element, "significand_bits": fmt.significand_bits}
    return OperatorCost(cycles=max(1, *(ready[output] for output in program.outputs)), **counts, **width)  # type: ignore[arg-type]


def _is_power_of_two(value: float) -> bool:
    """Whether multiplying by it only moves the exponent (and the sign)."""
    return math.isfinite(value) and value != 0 and math.frexp(abs(value))[0] == 0.5
