"""Execution of programs on the CPU: a loop nest for each stage, written as Python and compiled by Numba.

A value is computed in the outermost loop in which all of its index variables are known, so what a row shares is
computed once for each row. A sum whose terms lie side by side in memory along the result's last axis runs over that
axis innermost. The code is kept as a file in the user's cache, where Numba keeps the machine code beside it.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from presilicon.base import ConfigError, RunFailedError, split_over_threads
from presilicon.programs.executions.files import module_of
from presilicon.programs.functions import MATH_FUNCTIONS
from presilicon.programs.program import (
    REDUCTIONS,
    LoopInstruction,
    Program,
    ProgramInstruction,
    needed_by,
    needed_for,
)
from presilicon.programs.reference import outside
from presilicon.programs.stages import ProgramStage, extents_of, stages_of, unproven_reads

_NUMPY = {torch.float32: "float32", torch.float64: "float64"}
SHORT = 8
"""Loops with fewer rounds are short."""
MOST_INSTRUCTIONS = 3000
"""Programs that are longer than this take Numba minutes to compile."""


def run_numba(program: Program, operands: Mapping[str, Tensor], sizes: Mapping[str, int]) -> list[Tensor]:
    """The results of a program on float32 or float64 tensors on the CPU, in their own type.

    Results that are added up by index have the shape of the operand that they belong to.

    Raises:
        ConfigError: an index lies outside of its operand.
    """
    dtype = next(iter(operands.values())).dtype
    shapes = {name: tuple(tensor.shape) for name, tensor in operands.items()}
    extents, unproven = extents_of(program, sizes), unproven_reads(program, sizes, shapes)
    arrays = {name: tensor.detach().contiguous().numpy() for name, tensor in operands.items()}
    flags, results = np.zeros(1, np.int64), []
    stored: dict[int, Any] = {}
    short = frozenset(axis for axis, extent in extents.items() if extent < SHORT)
    for stage in compiled_stages(program, unproven, dtype, short):
        shape = tuple(extents[axis] for axis in stage.axes)
        if stage.result is None or stage.result.indices is None:
            out = torch.empty(shape, dtype=torch.float64 if stage.is_integer else dtype)
        else:
            out = torch.zeros(shapes[stage.result.target], dtype=dtype)
        values = [extents[axis] for axis in stage.extents], [sizes[name] for name in stage.sizes]
        inputs = [
            *(arrays[name] for name in stage.operands),
            *(stored[value] for value in stage.stored),
            out.numpy(),
            flags,
        ]
        arguments = (*inputs, *values[0], *values[1])
        if not stage.is_split:
            stage.function(0, shape[0] if shape else 1, *arguments)
        else:
            work = partial(_run_part, stage.function, arguments)
            split_over_threads(work, shape[0], multiple=1 if len(shape) > 1 else 16, weight=max(1, prod(shape[1:])))
        if stage.result is None:
            stored[stage.value] = out.numpy()
        else:
            results.append(out)
    if flags[0]:
        read = program.instructions[int(flags[0]) - 1]
        raise ConfigError(outside(read, shapes[read.name]))
    return results


def _run_part(function: Callable[..., None], arguments: Sequence[Any], start: int, stop: int) -> None:
    function(start, stop, *arguments)


class CompiledStage:
    """The machine code of a stage, and the names of its arguments."""

    def __init__(
        self, program: Program, stage: ProgramStage, writer: "LoopWriter", function: Callable[..., None]
    ) -> None:
        self.axes, self.value, self.result = stage.axes, stage.value, stage.result
        self.is_integer = program.kinds[stage.value] == "integer"
        self.is_split = bool(stage.axes) and (stage.result is None or stage.result.indices is None)
        self.operands, self.stored = tuple(writer.operands), tuple(writer.stored)
        self.extents, self.sizes = tuple(writer.extents), tuple(writer.sizes)
        self.function = function


@lru_cache(maxsize=512)
def compiled_stages(
    program: Program, unproven: frozenset[int], dtype: torch.dtype, short: frozenset[int]
) -> tuple[CompiledStage, ...]:
    """The stages of a program, compiled; `short` loops are not worth running innermost."""
    if len(program.instructions) > MOST_INSTRUCTIONS:
        raise NotImplementedError(f"{len(program.instructions)} instructions")
    stages = _without_hoisted(program, stages_of(program))
    stored = {stage.value for stage in stages if stage.result is None}
    compiled = []
    for stage in stages:
        writer = LoopWriter(program, stage, stored - {stage.value}, unproven, _NUMPY[dtype], short)
        compiled.append(CompiledStage(program, stage, writer, compile_text(writer.text())))
    return tuple(compiled)


def _without_hoisted(program: Program, stages: Sequence[ProgramStage]) -> tuple[ProgramStage, ...]:
    """Stages without those that are computed in the outer loops of all stages that use them."""
    remaining = list(stages)
    for stage in reversed(stages):
        if stage.result is not None:
            continue
        users = [other for other in remaining if other is not stage and _uses(program, other, stage.value)]
        if users and all(other.axes[: len(stage.axes)] == stage.axes for other in users) and len(users) == 1:
            remaining.remove(stage)
    return tuple(remaining)


def _uses(program: Program, stage: ProgramStage, value: int) -> bool:
    needed = {stage.value, *(stage.result.indices or () if stage.result else ())}
    if stage.result is not None and stage.result.condition is not None:
        needed.add(stage.result.condition)
    return value in needed_by(program.instructions, needed)


@lru_cache(maxsize=512)
def compile_text(text: str) -> Callable[..., Any]:
    """The function `kernel` of a Python file, compiled; machine code is kept where the cache can be written."""
    import numba

    from presilicon.programs.executions import numba_functions

    is_cached = True
    try:
        function = module_of(f"{text}\n# {numba_functions.VERSION}\n", "operator").kernel
    except (OSError, RunFailedError):
        space: dict[str, Any] = {}
        exec(compile(text, "<operator>", "exec"), space)
        function, is_cached = space["kernel"], False
    # With the error model of numpy, a division by zero follows IEEE 754 and does not raise.
    options = {"nogil": True, "error_model": "numpy", "cache": is_cached}
    compiled: Callable[..., Any] = numba.njit(**options)(function)
    return compiled


def _place(indices: Iterable[str]) -> str:
    """Unsigned indices: asking whether an index counts from the end would keep loops from vector instructions."""
    return ", ".join(f"np.uint64({index})" for index in indices) or "()"


class CodeBlock:
    """Lines inside one loop."""

    def __init__(self, axis: int | None = None, head: str = "") -> None:
        self.axis, self.head = axis, head
        self.lines: list[str | CodeBlock] = []
        self.defined: set[int] = set()

    def text(self, depth: int) -> list[str]:
        """The loop with everything inside."""
        pad = "    " * depth
        lines = [] if not self.head else [f"{'    ' * (depth - 1)}{self.head}"]
        for line in self.lines or ["pass"]:
            lines += line.text(depth + 1) if isinstance(line, CodeBlock) else [pad + line]
        return lines


class LoopWriter:
    """Writes the loop nest of a stage."""

    def __init__(
        self,
        program: Program,
        stage: ProgramStage,
        stored: set[int],
        unproven: frozenset[int],
        number: str,
        short: frozenset[int] = frozenset(),
    ) -> None:
        self._short = short
        self._program, self._stage, self._unproven, self._number = program, stage, unproven, number
        self._all_stored = stored
        self.operands: dict[str, None] = {}
        self.stored: dict[int, None] = {}
        self.extents: dict[int, None] = {}
        self.sizes: dict[str, None] = {}
        self._globals: dict[str, str] = {}
        self._top = CodeBlock()
        self._known: set[int] = set()
        """Conditions that hold in the loop that is written."""
        self._prefix = ""
        """Before the names of values, in the rounds of a loop of the program."""
        self._inputs: Sequence[str] = ()
        """What those rounds carry and use."""

    def text(self) -> str:
        """A Python file with the function `kernel`."""
        chain = self._chain()
        if chain and self._runs_along(chain):
            self._write_side_by_side(chain)
        else:
            self._write_elements()
        arguments = ["start", "stop", *(f"a_{name}" for name in self.operands), *(f"t{value}" for value in self.stored)]
        arguments += ["out", "flags", *(f"n{axis}" for axis in self.extents), *(f"s_{name}" for name in self.sizes)]
        return self._file(arguments)

    def _file(self, arguments: Sequence[str]) -> str:
        head = ["import math", "import numpy as np", "from presilicon.programs.executions.numba_functions import *"]
        number = [f"number = np.{self._number}", "zero = number(0)", "one = number(1)"]
        constants = [f"{name} = {value}" for name, value in self._globals.items()]
        body = self._top.text(1)
        return "\n".join([*head, *number, *constants, "", f"def kernel({', '.join(arguments)}):", *body, ""])

    def _loop(self, axis: int, is_first: bool = False) -> CodeBlock:
        if is_first:
            return CodeBlock(axis, f"for i{axis} in range(start, stop):")
        self.extents[axis] = None
        return CodeBlock(axis, f"for i{axis} in range(n{axis}):")

    def _write_elements(self) -> None:
        stage = self._stage
        stack = [self._top]
        for place, axis in enumerate(stage.axes):
            stack.append(self._loop(axis, place == 0))
        result = stage.result
        value = self._value(stage.value, stack)
        if result is None or result.indices is None:
            target = _place(f"i{axis}" for axis in stage.axes)
            stack[-1].lines.append(f"out[{target}] = {value}")
        else:
            target = _place([self._value(index, stack) for index in result.indices])
            condition = "True" if result.condition is None else self._value(result.condition, stack)
            stack[-1].lines.append(f"if {condition}: out[{target}] += {value}")
        for outer, inner in itertools.pairwise(stack):
            outer.lines.append(inner)

    def _chain(self) -> list[int]:
        """The nested sums that the stage's value is."""
        chain, register = [], self._stage.value
        is_plain = self._stage.result is None or self._stage.result.indices is None
        while is_plain and self._program.instructions[register].operation == "sum" and register not in self._all_stored:
            chain.append(register)
            register = self._program.instructions[register].arguments[0]
        return chain if self._stage.axes and self._program.kinds[self._stage.value] == "number" else []

    def _runs_along(self, chain: Sequence[int]) -> bool:
        """Whether more reads run along the last axis of the result than along the innermost loop of the sums.

        Never where a term needs a reduction that terms share: it would stand inside of the loops over the terms, where
        its own loop may be one over the same index.
        """
        program, votes = self._program, 0
        summed = {program.instructions[register].arguments[1] for register in chain}
        for position in needed_by(program.instructions, [chain[-1]], self._all_stored.__contains__):
            is_reduction = program.instructions[position].operation in REDUCTIONS and position not in self._all_stored
            if is_reduction and position not in chain and not summed <= program.free[position]:
                return False
        for axis, sign in ((self._stage.axes[-1], 1), (program.instructions[chain[-1]].arguments[1], -1)):
            for position in needed_for(program, program.instructions[chain[-1]].arguments[0]):
                step = program.instructions[position]
                steps = [axis in program.free[index] for index in step.arguments[1:]]
                if step.operation == "read" and any(steps) and axis not in self._short:
                    votes += sign if steps[-1] else -sign
        return votes > 0

    def _write_side_by_side(self, chain: Sequence[int]) -> None:
        """A sum with the last axis of the result innermost."""
        program, axes = self._program, self._stage.axes
        stack = [self._top]
        for place, axis in enumerate(axes[:-1]):
            stack.append(self._loop(axis, place == 0))
        target = _place(f"i{axis}" for axis in axes)
        cleared = self._loop(axes[-1], len(axes) == 1)
        cleared.lines.append(f"out[{target}] = zero")
        stack[-1].lines.append(cleared)
        for register in chain:
            stack.append(self._loop(program.instructions[register].arguments[1]))
        body, tests = self._unwrapped(program.instructions[chain[-1]].arguments[0])
        first = ("start", "stop") if len(axes) == 1 else ("0", f"n{axes[-1]}")
        self.extents[axes[-1]] = None
        self._bound(axes[-1], tests, first, stack)
        stack.append(CodeBlock(axes[-1], f"for i{axes[-1]} in range(low, high):"))
        rest = [self._value(test, stack) for test in tests if test not in self._known]
        value = self._value(body, stack)
        stack[-1].lines.append(f"{'if ' + ' and '.join(rest) + ': ' if rest else ''}out[{target}] += {value}")
        for outer, inner in itertools.pairwise(stack):
            outer.lines.append(inner)

    def _unwrapped(self, register: int) -> tuple[int, list[int]]:
        """A term of a sum without the conditions under which it counts, and these."""
        program, tests = self._program, list[int]()
        while (step := program.instructions[register]).operation == "select":
            other = program.instructions[step.arguments[2]]
            if other.operation != "constant" or other.value != 0:
                break
            tests += self._parts(step.arguments[0])
            register = step.arguments[1]
        return register, list(dict.fromkeys(tests))

    def _parts(self, condition: int) -> list[int]:
        """The conditions that a condition is made of, all of which must hold."""
        step = self._program.instructions[condition]
        if step.operation == "truth" and step.value:
            return []
        return [part for at in step.arguments for part in self._parts(at)] if step.operation == "and" else [condition]

    def _bound(self, axis: int, tests: Sequence[int], first: tuple[str, str], stack: Sequence[CodeBlock]) -> None:
        """The first and last index for which conditions hold, before the loop over it, as far as they tell."""
        program, block = self._program, stack[-1]
        at_zero = CodeBlock(axis)  # what depends on the index, where that is 0
        at_zero.lines.append(f"i{axis} = 0")
        lines = [f"low, high = {first[0]}, {first[1]}"]
        bounded = []
        for test in tests:
            step = program.instructions[test]
            if axis not in program.free[test]:
                lines.append(f"if not ({self._value(test, stack)}): high = low")
                bounded.append(test)
                continue
            factors = [self._factor(at, axis) for at in step.arguments]
            if step.operation not in ("lt", "le") or None in factors or program.kinds[step.arguments[0]] != "integer":
                continue
            factor = (factors[0] or 0) - (factors[1] or 0)
            if factor == 0:
                continue
            one, other = (self._value(at, [*stack, at_zero]) for at in step.arguments)
            at_zero.lines.append(f"gap{test} = {other} - {one}")
            strict = int(step.operation == "lt")  # factor * index + strict <= gap
            if factor > 0:
                lines.append(f"high = min(high, (gap{test} - {strict}) // {factor} + 1)")
            else:
                lines.append(f"low = max(low, -((gap{test} - {strict}) // {-factor}))")
            bounded.append(test)
        block.lines += [*at_zero.lines, *lines]
        self._known = set(bounded)

    def _factor(self, register: int, axis: int) -> int | None:
        """The known factor of an index variable in a whole number; None if it is not linear in it."""
        program, step = self._program, self._program.instructions[register]
        if axis not in program.free[register]:
            return 0
        if step.operation == "axis":
            return 1
        factors = [self._factor(at, axis) for at in step.arguments]
        if step.operation in ("add", "sub", "neg") and None not in factors:
            signs = {"add": (1, 1), "sub": (1, -1), "neg": (-1,)}[step.operation]
            return sum(sign * (factor or 0) for sign, factor in zip(signs, factors, strict=True))
        if step.operation == "mul":
            for one, other in (step.arguments, step.arguments[::-1]):
                scale, factor = program.instructions[one], self._factor(other, axis)
                if scale.operation == "integer" and factor is not None:
                    return int(scale.value) * factor
        return None

    def _value(self, register: int, stack: Sequence[CodeBlock]) -> str:
        """The name of a value, after the lines that compute it."""
        for position in needed_for(self._program, register):
            self._define(position, stack)
        return self._name(register)

    def _name(self, register: int) -> str:
        instruction = self._program.instructions[register]
        match instruction.operation:
            case "axis":
                return f"i{register}"
            case "integer":
                return str(int(instruction.value))
            case "truth":
                return str(bool(instruction.value))
            case "size":
                self.sizes[instruction.name] = None
                return f"s_{instruction.name}"
            case "constant":
                name = f"{self._prefix}c{register}"
                self._globals[name] = f'number(float.fromhex("{instruction.value.hex()}"))'
                return name
            case "carry":
                return self._inputs[int(instruction.name)]
        return f"{self._prefix}v{register}"

    def _define(self, register: int, stack: Sequence[CodeBlock]) -> None:
        instruction, free = self._program.instructions[register], self._program.free[register]
        if instruction.operation in ("axis", "integer", "truth", "size", "constant", "carry"):
            return
        level = max((place for place, block in enumerate(stack) if block.axis in free), default=0)
        here = stack[: level + 1]
        if any(register in block.defined for block in here):
            return
        block = here[-1]
        if register in self._all_stored:
            self.stored[register] = None
            block.lines.append(f"v{register} = {self._load(register, here)}")
        elif instruction.operation in REDUCTIONS:
            self._reduce(register, instruction, here)
        elif isinstance(instruction, LoopInstruction):
            self._repeat(register, instruction, here)
        else:
            value = self._expression(register, instruction, here)
            block.lines.append(f"{self._prefix}v{register} = {value}")
        block.defined.add(register)

    def _repeat(self, register: int, loop: LoopInstruction, here: Sequence[CodeBlock]) -> None:
        """A loop of the program."""
        condition, *arguments = [self._name(argument) for argument in loop.arguments]
        names = [f"{self._prefix}l{register}_{place}" for place in range(loop.carried)]
        repeat = CodeBlock(None, f"while {condition}:")
        here[-1].lines += [f"{name} = {start}" for name, start in zip(names, arguments, strict=False)]
        going, carried = self._round(register, loop, [*names, *arguments[len(names) :]], repeat)
        repeat.lines.append(f"if not {going}: break")
        repeat.lines.append(f"{', '.join(names)}, = {', '.join(carried())},")
        here[-1].lines.append(repeat)

    def _round(
        self, register: int, loop: LoopInstruction, inputs: Sequence[str], block: CodeBlock
    ) -> tuple[str, Callable[[], list[str]]]:
        """Whether a round is made, and what writes the lines of what it carries on."""
        rounds = loop.rounds
        assert rounds is not None
        writer = self._inner(rounds)
        writer._prefix, writer._inputs, writer._globals = f"{self._prefix}r{register}_", inputs, self._globals
        going = writer._value(rounds.outputs[0], [block])
        return going, lambda: [writer._value(output, [block]) for output in rounds.outputs[1:]]

    def _inner(self, rounds: Program) -> "LoopWriter":
        return LoopWriter(rounds, ProgramStage((), rounds.outputs[0]), set(), frozenset(), self._number)

    def _load(self, register: int, here: Sequence[CodeBlock]) -> str:
        """A stored reduction."""
        axes = _place(f"i{axis}" for axis in sorted(self._program.free[register]))
        cast = "int" if self._program.kinds[register] == "integer" else ""
        return f"{cast}(t{register}[{axes}])"

    def _reduce(self, register: int, instruction: ProgramInstruction, here: Sequence[CodeBlock]) -> None:
        body, axis = instruction.arguments
        assert axis not in [block.axis for block in here], "a loop inside of a loop over the same index"
        loop = self._loop(axis)
        twin = self._twin(register, instruction)
        value = self._value(body, [*here, loop])
        block, is_whole = here[-1], self._program.kinds[register] == "integer"
        after: list[CodeBlock] = []
        start = {"sum": "zero", "prod": "one"}.get(instruction.operation, "zero")
        start = {"sum": "0", "prod": "1"}.get(instruction.operation, "0") if is_whole else start
        match instruction.operation:
            case "sum" | "prod":
                block.lines.append(f"v{register} = {start}")
                is_sum = instruction.operation == "sum"
                loop.lines.append(
                    f"v{register} = " + (f"plus(v{register}, {value})" if is_sum else f"v{register} * {value}")
                )
            case "greatest" | "least" if twin is None:
                nothing = "-number(np.inf)" if instruction.operation == "greatest" else "number(np.inf)"
                block.lines.append(f"v{register} = {nothing}")
                function = "greater" if instruction.operation == "greatest" else "smaller"
                number = value if is_whole else f"{value} if {value} == {value} else {nothing}"
                loop.lines.append(f"v{register} = {function}(v{register}, {number})")
                if not (is_whole or instruction.value):
                    after = self._where_first_is_nan(register, body, axis, here)
            case _:
                sign = ">" if instruction.operation in ("greatest", "argmax") else "<"
                best, place = (twin, register) if instruction.operation.startswith("arg") else (register, twin)
                names = [f"b{register}" if best is None else f"v{best}"]
                nothing = "-number(np.inf)" if sign == ">" else "number(np.inf)"
                block.lines.append(f"{names[0]} = {nothing}")
                found = f"{names[0]} = {value}"
                if place is not None:
                    block.lines.append(f"v{place} = 0")
                    found += f"; v{place} = i{axis}"
                is_first = "" if instruction.value else f"i{axis} == 0 or "
                loop.lines.append(f"if {is_first}{value} {sign} {names[0]}: {found}")
                block.defined.update(twin for twin in (best, place) if twin is not None)
        block.lines += [loop, *after]

    def _where_first_is_nan(self, register: int, body: int, axis: int, here: Sequence[CodeBlock]) -> list[CodeBlock]:
        """The lines that make an extreme NaN where the first value is."""
        first = CodeBlock(axis, f"if n{axis} > 0:")
        first.lines.append(f"i{axis} = 0")
        value = self._value(body, [*here, first])
        first.lines.append(f"if {value} != {value}: v{register} = {value}")
        return [first]

    def _twin(self, register: int, instruction: ProgramInstruction) -> int | None:
        """The extreme of an index, or the index of an extreme, of the same values."""
        others = {"greatest": "argmax", "argmax": "greatest", "least": "argmin", "argmin": "least"}
        wanted = others.get(instruction.operation)
        for position, other in enumerate(self._program.instructions):
            same = (other.arguments, other.value) == (instruction.arguments, instruction.value)
            if same and other.operation == wanted:
                return None if position in self._all_stored else position
        return None

    def _expression(self, register: int, instruction: ProgramInstruction, here: Sequence[CodeBlock]) -> str:
        """An instruction as Python."""
        arguments = [self._name(argument) for argument in instruction.arguments]
        match instruction.operation:
            case "read":
                return self._read(register, instruction, arguments, here[-1])
            case "lookup" | "locate":
                table = self._table(register, instruction)
                if instruction.operation == "locate":
                    return f"number(locate({table}, {arguments[0]}))"
                # Written so that a NaN, which is not above 0, reads the first entry.
                x, last = arguments[0], len(instruction.table) - 1
                return f"{table}[({last} if {x} >= {last} else int({x})) if {x} > 0 else 0]"
            case "item":
                loop = instruction.arguments[0]
                return f"{self._prefix}l{loop}_{instruction.name}"
            case name if name in MATH_FUNCTIONS:
                function = MATH_FUNCTIONS[name]
                short = function.numba32 if self._number == "float32" else None
                return (short or function.numba).format(*arguments)
        return _TEXTS[instruction.operation].format(*arguments)

    def _table(self, register: int, instruction: ProgramInstruction) -> str:
        """The name of a table."""
        name, is_whole = f"{self._prefix}table{register}", instruction.operation == "element" and instruction.value
        entries = [str(entry) if is_whole else f'float.fromhex("{entry.hex()}")' for entry in instruction.table]
        dtype = "int64" if is_whole else self._number
        self._globals[name] = f"np.array([{', '.join(entries)}], dtype=np.{dtype})"
        return name

    def _read(self, register: int, instruction: ProgramInstruction, arguments: list[str], block: CodeBlock) -> str:
        self.operands[instruction.name] = None
        condition, *indices = arguments
        if self._known.issuperset(self._parts(instruction.arguments[0])):
            condition = "True"
        element = f"a_{instruction.name}[{_place(indices)}]"
        element = f"whole({element})" if instruction.value else element
        if register in self._unproven:
            name = f"a_{instruction.name}"
            inside = (
                " and ".join(f"0 <= {index} < {name}.shape[{axis}]" for axis, index in enumerate(indices)) or "True"
            )
            block.lines += [
                f"ok{register} = {inside}",
                f"if {condition} and not ok{register}: flags[0] = {register + 1}",
            ]
            condition = f"{condition} and ok{register}"
        return element if condition == "True" else f"{element} if {condition} else zero"


_TEXTS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "abs": "abs({0})",
    "min": "{1} if {1} < {0} else {0}",
    "max": "{1} if {1} > {0} else {0}",
    "floor": "np.floor({0}) + zero",
    "sqrt": "np.sqrt({0})",
    "ldexp": "number(scale({0}, {1}))",
    "fraction": "number(fraction({0}))",
    "exponent": "exponent({0})",
    "copysign": "number(with_sign({0}, {1}))",
    "narrow": "number(np.float32({0}))",
    "bitand": "{0} & {1}",
    "bitor": "{0} | {1}",
    "bitxor": "{0} ^ {1}",
    "shl": "{0} << {1}",
    "shr": "{0} >> {1}",
    "select": "{1} if {0} else {2}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "and": "{0} and {1}",
    "or": "{0} or {1}",
    "not": "not {0}",
    "number": "number({0})",
    "whole": "whole({0})",
    "floordiv": "{0} // {1}",
    "mod": "{0} % {1}",
}
