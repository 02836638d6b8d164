"""Scalar functions as lists of instructions, which the operator language is compiled to.

A program has no branches: conditions are values, and `select` picks one of two results. Since nothing has a side
effect, computing both sides and picking one is equivalent to the source.
"""

import struct
from dataclasses import dataclass
from typing import Literal

from presilicon.base import ConfigError

Operation = Literal[
    "input",
    "constant",
    "add",
    "sub",
    "mul",
    "div",
    "neg",
    "abs",
    "min",
    "max",
    "floor",
    "sqrt",
    "exp",
    "log",
    "lookup",
    "locate",
    "select",
    "truth",
    "lt",
    "le",
    "eq",
    "ne",
    "and",
    "or",
    "not",
]
CONDITIONS = frozenset(["truth", "lt", "le", "eq", "ne", "and", "or", "not"])
"""The operations whose result is true or false; that of all others is a number."""

LARGEST = 20_000
"""The most instructions of a program; nested branches can multiply them."""


@dataclass(frozen=True, slots=True)
class ProgramInstruction:
    """One operation on the results of earlier ones."""

    operation: Operation
    arguments: tuple[int, ...] = ()
    """Positions of earlier instructions."""
    value: float = 0.0
    """The number of a constant; 1 or 0 for a truth."""
    table: tuple[float, ...] = ()
    """The numbers of a `lookup` by position, which is cut off to a whole number and kept inside (a NaN reads the
    first); or the rising bounds of a `locate`, which counts those that are not above its argument."""


@dataclass(frozen=True, eq=False)
class Program:
    """Instructions in order, and the positions of the results."""

    instructions: tuple[ProgramInstruction, ...]
    outputs: tuple[int, ...]

    def splice(self, builder: "Builder", argument: int) -> list[int]:
        """The results of this program on `argument`, as a part of another one."""
        registers: list[int] = []
        for instruction in self.instructions:
            if instruction.operation == "input":
                registers.append(argument)
            else:
                renumbered = [registers[argument] for argument in instruction.arguments]
                registers.append(
                    builder.emit(instruction.operation, *renumbered, value=instruction.value, table=instruction.table)
                )
        return [registers[output] for output in self.outputs]


class Builder:
    """Builds a program; equal instructions are shared, and operations on constants are computed at once."""

    def __init__(self) -> None:
        self.instructions: list[ProgramInstruction] = []
        self._registers: dict[object, int] = {}

    def input(self) -> int:
        """The function's argument."""
        return self._append(ProgramInstruction("input"))

    def constant(self, value: float) -> int:
        """A number."""
        return self._append(ProgramInstruction("constant", value=float(value)))

    def truth(self, value: bool) -> int:
        """A condition that is known."""
        return self._append(ProgramInstruction("truth", value=float(value)))

    def emit(self, operation: Operation, *arguments: int, value: float = 0.0, table: tuple[float, ...] = ()) -> int:
        """The register of an operation's result; operations on constants are computed at once, in float64.

        Raises:
            ConfigError: the program would have too many instructions.
        """
        operands = [self.instructions[argument] for argument in arguments]
        if operation == "select":
            condition = operands[0]
            if condition.operation == "truth":
                return arguments[1] if condition.value else arguments[2]
            if arguments[1] == arguments[2]:
                return arguments[1]
        elif operation == "mul" and 1.0 in (
            constant := [operand.value if operand.operation == "constant" else 0.0 for operand in operands]
        ):
            return arguments[1 - constant.index(1.0)]
        elif operation in ("and", "or"):
            for one, other in (arguments, reversed(arguments)):
                if self.instructions[one].operation == "truth":
                    return other if bool(self.instructions[one].value) == (operation == "and") else one
        if arguments and all(instruction.operation in ("constant", "truth") for instruction in operands):
            from presilicon.operators.reference import apply

            result = apply(
                ProgramInstruction(operation, arguments, value, table), [instruction.value for instruction in operands]
            )
            return self.truth(bool(result)) if operation in CONDITIONS else self.constant(result)
        return self._append(ProgramInstruction(operation, arguments, value, table))

    def power(self, base: int, exponent: int) -> int:
        """`base ** exponent` by repeated squaring, as hardware does it."""
        if exponent == 0:
            return self.constant(1.0)
        if exponent < 0:
            return self.emit("div", self.constant(1.0), self.power(base, -exponent))
        result: int | None = None
        square = base
        while exponent:
            if exponent & 1:
                result = square if result is None else self.emit("mul", result, square)
            exponent >>= 1
            if exponent:
                square = self.emit("mul", square, square)
        assert result is not None
        return result

    def is_condition(self, register: int) -> bool:
        """Whether a result is true or false rather than a number."""
        return self.instructions[register].operation in CONDITIONS

    def finish(self, *outputs: int) -> Program:
        """The program with these results, without instructions that they do not need."""
        needed = set(outputs)
        for register in reversed(range(len(self.instructions))):
            if register in needed:
                needed.update(self.instructions[register].arguments)
        live = sorted(needed)
        renumbered = {old: new for new, old in enumerate(live)}
        instructions = tuple(
            ProgramInstruction(
                instruction.operation,
                tuple(renumbered[argument] for argument in instruction.arguments),
                instruction.value,
                instruction.table,
            )
            for instruction in (self.instructions[register] for register in live)
        )
        return Program(instructions, tuple(renumbered[output] for output in outputs))

    def _append(self, instruction: ProgramInstruction) -> int:
        # Bits and not values: 0.0 and -0.0 are equal, and a NaN is not even equal to itself.
        bits = struct.pack(f"{1 + len(instruction.table)}d", instruction.value, *instruction.table)
        key = (instruction.operation, instruction.arguments, bits)
        if key not in self._registers:
            if len(self.instructions) >= LARGEST:
                raise ConfigError(f"an operator must have at most {LARGEST} instructions; use fewer branches")
            self._registers[key] = len(self.instructions)
            self.instructions.append(instruction)
        return self._registers[key]
