"""Programs: a function of the language as a graph of pure operations on numbers, whole numbers and conditions.

A value depends on the index variables (`axis`) that lead to it. A reduction binds one of them; the rest belong to the
result. Nothing is ordered but arguments before their use, so every execution is free to choose its loops.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Literal, get_args

from presilicon.base import ConfigError
from presilicon.programs.functions import Mathematics

_Leaf = Literal["constant", "integer", "truth", "size", "axis", "read", "carry"]
_Arithmetic = Literal["add", "sub", "mul", "div", "neg", "abs", "min", "max", "floor", "sqrt"]
_Parts = Literal["ldexp", "fraction", "exponent", "copysign", "narrow"]
_Bits = Literal["bitand", "bitor", "bitxor", "shl", "shr"]
_Table = Literal["lookup", "locate", "element"]
_Loop = Literal["loop", "item"]
_Condition = Literal["lt", "le", "eq", "ne", "and", "or", "not"]
_Whole = Literal["number", "whole", "floordiv", "mod"]
_Reduction = Literal["sum", "prod", "greatest", "least", "argmax", "argmin"]
Operation = Literal[
    _Leaf, _Arithmetic, Mathematics, _Parts, _Bits, _Table, "select", _Condition, _Whole, _Reduction, _Loop
]
Kind = Literal["number", "integer", "condition"]
CONDITIONS = frozenset(["truth", *get_args(_Condition)])
"""The operations whose result is true or false."""
REDUCTIONS: dict[str, float] = {
    "sum": 0.0,
    "prod": 1.0,
    "greatest": float("-inf"),
    "least": float("inf"),
    "argmax": 0.0,
    "argmin": 0.0,
}
"""Operations over all values of an index variable, and their result where there are none. Their arguments are the
value and the variable.

An extreme is that of Python's `max` and `min`: a NaN counts only where it comes first. With the value 1 it is that of a
loop that compares with what it has, where a NaN never counts."""
ERROR = "0error"
"""The name of the gradient of the result among the operands of a backward pass; no operand can have it."""
_INTEGERS = frozenset(["integer", "size", "axis", "whole", "exponent", "argmax", "argmin", "loop", *get_args(_Bits)])
_FLAGGED = frozenset(["read", "element", "carry", "item"])
"""Operations whose result is a whole number where their value is 1."""
_INHERITED = frozenset(
    ["add", "sub", "mul", "neg", "abs", "min", "max", "floordiv", "mod", "sum", "prod", "greatest", "least"]
)

LARGEST = 20_000
"""The most instructions of a program; nested branches and unrolled loops can multiply them."""


@dataclass(frozen=True, slots=True)
class ProgramInstruction:
    """One operation on the results of earlier ones."""

    operation: Operation
    arguments: tuple[int, ...] = ()
    """Positions of earlier instructions. An `axis` has its extent, a `read` the condition under which it is made and
    then its indices, a reduction the value and its variable, an `element` the condition under which it is read and its
    index, a `loop` the condition under which it runs, what it carries, and what its rounds use besides."""
    value: float = 0.0
    """The number of a constant (whole ones beyond 2^53 are Python integers); 1 or 0 for a truth; 1 for a read, table or
    carried value that is a whole number."""
    table: tuple[float, ...] = ()
    """The numbers of a `lookup` by position, which is cut off to a whole number and kept inside (a NaN reads the
    first); or by its index for an `element` (a negative one counts from the end, one outside is an error); or the
    rising bounds of a `locate`, which counts those that are not above its argument."""
    name: str = ""
    """Of an operand that is read, a size, or an index variable; the place of an `item` in what its loop carries."""
    line: int = field(default=0, compare=False, repr=False)
    """Where in the source a `read` is written."""
    depth: int = field(default=0, compare=False, repr=False)
    """The number of branches of the source inside of which it is written."""


@dataclass(frozen=True, slots=True)
class LoopInstruction(ProgramInstruction):
    """A loop whose number of rounds depends on data. An `item` is what it carries in one place after the last round."""

    rounds: "Program | None" = None
    """A round, as a program of the values that the loop carries and uses: `carry` instructions named by their place
    among the arguments. Its first result is whether the round is made, the others are what is carried on."""

    @property
    def carried(self) -> int:
        """The number of values that rounds hand on."""
        assert self.rounds is not None
        return len(self.rounds.results) - 1


@dataclass(frozen=True)
class ProgramResult:
    """A tensor that a program computes."""

    target: str
    """The operand whose gradient it is; empty for the function's own result."""
    axes: tuple[int, ...]
    """The index variables over which it is computed."""
    value: int
    indices: tuple[int, ...] | None = None
    """The indices of the element that each value is added to; None: the variables themselves, each element once."""
    condition: int | None = None
    """Under which it is added."""


@dataclass(frozen=True, eq=False)
class Program:
    """Instructions in order, and the results."""

    instructions: tuple[ProgramInstruction, ...]
    results: tuple[ProgramResult, ...]

    @property
    def outputs(self) -> tuple[int, ...]:
        """The positions of the results."""
        return tuple(result.value for result in self.results)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """Number, integer or condition, by instruction."""
        kinds: list[Kind] = []
        for instruction in self.instructions:
            kinds.append(kind_of(instruction, kinds))
        return tuple(kinds)

    @cached_property
    def free(self) -> tuple[frozenset[int], ...]:
        """The index variables that each value depends on."""
        free: list[frozenset[int]] = []
        for position, instruction in enumerate(self.instructions):
            free.append(free_of(position, instruction, free))
        return tuple(free)

    @cached_property
    def has_reductions(self) -> bool:
        """Whether it has a sum, a product or an extreme over an index variable."""
        return any(step.operation in REDUCTIONS for step in self.instructions)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The operands that it reads."""
        return tuple(dict.fromkeys(step.name for step in self.instructions if step.operation == "read"))

    def splice(self, builder: "Builder", arguments: Mapping[str, int]) -> list[int]:
        """The results of this program of plain numbers, as a part of another one."""
        registers: list[int] = []
        for instruction in self.instructions:
            renumbered = [registers[argument] for argument in instruction.arguments]
            if instruction.operation == "read":
                registers.append(arguments[instruction.name])
            elif instruction.operation == "axis" and instruction.name != "_":  # another loop than those around it
                registers.append(builder.variable(instruction.name, renumbered[0]))
            else:
                registers.append(builder.again(instruction, renumbered))
        return [registers[output] for output in self.outputs]


def kind_of(instruction: ProgramInstruction, kinds: "list[Kind]") -> Kind:
    """The kind of an instruction's result, from those of the instructions before it."""
    operation, arguments = instruction.operation, instruction.arguments
    if operation in CONDITIONS:
        return "condition"
    if operation in _FLAGGED:
        return "integer" if instruction.value else "number"
    if operation in _INHERITED:
        return kinds[arguments[0]]
    if operation == "select":
        return kinds[arguments[1]]
    return "integer" if operation in _INTEGERS else "number"


def free_of(position: int, instruction: ProgramInstruction, free: "list[frozenset[int]]") -> frozenset[int]:
    """The index variables of an instruction, from those of the instructions before it."""
    if instruction.operation == "axis":
        return frozenset([position])
    joint = frozenset[int]().union(*(free[argument] for argument in instruction.arguments))
    return joint - {instruction.arguments[1]} if instruction.operation in REDUCTIONS else joint


def needed_by(
    instructions: Sequence[ProgramInstruction],
    registers: Iterable[int],
    is_end: Callable[[int], bool] = lambda position: False,
) -> list[int]:
    """The values in some registers and all that they are computed from, in order; what an end needs is left out."""
    needed = set(registers)
    for position in range(max(needed, default=-1), -1, -1):
        if position in needed and not is_end(position):
            needed.update(instructions[position].arguments)
    return sorted(needed)


@lru_cache(maxsize=8192)
def needed_for(program: Program, register: int) -> tuple[int, ...]:
    """The instructions that a value needs, in order, without those inside its reductions."""
    steps = program.instructions
    return tuple(needed_by(steps, [register], lambda position: steps[position].operation in (*REDUCTIONS, "axis")))


class Builder:
    """Builds a program; equal instructions are shared, and operations on constants are computed at once."""

    def __init__(self, sizes: Mapping[str, int] | None = None, *, is_exact: bool = False) -> None:
        self.is_exact = is_exact
        """Whether the program is that of a function on codes: sums are added in their order, an index outside of a
        table is an error, and results keep their kinds."""
        self.instructions: list[ProgramInstruction] = []
        self.kinds: list[Kind] = []
        self.free: list[frozenset[int]] = []
        self.sizes = sizes
        """Sizes of the axes, where loops have to be written out; None while they are open."""
        self._registers: dict[object, int] = {}
        self._fresh = 0
        self._path: int | None = None
        self.paths: list[int] = []
        """The conditions under which the statements around the present one run."""

    @property
    def path(self) -> int:
        """The condition under which the present statement runs."""
        if self._path is None:
            self._path = self.truth(True)
        return self._path

    @path.setter
    def path(self, condition: int) -> None:
        self._path = condition

    def input(self, name: str = "x", kind: Kind = "number") -> int:
        """An argument of a function of plain numbers."""
        where = self.truth(True), self.axis("_", self.size("_"))
        return self.emit("read", *where, name=name, value=float(kind == "integer"))

    def constant(self, value: float) -> int:
        """A number."""
        return self._append(ProgramInstruction("constant", value=float(value)))

    def integer(self, value: int) -> int:
        """A whole number."""
        wrapped = wrap(value)
        return self._append(ProgramInstruction("integer", value=wrapped if abs(wrapped) > 2**53 else float(wrapped)))

    def truth(self, value: bool) -> int:
        """A condition that is known."""
        return self._append(ProgramInstruction("truth", value=float(value)))

    def size(self, name: str) -> int:
        """The size of a named axis."""
        if self.sizes is not None and name in self.sizes:
            return self.integer(self.sizes[name])
        return self._append(ProgramInstruction("size", name=name))

    def axis(self, name: str, extent: int) -> int:
        """The index variable of that name."""
        return self._append(ProgramInstruction("axis", (extent,), name=name))

    def variable(self, name: str, extent: int) -> int:
        """A new index variable."""
        self._fresh += 1
        return self.axis(f"{name}.{self._fresh}", extent)

    def number(self, register: int) -> int:
        """A whole number, or a condition as 1 or 0, as a number."""
        if self.kinds[register] == "number":
            return register
        return self.emit("number", self.whole(register))

    def whole(self, register: int) -> int:
        """A condition as the whole number 1 or 0; anything else as it is."""
        if self.kinds[register] != "condition":
            return register
        return self.emit("select", register, self.integer(1), self.integer(0))

    def loop(self, condition: int, arguments: Sequence[int], rounds: Program) -> list[int]:
        """The values carried by a loop after its last round: its first arguments, as many as its rounds hand on."""
        depth = len(self.paths)
        loop = self._append(LoopInstruction("loop", (condition, *arguments), depth=depth, rounds=rounds))
        kinds = [rounds.kinds[output] for output in rounds.outputs[1:]]
        return [
            self.emit("item", loop, value=float(kind == "integer"), name=str(place)) for place, kind in enumerate(kinds)
        ]

    def again(self, instruction: ProgramInstruction, arguments: Iterable[int]) -> int:
        """An instruction with other arguments."""
        if instruction.operation in ("constant", "integer", "truth", "size", "carry", "axis", "loop"):
            return self._append(replace(instruction, arguments=tuple(arguments)))
        return self.emit(
            instruction.operation, *arguments, value=instruction.value, table=instruction.table,
            name=instruction.name, line=instruction.line,
        )  # fmt: skip

    def emit(
        self,
        operation: Operation,
        *arguments: int,
        value: float = 0.0,
        table: tuple[float, ...] = (),
        name: str = "",
        line: int = 0,
    ) -> int:
        """The register of an operation's result; operations on constants are computed at once, in float64.

        Raises:
            ConfigError: the program would have too many instructions.
        """
        operands = [self.instructions[argument] for argument in arguments]
        known = [operand.operation in ("constant", "integer", "truth") for operand in operands]
        simple = self._simplified(operation, arguments, operands)
        if simple is not None:
            return simple
        if arguments and all(known) and operation not in REDUCTIONS and operation != "read":
            from presilicon.programs.reference import apply

            instruction = ProgramInstruction(operation, arguments, value, table)
            values = [int(step.value) if step.operation == "integer" else step.value for step in operands]
            result = apply(instruction, values)
            kind = kind_of(instruction, self.kinds)
            if kind == "condition":
                return self.truth(bool(result))
            return self.integer(int(result)) if kind == "integer" else self.constant(result)
        return self._append(ProgramInstruction(operation, arguments, value, table, name, line, len(self.paths)))

    def select(self, condition: int, a: int, b: int) -> int:
        """One of two values of a kind that both have: numbers, whole numbers or conditions."""
        if self.kinds[a] == self.kinds[b] == "condition":
            return self.emit("or", self.emit("and", condition, a), self.emit("and", self.emit("not", condition), b))
        return self.emit("select", condition, *self.alike(a, b))

    def alike(self, a: int, b: int) -> tuple[int, int]:
        """Two values as whole numbers if both are, and else as numbers."""
        a, b = self.whole(a), self.whole(b)
        is_whole = self.kinds[a] == self.kinds[b] == "integer"
        return (a, b) if is_whole else (self.number(a), self.number(b))

    def _simplified(
        self, operation: Operation, arguments: tuple[int, ...], operands: list[ProgramInstruction]
    ) -> int | None:
        """An equal value that is there already, or None."""
        if operation == "select":
            condition = operands[0]
            if condition.operation == "truth":
                return arguments[1] if condition.value else arguments[2]
            if arguments[1] == arguments[2]:
                return arguments[1]
        elif operation == "mul" and 1.0 in (
            constant := [operand.value if operand.operation in ("constant", "integer") else 0.0 for operand in operands]
        ):
            return arguments[1 - constant.index(1.0)]
        elif operation in ("add", "sub") and self.kinds[arguments[0]] == "integer":
            # Not for numbers: -0.0 + 0.0 is 0.0.
            if operands[1].operation == "integer" and operands[1].value == 0:
                return arguments[0]
            if operation == "add" and operands[0].operation == "integer" and operands[0].value == 0:
                return arguments[1]
        elif operation in ("and", "or"):
            if arguments[0] == arguments[1]:
                return arguments[0]
            for one, other in (arguments, reversed(arguments)):
                if self.instructions[one].operation == "truth":
                    return other if bool(self.instructions[one].value) == (operation == "and") else one
        elif operation == "whole" and self.kinds[arguments[0]] == "integer":
            return arguments[0]
        return None

    def power(self, base: int, exponent: int) -> int:
        """`base ** exponent` by repeated squaring, as hardware does it."""
        one = self.integer(1) if self.kinds[base] == "integer" else self.constant(1.0)
        if exponent == 0:
            return one
        if exponent < 0:
            return self.emit("div", self.constant(1.0), self.power(self.number(base), -exponent))
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

    def substitute(self, register: int, changes: Mapping[int, int], avoid: frozenset[int] = frozenset()) -> int:
        """A value with some index variables replaced by other values.

        A reduction keeps its own variable; it gets a new one where it would catch one of the values, or one to `avoid`.
        """
        changed = dict(changes)

        def is_end(position: int) -> bool:
            return position in changes or self.instructions[position].operation in REDUCTIONS

        for position in needed_by(self.instructions, [register], is_end):
            if position in changes:
                continue
            instruction = self.instructions[position]
            if self.free[position].isdisjoint(changes):
                changed[position] = position
            elif instruction.operation in REDUCTIONS:
                body, axis = instruction.arguments
                inner = {key: value for key, value in changes.items() if key in self.free[body] and key != axis}
                if axis in avoid or any(axis in self.free[value] for value in inner.values()):
                    old = self.instructions[axis]
                    spelled = ",".join(f"{key}:{value}" for key, value in sorted(inner.items()))
                    inner[axis] = axis = self.axis(f"{old.name}~{spelled}", old.arguments[0])
                body = self.substitute(body, inner, avoid)
                changed[position] = self.emit(instruction.operation, body, axis, value=instruction.value)
            else:
                changed[position] = self.again(instruction, [changed[argument] for argument in instruction.arguments])
        return changed[register]

    def is_condition(self, register: int) -> bool:
        """Whether a result is true or false rather than a number."""
        return self.kinds[register] == "condition"

    def finish(self, *outputs: int, results: Iterable[ProgramResult] = ()) -> Program:
        """The program with these results, without instructions that they do not need.

        `outputs` are those of a function of plain numbers; `results` have index variables of their own.
        """
        element = (self.axis("_", self.size("_")),) if outputs else ()
        whole = (*(ProgramResult("", element, output) for output in outputs), *results)
        live = needed_by(self.instructions, [register for result in whole for register in _registers(result)])
        renumbered = {old: new for new, old in enumerate(live)}
        instructions = tuple(
            replace(step, arguments=tuple(renumbered[argument] for argument in step.arguments))
            for step in (self.instructions[register] for register in live)
        )
        return Program(instructions, tuple(_renumbered(result, renumbered.__getitem__) for result in whole))

    def has(self, instruction: ProgramInstruction) -> bool:
        """Whether an instruction is part of the program."""
        return _key(instruction) in self._registers

    def _append(self, instruction: ProgramInstruction) -> int:
        key = _key(instruction)
        if key not in self._registers:
            if len(self.instructions) >= LARGEST:
                raise ConfigError(
                    f"a function must have at most {LARGEST} instructions; try fewer branches, or shorter loops"
                )
            position = self._registers[key] = len(self.instructions)
            self.instructions.append(instruction)
            self.kinds.append(kind_of(instruction, self.kinds))
            self.free.append(free_of(position, instruction, self.free))
        return self._registers[key]


def _key(instruction: ProgramInstruction) -> object:
    if instruction.operation == "integer":
        return "integer", int(instruction.value)
    # Bits and not values: 0.0 and -0.0 are equal, and a NaN is not even equal to itself.
    bits = struct.pack(f"{1 + len(instruction.table)}d", instruction.value, *instruction.table)
    rounds = id(instruction.rounds) if isinstance(instruction, LoopInstruction) else None
    return instruction.operation, instruction.arguments, instruction.name, bits, rounds


def wrap(value: int) -> int:
    """A whole number as its last 64 bits have it, in two's complement."""
    return (value + 2**63) % 2**64 - 2**63


def _registers(result: ProgramResult) -> list[int]:
    condition = [] if result.condition is None else [result.condition]
    return [*result.axes, result.value, *(result.indices or ()), *condition]


def _renumbered(result: ProgramResult, number: Callable[[int], int]) -> ProgramResult:
    return ProgramResult(
        result.target,
        tuple(map(number, result.axes)),
        number(result.value),
        None if result.indices is None else tuple(map(number, result.indices)),
        None if result.condition is None else number(result.condition),
    )
