"""The meaning of each instruction, one number at a time: the slow, obvious reference for the fast executions.

Numbers follow IEEE 754 where Python would raise: 1 / 0 is infinite, the root of -1 is NaN, exp(1000) is infinite.
`min`, `max` and comparisons treat NaN as Python does; `floor` is never -0, as Python's integers never are.
"""

import math
import operator
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from presilicon.base import ConfigError
from presilicon.programs.program import REDUCTIONS, Program, ProgramInstruction, needed_for
from presilicon.programs.rounding import StepRounding


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
                result = float(operands[instruction.name])
            case "constant" | "truth":
                result = instruction.value
            case "integer":
                result = int(instruction.value)
            case "size" | "axis":
                result = instruction.operation == "size"  # the only element
            case _:
                result = apply(instruction, [values[argument] for argument in instruction.arguments])
        is_number = program.kinds[position] == "number" and instruction.operation != "locate"
        values.append(rounding.value(result) if rounding is not None and is_number else result)
    return [float(values[output]) for output in program.outputs]


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
                result = apply(instruction, arguments)
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
        return float(array.numbers[offset])

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
    return _RULES[instruction.operation](*arguments)


def table_index(position: float, length: int) -> int:
    """The index of the entry at a position: cut off to a whole number and clamped; the first for a NaN."""
    if not position > 0:
        return 0
    return length - 1 if position >= length - 1 else int(position)


def divide(a: float, b: float) -> float:
    """a / b as IEEE 754 has it."""
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


def logarithm(a: float) -> float:
    """The natural logarithm as IEEE 754 has it."""
    return math.log(a) if a > 0 else (-math.inf if a == 0 else math.nan)


def exponential(a: float) -> float:
    """e to the power of `a` as IEEE 754 has it."""
    try:
        return math.exp(a)
    except OverflowError:
        return math.inf


def power_of_two(a: float) -> float:
    """2 to the power of a whole number."""
    return math.ldexp(1.0, int(a)) if a < 1024 else math.inf


def square_root(a: float) -> float:
    """The square root as IEEE 754 has it; that of -0 is -0."""
    return math.nan if a < 0 else math.sqrt(a)


def floor(a: float) -> float:
    """The largest whole number that is not above `a`; 0 and never -0."""
    return float(math.floor(a)) if math.isfinite(a) else a


_RULES: dict[str, Callable[..., float]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "neg", "abs", "lt", "le", "eq", "ne")},
    "div": divide,
    "min": lambda a, b: b if b < a else a,
    "max": lambda a, b: b if b > a else a,
    "floor": floor,
    "sqrt": square_root,
    "exp": exponential,
    "exp2": lambda a: exponential(a * math.log(2)) if not float(a).is_integer() else power_of_two(a),
    "log": logarithm,
    "tanh": math.tanh,
    "erf": math.erf,
    "sin": lambda a: math.sin(a) if math.isfinite(a) else math.nan,
    "cos": lambda a: math.cos(a) if math.isfinite(a) else math.nan,
    "number": float,
    "whole": lambda a: int(a) if math.isfinite(a) else -1,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "select": lambda condition, a, b: a if condition else b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": lambda a: not a,
}
