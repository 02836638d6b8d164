"""A scalar function as a list of instructions: what the operator language is compiled to.

There are no branches left in it: conditions are values, and `select` picks one of two results. Since nothing has a side
effect, computing both sides and picking one is what the source says.
"""

import struct
from dataclasses import dataclass
from typing import Literal

from presilicon.base.errors import ConfigError

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
"""Instructions: branches inside branches can multiply."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One operation on the results of earlier ones."""

    operation: Operation
    arguments: tuple[int, ...] = ()
    """Positions of earlier instructions."""
    value: float = 0.0
    """Of a constant; 1 or 0 of a truth."""
    table: tuple[float, ...] = ()
    """The numbers of a `lookup` by position, which is cut off to a whole number and kept inside (a NaN reads the
    first); or the rising bounds of a `locate`, which counts those that are not above its argument."""


@dataclass(frozen=True, eq=False)
class Program:
    """Instructions in order, and the positions of the results."""

    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]

    def splice(self, builder: "Builder", argument: int) -> list[int]:
        """The results of this program on `argument`, as a part of another one."""
        places: list[int] = []
        for each in self.instructions:
            if each.operation == "input":
                places.append(argument)
            else:
                moved = [places[argument] for argument in each.arguments]
                places.append(builder.emit(each.operation, *moved, value=each.value, table=each.table))
        return [places[output] for output in self.outputs]


class Builder:
    """Makes a program: equal instructions are kept once, and what follows from constants alone is worked out."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self._places: dict[object, int] = {}

    def input(self) -> int:
        """The function's argument."""
        return self._append(Instruction("input"))

    def constant(self, value: float) -> int:
        """A number."""
        return self._append(Instruction("constant", value=float(value)))

    def truth(self, value: bool) -> int:
        """A condition that is known."""
        return self._append(Instruction("truth", value=float(value)))

    def emit(self, operation: Operation, *arguments: int, value: float = 0.0, table: tuple[float, ...] = ()) -> int:
        """The result of an operation, in float64 if it is known already.

        Raises:
            ConfigError: the program has grown beyond all measure.
        """
        given = [self.instructions[argument] for argument in arguments]
        if operation == "select":
            chosen = given[0]
            if chosen.operation == "truth":
                return arguments[1] if chosen.value else arguments[2]
            if arguments[1] == arguments[2]:
                return arguments[1]
        elif operation == "mul" and 1.0 in (constant := [g.value if g.operation == "constant" else 0.0 for g in given]):
            return arguments[1 - constant.index(1.0)]
        elif operation in ("and", "or"):
            for one, other in (arguments, reversed(arguments)):
                if self.instructions[one].operation == "truth":
                    return other if bool(self.instructions[one].value) == (operation == "and") else one
        if arguments and all(each.operation in ("constant", "truth") for each in given):
            from presilicon.operators.reference import apply

            result = apply(Instruction(operation, arguments, value, table), [each.value for each in given])
            return self.truth(bool(result)) if operation in CONDITIONS else self.constant(result)
        return self._append(Instruction(operation, arguments, value, table))

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

    def is_condition(self, place: int) -> bool:
        """Whether a result is true or false rather than a number."""
        return self.instructions[place].operation in CONDITIONS

    def finish(self, *outputs: int) -> Program:
        """The program that gives these results, without what they do not need."""
        needed = set(outputs)
        for place in reversed(range(len(self.instructions))):
            if place in needed:
                needed.update(self.instructions[place].arguments)
        kept = sorted(needed)
        moved = {old: new for new, old in enumerate(kept)}
        instructions = tuple(
            Instruction(each.operation, tuple(moved[argument] for argument in each.arguments), each.value, each.table)
            for each in (self.instructions[place] for place in kept)
        )
        return Program(instructions, tuple(moved[output] for output in outputs))

    def _append(self, instruction: Instruction) -> int:
        # Bits and not values: 0.0 and -0.0 are equal, and a NaN is not even equal to itself.
        bits = struct.pack(f"{1 + len(instruction.table)}d", instruction.value, *instruction.table)
        key = (instruction.operation, instruction.arguments, bits)
        if key not in self._places:
            if len(self.instructions) >= LARGEST:
                raise ConfigError(f"the operator needs more than {LARGEST} instructions; use fewer branches")
            self._places[key] = len(self.instructions)
            self.instructions.append(instruction)
        return self._places[key]
