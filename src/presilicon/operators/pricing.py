"""The hardware that a program is: its units counted, its longest path timed."""

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
"""Cycles from an operation's arguments to its result. What is not here is wires and gates: signs, logic, choices."""


def price(program: Program, fmt: Format | None = None) -> OperatorCost:
    """The units of a program, each instruction having its own, and the cycles of its longest path.

    The units are as wide as `fmt`, or float32. A branch is a choice between results: both sides are built.
    """
    counts = dict.fromkeys(("multipliers", "adders", "comparators", "special", "entries", "reads"), 0)
    ready: list[int] = []
    for each in program.instructions:
        ready.append(max((ready[a] for a in each.arguments), default=0) + LATENCY.get(each.operation, 0))
        match each.operation:
            case "mul":
                given = [program.instructions[argument] for argument in each.arguments]
                shift = any(g.operation == "constant" and _is_power_of_two(g.value) for g in given)
                counts["adders" if shift else "multipliers"] += 1
            case "div":
                divisor = program.instructions[each.arguments[1]]
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
                counts["entries"] += len(each.table)
                counts["reads"] += 1
            case "locate":
                counts["comparators"] += len(each.table)
    width = {} if fmt is None else {"bits": fmt.bits_per_element, "significand_bits": fmt.significand_bits}
    return OperatorCost(cycles=max(1, *(ready[output] for output in program.outputs)), **counts, **width)  # type: ignore[arg-type]


def _is_power_of_two(value: float) -> bool:
    """Whether multiplying by it only moves the exponent (and the sign)."""
    return math.isfinite(value) and value != 0 and math.frexp(abs(value))[0] == 0.5
