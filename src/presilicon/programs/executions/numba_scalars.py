"""Programs of plain numbers as functions of Python, compiled by Numba, that other compiled code calls."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from presilicon.programs.executions.numba_execution import MOST_INSTRUCTIONS, CodeBlock, LoopWriter, compile_text
from presilicon.programs.language import Argument, Lanes
from presilicon.programs.program import Program, ProgramInstruction
from presilicon.programs.stages import ProgramStage

DEEPEST = 60
"""Branches inside of branches; Python has at most 100."""
_LOGIC = {"and": "{0} & {1}", "or": "{0} | {1}"}
"""Without jumps: what decides about codes is seldom foreseen."""
_SIDES = {"select": {True: 1, False: 2}, "and": {True: 1}, "or": {False: 1}}
"""Which argument is needed where the first one holds, and where it does not."""
_LEAVES = ("axis", "integer", "truth", "size", "constant")
_BOUNDED = ("bitand", "shr", "select", "min", "max", "add", "sub")


class CodeRegion:
    """Instructions that run only where a condition has one outcome, inside of another region."""

    def __init__(self, outer: "CodeRegion | None" = None, condition: int = 0, holds: bool = True) -> None:
        self.outer, self.condition, self.holds = outer, condition, holds
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.members: list[int] = []
        self.inner: dict[tuple[int, bool], CodeRegion] = {}

    def within(self, condition: int, holds: bool) -> "CodeRegion":
        """The region inside of this one where a condition has an outcome."""
        if self.depth == DEEPEST:
            return self
        return self.inner.setdefault((condition, holds), CodeRegion(self, condition, holds))

    def joint(self, other: "CodeRegion") -> "CodeRegion":
        """The innermost region around both."""
        one: CodeRegion = self
        while one is not other:
            if one.depth >= other.depth:
                assert one.outer is not None
                one = one.outer
            else:
                assert other.outer is not None
                other = other.outer
        return one


class ScalarWriter(LoopWriter):
    """Writes a program of plain numbers as a function of them, which other compiled code calls.

    What the source computes in a branch, and nothing else needs, is computed only where that branch is taken.
    """

    def __init__(self, program: Program, arguments: Sequence[Argument]) -> None:
        super().__init__(program, ProgramStage((), program.outputs[0]), set(), frozenset(), "float64")
        self._arguments = arguments
        self._written: set[int] = set()
        self._where: dict[int, CodeRegion] = {}
        self._ranges: dict[int, tuple[float, float]] = {}
        self._checked: set[int] = set()
        """Entries whose index may lie outside of their table, also in loops."""

    def text(self) -> str:
        """A Python file with the function `kernel`."""
        names = [f"x{place}" for place in range(len(self._arguments))]
        read = set(self._program.operands)
        for name, argument in zip(names, self._arguments, strict=True):
            lanes = range(argument.count) if isinstance(argument, Lanes) else ()
            self._top.lines += [f"{name}_{lane} = {name}[{lane}]" for lane in lanes if f"{name}_{lane}" in read]
        self._write(self._regions(), len(self._program.instructions), self._top)
        if self._checked:
            self._top.lines.insert(0, "bad = False")
            self._top.lines.append('if bad: raise IndexError("an index lies outside of its table")')
        self._top.lines.append(f"return {', '.join(map(self._name, self._program.outputs))}")
        return self._file(names)

    def _regions(self) -> CodeRegion:
        """Every value in the innermost region around all that need it, no deeper than its branch in the source."""
        steps, whole, where = self._program.instructions, CodeRegion(), self._where

        def need(register: int, region: CodeRegion) -> None:
            where[register] = where[register].joint(region) if register in where else region

        for output in self._program.outputs:
            need(output, whole)
        for position in range(len(steps) - 1, -1, -1):
            step = steps[position]
            if position not in where or step.operation in _LEAVES:
                continue
            region = where[position]
            while region.depth > step.depth:
                assert region.outer is not None
                region = region.outer
            where[position] = region
            region.members.append(position)
            if step.operation in _SIDES:
                need(step.arguments[0], region)
                for holds, place in _SIDES[step.operation].items():
                    need(step.arguments[place], region.within(step.arguments[0], holds))
            elif step.operation != "read":
                for argument in step.arguments[int(self._is_reached(step, region)) :]:
                    need(argument, region)
        return whole

    def _write(self, region: CodeRegion, end: int, block: CodeBlock) -> None:
        """The values of a region that stand before an end and are not written yet."""
        for position in reversed(region.members):
            if position >= end or position in self._written:
                continue
            self._written.add(position)
            step = self._program.instructions[position]
            sides = _SIDES.get(step.operation, {})
            inner = {holds: region.inner.get((step.arguments[0], holds)) for holds in sides}
            if not any(side and self._has_rest(side, position) for side in inner.values()):
                self._define(position, [block])
                continue
            for holds in (True, False):
                side, branch = inner.get(holds), CodeBlock()
                branch.head = f"if {self._name(step.arguments[0])}:" if holds else "else:"
                if side is not None:
                    self._write(side, position, branch)
                value = self._name(step.arguments[sides[holds]]) if holds in sides else str(holds)
                branch.lines.append(f"v{position} = {value}")
                block.lines.append(branch)

    def _has_rest(self, region: CodeRegion, end: int) -> bool:
        return any(position < end and position not in self._written for position in region.members)

    def _inner(self, rounds: Program) -> LoopWriter:
        writer = ScalarWriter(rounds, ())
        writer._checked = self._checked
        return writer

    def _expression(self, register: int, instruction: ProgramInstruction, here: Sequence[CodeBlock]) -> str:
        if instruction.operation == "element":
            return self._entry(register, instruction, self._table(register, instruction), here)
        if instruction.operation in _LOGIC:
            return _LOGIC[instruction.operation].format(*map(self._name, instruction.arguments))
        return super()._expression(register, instruction, here)

    def _read(self, register: int, instruction: ProgramInstruction, arguments: list[str], block: CodeBlock) -> str:
        return instruction.name

    def _entry(self, register: int, instruction: ProgramInstruction, table: str, here: Sequence[CodeBlock]) -> str:
        """An entry by its index. One that lies outside sets the flag `bad`, where it is needed, and reads the first."""
        condition, index = instruction.arguments
        needed = "" if self._is_reached(instruction, self._where.get(register)) else f"{self._name(condition)} and "
        place, length = self._name(index), len(instruction.table)
        low, high = self._range(index)
        if low < 0:
            here[-1].lines.append(f"p{register} = {place} + {length} if {place} < 0 else {place}")
            place = f"p{register}"
        if low >= -length and high < length:
            return f"{table}[np.uint64({place})]"
        self._checked.add(register)
        here[-1].lines.append(f"in{register} = np.uint64({place}) < np.uint64({length})")
        here[-1].lines.append(f"bad |= {needed}not in{register}")
        return f"{table}[np.uint64({place}) if in{register} else np.uint64(0)]"

    def _is_reached(self, step: ProgramInstruction, region: CodeRegion | None) -> bool:
        """Whether the condition under which an entry is needed holds in a region anyway."""
        if step.operation != "element":
            return False
        known = set()
        while region is not None:
            known.add((region.condition, region.holds))
            region = region.outer
        steps = self._program.instructions
        return all(
            (part, True) in known or (steps[part].operation == "not" and (steps[part].arguments[0], False) in known)
            for part in self._parts(step.arguments[0])
        )

    def _range(self, register: int) -> tuple[float, float]:
        """The least and the greatest value of a whole number, as far as its operations tell."""
        if register not in self._ranges:
            step = self._program.instructions[register]
            is_known = step.operation in _BOUNDED and self._program.kinds[register] == "integer"
            ends = [self._range(at) for at in step.arguments] if is_known else []
            found = (-inf, inf)
            match step.operation if is_known or step.operation == "integer" else None:
                case "integer":
                    found = (int(step.value),) * 2
                case "bitand":
                    limits = [high for low, high in ends if low >= 0]
                    found = (0, min(limits)) if limits else found
                case "shr" if ends[0][0] >= 0:
                    found = (0, ends[0][1])
                case "select":
                    found = min(ends[1][0], ends[2][0]), max(ends[1][1], ends[2][1])
                case "min" | "max":
                    both = min if step.operation == "min" else max
                    found = both(ends[0][0], ends[1][0]), both(ends[0][1], ends[1][1])
                case "add":
                    found = ends[0][0] + ends[1][0], ends[0][1] + ends[1][1]
                case "sub":
                    found = ends[0][0] - ends[1][1], ends[0][1] - ends[1][0]
            self._ranges[register] = found if found[0] > -(2**62) and found[1] < 2**62 else (-inf, inf)
        return self._ranges[register]


def numba_function(program: Program, arguments: Sequence[Argument]) -> Callable[..., Any]:
    """A program of plain numbers as a compiled function of these arguments: a number, or a tuple of several.

    Numbers are float64, whole numbers have 64 bits. An index outside of a table is an `IndexError`.
    """
    if len(program.instructions) > MOST_INSTRUCTIONS:
        raise NotImplementedError(f"{len(program.instructions)} instructions")
    return compile_text(ScalarWriter(program, arguments).text())
