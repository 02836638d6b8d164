"""The meaning of each instruction, one number at a time: the slow, obvious reference for the fast executions.

Numbers follow IEEE 754 where Python would raise: 1 / 0 is infinite, the root of -1 is NaN, exp(1000) is infinite.
`min`, `max` and comparisons treat NaN as Python does; `floor` is never -0, as Python's integers never are.
"""

import math
import operator
import struct
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from presilicon.base import ConfigError
from presilicon.programs.functions import MATH_FUNCTIONS, divide, square_root
from presilicon.programs.program import REDUCTIONS, LoopInstruction, Program, ProgramInstruction, needed_for, wrap
from presilicon.programs.rounding import StepRounding

NOT_WHOLE = -(2**63)
"""What NaN, and numbers that 64 bits do not hold, are as whole numbers: outside of everything, as on processors."""


class Array(NamedTuple):
    """A tensor of plain numbers, row by row."""

    shape: tuple[int, ...]
    numbers: list[float]

    def offset(self, index: Sequence[float]) -> int | None:
        """The position of an element; None outside."""
        offset = 0
        for place, size in zip(index, self.shape, strict=True):
            if not 0 <= place < size:
                return None
            offset = offset * size + int(place)
        return offset


def evaluate(program: Program, x: float | Mapping[str, float], rounding: StepRounding | None = None) -> list[float]:
    """The results of a program of plain numbers: of its only operand, or of several by name.

    Arithmetic is that of float64. With a rounding, the argument, every constant and every result are rounded: to
    float32 that is float32 arithmetic, since a float64 result holds enough bits for the second rounding to be harmless.
    """
    operands = x if isinstance(x, Mapping) else dict.fromkeys(program.operands, x)
    if program.has_reductions:
        arrays = {name: Array((1,), [number]) for name, number in operands.items()}
        return [array.numbers[0] for array in evaluate_tensors(program, arrays, {"_": 1}, rounding)]
    values: list[float] = []
    for position, instruction in enumerate(program.instructions):
        match instruction.operation:
            case "read":
                result = (int if instruction.value else float)(operands[instruction.name])
            case "constant" | "truth":
                result = instruction.value
            case "integer":
                result = int(instruction.value)
            case "size" | "axis":
                result = instruction.operation == "size"  # the only element
            case _:
                result = step_of(instruction, [values[argument] for argument in instruction.arguments], rounding)
        is_number = program.kinds[position] == "number" and instruction.operation != "locate"
        values.append(rounding.value(result) if rounding is not None and is_number else result)
    is_whole = [program.kinds[output] == "integer" for output in program.outputs]
    return [(int if whole else float)(values[at]) for at, whole in zip(program.outputs, is_whole, strict=True)]


def evaluate_tensors(
    program: Program,
    operands: Mapping[str, Array],
    sizes: Mapping[str, int],
    rounding: StepRounding | None = None,
    shapes: Sequence[tuple[int, ...]] = (),
) -> list[Array]:
    """The results of a program, element by element; `shapes` are those of results that are added up by index.

    Raises:
        ConfigError: an index lies outside of its operand.
    """
    meaning = _Meaning(program, operands, sizes, rounding)
    arrays = []
    for position, result in enumerate(program.results):
        extents = [range(meaning.extent(axis)) for axis in result.axes]
        if result.indices is None:
            numbers = [
                meaning.at(result.value, dict(zip(result.axes, index, strict=True))) for index in product(*extents)
            ]
            arrays.append(Array(tuple(map(len, extents)), numbers))
            continue
        total = Array(shapes[position], [0.0] * math.prod(shapes[position]))
        for index in product(*extents):
            at = dict(zip(result.axes, index, strict=True))
            if result.condition is None or meaning.at(result.condition, at):
                offset = total.offset([meaning.at(register, at) for register in result.indices])
                assert offset is not None  # the forward pass has read there
                total.numbers[offset] += meaning.at(result.value, at)
        arrays.append(total)
    return arrays


class _Meaning:
    """Values of a program's instructions for given operands, each computed once."""

    def __init__(
        self, program: Program, operands: Mapping[str, Array], sizes: Mapping[str, int], rounding: StepRounding | None
    ) -> None:
        self._program = program
        self._operands, self._sizes, self._rounding = operands, sizes, rounding
        self._known: dict[tuple[int, ...], float] = {}

    def extent(self, axis: int) -> int:
        """The number of values of an index variable."""
        return int(self.at(self._program.instructions[axis].arguments[0], {}))

    def at(self, register: int, index: Mapping[int, int]) -> float:
        """A value where the index variables have these values."""
        for position in needed_for(self._program, register):
            key = self._key(position, index)
            if key not in self._known:
                self._known[key] = self._compute(position, index)
        return self._known[self._key(register, index)]

    def _key(self, position: int, index: Mapping[int, int]) -> tuple[int, ...]:
        return position, *(index[axis] for axis in sorted(self._program.free[position]))

    def _compute(self, position: int, index: Mapping[int, int]) -> float:
        instruction = self._program.instructions[position]
        operation = instruction.operation
        if operation in REDUCTIONS:
            return self._reduce(instruction, index)
        arguments = (
            [self._known[self._key(argument, index)] for argument in instruction.arguments]
            if operation != "axis"
            else []
        )
        match operation:
            case "axis":
                return index[position]
            case "size":
                return self._sizes[instruction.name]
            case "integer":
                return int(instruction.value)
            case "read":
                result = self._read(instruction, arguments)
            case "constant" | "truth":
                result = instruction.value
            case _:
                result = step_of(instruction, arguments, self._rounding)
        return self._rounded(position, result)

    def _rounded(self, position: int, result: float) -> float:
        is_number = self._program.kinds[position] == "number"
        if self._rounding is None or not is_number or self._program.instructions[position].operation == "locate":
            return result
        return self._rounding.value(result)

    def _read(self, instruction: ProgramInstruction, arguments: Sequence[float]) -> float:
        if not arguments[0]:
            return 0.0
        array = self._operands[instruction.name]
        offset = array.offset(arguments[1:])
        if offset is None:
            raise ConfigError(outside(instruction, array.shape))
        return (int if instruction.value else float)(array.numbers[offset])

    def _reduce(self, instruction: ProgramInstruction, index: Mapping[int, int]) -> float:
        body, axis = instruction.arguments
        is_largest = instruction.operation in ("greatest", "argmax")
        best, total = -math.inf if is_largest else math.inf, REDUCTIONS[instruction.operation]
        for place in range(self.extent(axis)):
            value = self.at(body, {**index, axis: place})
            is_first = place == 0 and not instruction.value
            match instruction.operation:
                case "sum":
                    total = self._rounded(body, total + value)
                case "prod":
                    total = self._rounded(body, total * value)
                case _:
                    if is_first or (value > best if is_largest else value < best):
                        best = value
                        total = place if instruction.operation.startswith("arg") else value
        return total


def outside(instruction: ProgramInstruction, shape: Sequence[int]) -> str:
    """The complaint about an index that leaves its operand."""
    return (
        f"line {instruction.line}: an index of {instruction.name} lies outside of its shape {tuple(shape)}; "
        f"guard it, as `{instruction.name}[i] if 0 <= i < N else 0.0`"
    )


def apply(instruction: ProgramInstruction, arguments: Sequence[float]) -> float:
    """One operation on numbers; conditions are 1 and 0."""
    if instruction.operation == "lookup":
        return instruction.table[table_index(arguments[0], len(instruction.table))]
    if instruction.operation == "locate":
        return 0.0 if math.isnan(arguments[0]) else float(bisect_right(instruction.table, arguments[0]))
    if instruction.operation == "element":
        return _element(instruction, *arguments)
    result = _RULES[instruction.operation](*arguments)
    return wrap(result) if type(result) is int else result


def _element(instruction: ProgramInstruction, condition: float, index: float) -> float:
    """An entry of a table by its index, as Python has it."""
    is_inside = -len(instruction.table) <= index < len(instruction.table)
    if condition and not is_inside:
        raise ConfigError(beyond(instruction))
    entry = instruction.table[int(index)] if is_inside else 0.0
    return int(entry) if instruction.value else entry


def beyond(instruction: ProgramInstruction) -> str:
    """The complaint about an index that leaves its table."""
    return (
        f"line {instruction.line}: an index of {instruction.name} lies outside of its {len(instruction.table)} entries"
    )


def run_loop(loop: LoopInstruction, rounding: StepRounding | None, condition: float, *arguments: float) -> list[float]:
    """The values that a loop carries after its last round."""
    values, rounds = list(arguments), loop.rounds
    assert rounds is not None
    while condition:
        known: list[float] = []
        for step in rounds.instructions:
            match step.operation:
                case "carry":
                    known.append(values[int(step.name)])
                case "integer":
                    known.append(int(step.value))
                case "constant" | "truth" | "size" | "axis":
                    known.append(step.value)
                case _:
                    known.append(step_of(step, [known[argument] for argument in step.arguments], rounding))
            if rounding is not None and rounds.kinds[len(known) - 1] == "number" and step.operation != "locate":
                known[-1] = rounding.value(known[-1])
        condition, *carried = (known[output] for output in rounds.outputs)
        if condition:
            values[: loop.carried] = carried
    return values[: loop.carried]


def step_of(instruction: ProgramInstruction, arguments: Sequence[Any], rounding: StepRounding | None = None) -> Any:
    """One operation, or a whole loop, whose result is all that it carries."""
    if isinstance(instruction, LoopInstruction):
        return run_loop(instruction, rounding, *arguments)
    return arguments[0][int(instruction.name)] if instruction.operation == "item" else apply(instruction, arguments)


def table_index(position: float, length: int) -> int:
    """The index of the entry at a position: cut off to a whole number and clamped; the first for a NaN."""
    if not position > 0:
        return 0
    return length - 1 if position >= length - 1 else int(position)


def floor(a: float) -> float:
    """The largest whole number that is not above `a`; 0 and never -0."""
    return float(math.floor(a)) if math.isfinite(a) else a


def _divide_down(a: float, b: float) -> float:
    """a // b as Python has it, and as IEEE 754 has it where Python raises; whole numbers by 0 give 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b else 0
    return divide(a, b) if b == 0 or math.isinf(a) else a // b


def _remainder(a: float, b: float) -> float:
    if isinstance(a, int) and isinstance(b, int):
        return a % b if b else 0
    return math.nan if b == 0 or math.isinf(a) else a % b


def scale(a: float, exponent: float) -> float:
    """a times 2 to the power of a whole number."""
    if math.isnan(exponent):
        return math.nan
    try:
        return math.ldexp(a, int(max(min(exponent, 1e6), -1e6)))
    except OverflowError:
        return math.copysign(math.inf, a)


def _exponent(a: float) -> int:
    return math.frexp(a)[1] if math.isfinite(a) else 0


def _narrow(a: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", a))[0])
    except OverflowError:
        return math.copysign(math.inf, a)


_RULES: dict[str, Callable[..., float]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "neg", "abs", "lt", "le", "eq", "ne")},
    **{name: function.reference for name, function in MATH_FUNCTIONS.items()},
    "div": divide,
    "min": lambda a, b: b if b < a else a,
    "max": lambda a, b: b if b > a else a,
    "floor": floor,
    "sqrt": square_root,
    "ldexp": scale,
    "fraction": lambda a: math.frexp(a)[0],
    "exponent": _exponent,
    "copysign": math.copysign,
    "narrow": _narrow,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
    "shl": lambda a, b: a << (b & 63),
    "shr": lambda a, b: a >> (b & 63),
    "number": float,
    "whole": lambda a: int(a) if abs(a) < 2**63 else NOT_WHOLE,
    "floordiv": _divide_down,
    "mod": _remainder,
    "select": lambda condition, a, b: a if condition else b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": lambda a: not a,
}
"""Whole numbers wrap around at 64 bits, which `apply` sees to; a shift counts modulo 64, as processors have it."""
