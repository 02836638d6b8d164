"""Derivatives by reverse mode: from a program, the program of the gradients of its operands.

Each piece is differentiated as it stands: at a breakpoint the derivative is that of the branch which the source takes
there. Steps (`floor`, tables, whole numbers) have derivative 0, `abs` at 0 has that of the side above, `min`, `max` and
reductions by them that of the first argument which they return.

A value that every element of the result shares collects the errors of all of them: what reaches it is summed over the
index variables that it does not depend on. A read sends its error to the element that it read. Where the indices are
linear in the index variables they are solved for one of these, so that each element of the gradient is a sum of what
it receives, and no two elements compete; where they are not (an index from data), errors are added up by index.
"""

from collections import defaultdict
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import NamedTuple

from presilicon.base import ConfigError
from presilicon.programs.functions import MATH_FUNCTIONS
from presilicon.programs.program import (
    ERROR,
    REDUCTIONS,
    Builder,
    Operation,
    Program,
    ProgramInstruction,
    ProgramResult,
    needed_by,
)


class _Share(NamedTuple):
    """A part of a value's error, and the condition under which it counts.

    The condition is applied at the end, because the derivative of a branch that is not taken may be infinite.
    """

    error: int
    condition: int


def with_slope(program: Program) -> Program:
    """The program of the value and the derivative of a function of one number."""
    builder = Builder()
    registers = _copied(program, builder)
    value = registers[program.outputs[0]]
    reads = _Adjoint(builder).run({value: builder.constant(1.0)})
    slopes = []
    for read, shares in reads.items():
        for share in shares:
            for axis in sorted(builder.free[share] - builder.free[read], reverse=True):
                share = builder.emit("sum", share, axis)
            slopes.append(share)
    slope = slopes[0] if slopes else builder.constant(0.0)
    for other in slopes[1:]:
        slope = builder.emit("add", slope, other)
    return builder.finish(value, slope)


def gradients(program: Program, shapes: Mapping[str, tuple[int | str, ...]]) -> Program:
    """The program of the gradients: it reads the operands and `ERROR`, the gradient of the result.

    `shapes` are the sizes of the operands whose gradients are wanted, by name or number. An operand that the
    result does not depend on, or only in steps, has no result in it.
    """
    builder = Builder()
    registers = _copied(program, builder)
    result = program.results[0]
    axes = [registers[axis] for axis in result.axes]
    error = builder.emit("read", builder.truth(True), *axes, name=ERROR)
    reads = _Adjoint(builder).run({registers[result.value]: error})
    plain: defaultdict[str, list[int]] = defaultdict(list)
    results = []
    for position, shares in reads.items():
        read = builder.instructions[position]
        if read.name not in shapes:
            continue
        indices = read.arguments[1:]
        canonical = _element(builder, read.name, shapes[read.name])
        for share in shares:
            gathered = _gathered(builder, share, indices, canonical, axes)
            if gathered is not None:
                plain[read.name].append(gathered)
            else:
                loops = frozenset[int]().union(builder.free[share], *(builder.free[index] for index in indices))
                results.append(ProgramResult(read.name, tuple(sorted(loops)), share, indices, read.arguments[0]))
    for name, parts in plain.items():
        total = parts[0]
        for part in parts[1:]:
            total = builder.emit("add", total, part)
        results.append(ProgramResult(name, _element(builder, name, shapes[name]), total))
    return builder.finish(results=results)


def _copied(program: Program, builder: Builder) -> list[int]:
    registers: list[int] = []
    for instruction in program.instructions:
        registers.append(builder.again(instruction, [registers[argument] for argument in instruction.arguments]))
    return registers


def _element(builder: Builder, name: str, shape: tuple[int | str, ...]) -> tuple[int, ...]:
    """The index variables of an element of an operand."""
    extents = [builder.size(size) if isinstance(size, str) else builder.integer(size) for size in shape]
    return tuple(builder.axis(f"{name}:{place}", extent) for place, extent in enumerate(extents))


class _Adjoint:
    """Sends errors from results to reads."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self._shares: defaultdict[int, list[_Share]] = defaultdict(list)
        self._queue: list[int] = []

    def run(self, errors: Mapping[int, int]) -> dict[int, list[int]]:
        """The errors that reach each read of an operand."""
        always = self.builder.truth(True)
        for register, error in errors.items():
            self.send(register, error, always)
        reads: dict[int, list[int]] = {}
        while self._queue:
            register = -heappop(self._queue)
            shares = self._shares.pop(register, [])
            if not shares:
                continue
            instruction = self.builder.instructions[register]
            if instruction.operation == "read":
                # Each share is solved for the element by itself: they may come by different index variables.
                reads[register] = [self._masked(share) for share in shares]
            else:
                self.spread(register, instruction, *self._joined(shares))
        return reads

    def send(self, register: int, error: int, condition: int, context: frozenset[int] = frozenset()) -> None:
        """Add to the error of a value, summed over the index variables that it does not depend on.

        `context` are the index variables for each of which the value is used: where neither the value nor its error
        depends on one of them, the error counts once for each of its values.
        """
        builder = self.builder
        if builder.kinds[register] != "number" or builder.instructions[register].operation == "constant":
            return
        for axis in sorted(context - builder.free[register] - builder.free[condition], reverse=True):
            if axis not in builder.free[error]:  # the extent of an inner loop may depend on an outer one
                extent = builder.number(builder.instructions[axis].arguments[0])
                error = builder.emit("mul", error, extent)
        extra = sorted((builder.free[error] | builder.free[condition]) - builder.free[register])
        if builder.instructions[register].operation != "read" and extra:
            error, condition = self._masked(_Share(error, condition)), builder.truth(True)
            for axis in reversed(extra):
                error = builder.emit("sum", error, axis)
        if register not in self._shares:
            heappush(self._queue, -register)
        self._shares[register].append(_Share(error, condition))

    def _masked(self, share: _Share) -> int:
        return self.builder.emit("select", share.condition, share.error, self.builder.constant(0.0))

    def _joined(self, shares: list[_Share]) -> _Share:
        if len(shares) == 1:
            return shares[0]
        emit = self.builder.emit
        error, condition = self._masked(shares[0]), shares[0].condition
        for share in shares[1:]:
            error, condition = emit("add", error, self._masked(share)), emit("or", condition, share.condition)
        return _Share(error, condition)

    def spread(self, register: int, instruction: ProgramInstruction, error: int, condition: int) -> None:
        """Send the error of an operation to its arguments."""
        builder, emit, at = self.builder, self.builder.emit, instruction.arguments
        context = builder.free[register] | ({at[1]} if instruction.operation in REDUCTIONS else set())

        def send(argument: int, error: int, condition: int) -> None:
            self.send(argument, error, condition, context)

        def times(factor: int) -> int:
            return emit("mul", error, factor)

        def constant(value: float) -> int:
            return builder.constant(value)

        def when(test: int) -> int:
            return emit("and", condition, test)

        match instruction.operation:
            case "add":
                send(at[0], error, condition)
                send(at[1], error, condition)
            case "sub":
                send(at[0], error, condition)
                send(at[1], emit("neg", error), condition)
            case "mul":
                send(at[0], times(at[1]), condition)
                send(at[1], times(at[0]), condition)
            case "div":  # (a / b)' = a' / b - (a / b) b' / b
                send(at[0], emit("div", error, at[1]), condition)
                if builder.instructions[at[1]].operation != "constant":
                    send(at[1], emit("neg", emit("div", times(register), at[1])), condition)
            case "neg":
                send(at[0], emit("neg", error), condition)
            case "abs":
                below = emit("lt", at[0], constant(0.0))
                send(at[0], emit("select", below, emit("neg", error), error), condition)
            case "min" | "max":
                other = emit("lt", *((at[1], at[0]) if instruction.operation == "min" else at))
                send(at[0], error, when(emit("not", other)))
                send(at[1], error, when(other))
            case "select":
                send(at[1], error, when(at[0]))
                send(at[2], error, when(emit("not", at[0])))
            case "sqrt":
                send(at[0], emit("div", error, emit("mul", constant(2.0), register)), condition)
            case "mod":  # a - floor(a / b) b
                send(at[0], error, condition)
                send(at[1], emit("neg", times(emit("floordiv", *at))), condition)
            case "ldexp":
                send(at[0], emit("ldexp", error, at[1]), condition)
            case "fraction":
                send(at[0], emit("ldexp", error, builder.number(emit("neg", emit("exponent", at[0])))), condition)
            case "copysign":
                one = constant(1.0)
                sign = emit("mul", emit("copysign", one, at[0]), emit("copysign", one, at[1]))
                send(at[0], times(sign), condition)
            case "narrow":
                send(at[0], error, condition)
            case "item":
                raise ConfigError(
                    "a loop whose number of rounds depends on data has no derivative; allowed: custom_backward, or "
                    'backward="none"; try: for k in range(n) with a constant n, and break'
                )
            case name if name in MATH_FUNCTIONS:
                send(at[0], MATH_FUNCTIONS[name].error(builder, error, at[0], register), condition)
            case "sum":
                send(at[0], error, condition)
            case "greatest" | "least":
                place: Operation = "argmax" if instruction.operation == "greatest" else "argmin"
                first = emit(place, *at, value=instruction.value)
                send(at[0], error, when(emit("eq", at[1], first)))
            case "prod":
                send(at[0], times(self._others(register, *at)), condition)

    def _others(self, register: int, body: int, axis: int) -> int:
        """The product of all other factors: of those that are not zero, where this one is the only zero."""
        builder, emit = self.builder, self.builder.emit
        zero, one = builder.constant(0.0), builder.constant(1.0)
        is_zero = emit("eq", body, zero)
        zeros = emit("sum", emit("select", is_zero, one, zero), axis)
        rest = emit("prod", emit("select", is_zero, one, body), axis)
        only = emit("select", emit("eq", zeros, one), rest, zero)
        return emit("select", is_zero, only, emit("div", register, emit("select", is_zero, one, body)))


def _gathered(
    builder: Builder, share: int, indices: tuple[int, ...], element: tuple[int, ...], axes: list[int]
) -> int | None:
    """The error that an element of an operand receives, as a sum; None if the indices cannot be solved for it.

    For every index, one index variable with a known factor is solved for: index = factor * variable + rest, so that
    variable = (element - rest) / factor, where that is a whole number in its range.
    """
    emit = builder.emit
    condition, changes = builder.truth(True), dict[int, int]()
    for index, place in sorted(zip(indices, element, strict=True), key=lambda pair: len(builder.free[pair[0]])):
        terms = _linear(builder, index)
        if terms is None:
            return None
        factors, rest = terms
        choices = [axis for axis, factor in factors.items() if axis not in changes and factor]
        if not choices:
            # All of its variables are taken (a diagonal), or it is fixed: it must equal the element.
            condition = emit("and", condition, emit("eq", builder.substitute(index, changes), place))
            continue
        # The variables of the result have the largest ranges as a rule: those of reductions stay as loops.
        axis = min(choices, key=lambda choice: (abs(factors[choice]) != 1 and choice not in axes, choice not in axes))
        factor = factors[axis]
        difference = emit("sub", place, builder.substitute(rest, changes))
        for other, other_factor in factors.items():
            if other != axis:
                term = emit("mul", builder.integer(other_factor), changes.get(other, other))
                difference = emit("sub", difference, term)
        solved = difference if factor == 1 else emit("floordiv", difference, builder.integer(factor))
        if factor != 1:
            whole = emit("eq", emit("mod", difference, builder.integer(factor)), builder.integer(0))
            condition = emit("and", condition, whole)
        if factors != {axis: 1} or builder.instructions[rest].value or not _same_extent(builder, axis, place):
            extent = builder.instructions[axis].arguments[0]
            inside = emit("and", emit("le", builder.integer(0), solved), emit("lt", solved, extent))
            condition = emit("and", condition, inside)
        changes = {key: builder.substitute(value, {axis: solved}) for key, value in changes.items()}
        changes[axis] = solved
        condition = builder.substitute(condition, {axis: solved})
    solved_for = {value for value in changes.values() if value not in element}
    avoid = builder.free[condition].union(*(builder.free[solved] for solved in solved_for))
    value = _guarded(builder, builder.substitute(share, changes, avoid), condition, solved_for)
    value = emit("select", condition, value, builder.constant(0.0))
    for loop in sorted(builder.free[value] - set(element), reverse=True):
        value = emit("sum", value, loop)
    return value


def _guarded(builder: Builder, value: int, condition: int, solved_for: set[int]) -> int:
    """A value whose reads at solved indices are made only where the condition says that there is a solution."""
    if builder.instructions[condition].operation == "truth" or not solved_for:
        return value
    changes, depends = dict[int, int](), set(solved_for)
    for position in needed_by(builder.instructions, [value]):
        instruction = builder.instructions[position]
        if not depends.isdisjoint(instruction.arguments):
            depends.add(position)
        arguments = [changes[argument] for argument in instruction.arguments]
        if instruction.operation == "read" and position in depends:
            arguments[0] = builder.emit("and", condition, arguments[0])
        same = tuple(arguments) == instruction.arguments
        changes[position] = position if same else builder.again(instruction, arguments)
    return changes[value]


def _same_extent(builder: Builder, one: int, other: int) -> bool:
    return builder.instructions[one].arguments == builder.instructions[other].arguments


def _linear(builder: Builder, index: int) -> tuple[dict[int, int], int] | None:
    """An index as known factors of index variables and the rest without variables; None if it is not linear."""
    instruction = builder.instructions[index]
    at = instruction.arguments
    if not builder.free[index]:
        return {}, index
    if instruction.operation == "axis":
        return {index: 1}, builder.integer(0)
    if instruction.operation in ("add", "sub", "neg"):
        parts = [_linear(builder, argument) for argument in at]
        signs = {"add": (1, 1), "sub": (1, -1), "neg": (-1,)}[instruction.operation]
        factors: dict[int, int] = {}
        rest = builder.integer(0)
        for part, sign in zip(parts, signs, strict=True):
            if part is None:
                return None
            for axis, factor in part[0].items():
                factors[axis] = factors.get(axis, 0) + sign * factor
            rest = builder.emit("add" if sign == 1 else "sub", rest, part[1])
        return factors, rest
    if instruction.operation == "mul":
        for one, other in (at, at[::-1]):
            known = builder.instructions[one]
            part = _linear(builder, other)
            if known.operation == "integer" and part is not None:
                scale = int(known.value)
                return {axis: scale * factor for axis, factor in part[0].items()}, builder.emit("mul", one, part[1])
    return None
