"""The operator language: Python about numbers and elements of tensors, compiled from its source to a program."""

import ast
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from presilicon.base import ConfigError
from presilicon.programs.axes import TensorAxis
from presilicon.programs.program import (
    MATHEMATICS,
    Builder,
    Operation,
    Program,
    ProgramInstruction,
    ProgramResult,
    needed_by,
)
from presilicon.programs.source import ALLOWED, FunctionSource, LanguageError

_PATTERNS = "numbers, numbers | numbers, a name or _, with guards as case _ if x < 1"
LARGEST_EXPONENT = 64

_FUNCTIONS: dict[Any, Operation] = {
    abs: "abs",
    math.fabs: "abs",
    min: "min",
    max: "max",
    math.floor: "floor",
    math.sqrt: "sqrt",
    **{getattr(math, name): name for name in MATHEMATICS},
    int: "whole",
    float: "number",
}
_REDUCTIONS: dict[Any, Operation] = {
    sum: "sum",
    max: "greatest",
    min: "least",
    math.prod: "prod",
    statistics.mean: "sum",
    statistics.fmean: "sum",
}
_WHOLE = frozenset(["abs", "min", "max", "whole", "number", "floor"])
"""Functions that take whole numbers as they are."""
LARGEST_LOOP = 4096
"""The most rounds of a loop that is written out."""
_RANGE = "range(n) with whole numbers, sizes as N, and constants; `if` after it for a bound that depends on indices"
_CONSTANTS = ("pi", "e", "tau", "inf", "nan")
_ARITHMETIC: dict[type[ast.operator], Operation] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_WHOLE_ONLY: dict[type[ast.operator], Operation] = {ast.FloorDiv: "floordiv", ast.Mod: "mod"}
_COMPARISONS: dict[type[ast.cmpop], tuple[Operation, bool]] = {
    ast.Lt: ("lt", False),
    ast.LtE: ("le", False),
    ast.Gt: ("lt", True),  # a > b is b < a
    ast.GtE: ("le", True),
    ast.Eq: ("eq", False),
    ast.NotEq: ("ne", False),
}
_FOREIGN: dict[str, str] = {
    "AsyncFor": "a for loop",
    "While": "a while loop, which has no bound,",
    "Break": "break",
    "Continue": "continue",
    "ListComp": "a comprehension",
    "SetComp": "a comprehension",
    "DictComp": "a comprehension",
    "GeneratorExp": "a comprehension outside of sum, max, min, prod and mean",
    "Lambda": "a lambda",
    "FunctionDef": "a function inside the function",
    "ClassDef": "a class",
    "Try": "try",
    "With": "with",
    "Raise": "raise",
    "Assert": "assert",
    "Import": "an import",
    "ImportFrom": "an import",
    "Global": "global",
    "Nonlocal": "nonlocal",
    "Delete": "del",
    "Yield": "yield",
    "Await": "await",
    "NamedExpr": "an assignment inside an expression",
    "JoinedStr": "a string",
    "Subscript": "an index",
    "Attribute": "attribute access",
    "List": "a list",
    "Tuple": "a tuple",
    "Dict": "a dict",
    "Set": "a set",
    "Starred": "unpacking",
    "Expr": "an expression without effect",
}


class _Part(NamedTuple):
    """The part that a round of a loop has in a variable: what it adds to a sum, or offers to an extreme."""

    operation: Operation
    value: int
    takes_last: bool = False
    """Whether the last of equal values is taken, as `if x >= best: best = x` does."""


@dataclass(frozen=True)
class Given:
    """An argument that is a register."""

    register: int


@dataclass(frozen=True)
class _Missing:
    """A variable that has no value here, and why."""

    why: str


@dataclass(frozen=True)
class OperandTensor:
    """An operand that is read by index."""

    name: str
    axes: tuple[TensorAxis, ...]


Scope = dict[str, "int | _Missing | OperandTensor | tuple[Any, ...]"]
"""Registers by name, and beside them tensors, and constants that are tuples."""


class SizesNeeded(Exception):  # noqa: N818
    """A loop must be written out, and its length depends on sizes that are not known yet."""


@dataclass(frozen=True)
class _Return:
    register: int


@dataclass(frozen=True)
class _Fall:
    """The end of the statements was reached, with these variables."""

    scope: Scope


@dataclass(frozen=True)
class _Partly:
    """Some paths have returned a value, and the others have reached the end with these variables."""

    returned: int
    """The condition under which it was returned."""
    register: int
    scope: Scope


_Flow = _Return | _Fall | _Partly


def compile_function(source: FunctionSource, builder: Builder, arguments: Mapping[str, Any]) -> int:
    """The result of a function of numbers, added to a program; `arguments` are registers, and constants.

    Raises:
        LanguageError: the function uses something that the language does not have.
    """
    compiler = _Compiler(source, builder)
    register: int = compiler.checked(lambda: compiler.compile(compiler.bound(arguments)))
    return register


def compile_tensors(
    source: FunctionSource,
    operands: Mapping[str, tuple[TensorAxis, ...]],
    result: tuple[TensorAxis, ...],
    constants: Mapping[str, Any],
    sizes: Mapping[str, int] | None = None,
) -> Program:
    """The program of a function that computes an element of a tensor.

    Raises:
        LanguageError: the function uses something that the language does not have.
        SizesNeeded: a loop is to be written out that is as long as a size, and `sizes` has none.
    """
    builder = Builder(sizes)
    compiler = _Compiler(source, builder)

    def compile() -> Program:
        scope = compiler.bound(constants)
        named = {axis.name for axes in operands.values() for axis in axes if not axis.name.isdigit()}
        scope |= {name.upper(): builder.size(name) for name in named}
        axes = [compiler.axis(axis, scope, named) for axis in result]
        scope |= {axis.name: register for axis, register in zip(result, axes, strict=True)}
        for name, own in operands.items():
            tensor = OperandTensor(name, own)
            is_number = not own or own == (TensorAxis("_"),)
            scope[name] = compiler.read(source.tree, tensor, (), scope) if is_number else tensor
        value = compiler.compile(scope)
        return builder.finish(results=[ProgramResult("", tuple(axes), value)])

    program: Program = compiler.checked(compile)
    return program


class _Compiler:
    def __init__(self, source: FunctionSource, builder: Builder) -> None:
        self.source = source
        self.builder = builder
        self.locals = frozenset(source.function.__code__.co_varnames) | frozenset(source.function.__code__.co_cellvars)
        self.path = builder.truth(True)
        """The condition under which the present statement runs."""
        self.paths: list[int] = []
        """Those of the statements around it."""

    def checked(self, compile: Any) -> Any:
        try:
            return compile()
        except RecursionError:
            name = self.source.name
            raise self.source.error(self.source.tree, f"the branches of {name} go too deep", "a few hundred") from None
        except ConfigError as error:
            if isinstance(error, LanguageError):
                raise
            raise self.source.error(self.source.tree, str(error), "smaller functions") from None

    def compile(self, scope: Scope) -> int:
        tree = self.source.tree
        flow = self.run(tree.body, scope)
        if not isinstance(flow, _Return):
            raise self.source.error(tree, f"a path through {tree.name} ends without a return", "a return on every path")
        return flow.register

    def bound(self, arguments: Mapping[str, Any]) -> Scope:
        """Arguments in the scope: registers as they are, constants as registers."""
        scope: Scope = {}
        for name, value in arguments.items():
            if isinstance(value, Given):
                scope[name] = value.register
            elif isinstance(value, tuple):
                scope[name] = value
            else:
                scope[name] = self.constant(value, self.source.tree, f'the default of "{name}"')
        return scope

    def axis(self, axis: TensorAxis, scope: Scope, named: set[str]) -> int:
        """The index variable of an axis of the result."""
        if axis.extent is not None:
            for node in ast.walk(axis.extent):
                ast.copy_location(node, self.source.tree.returns or self.source.tree)
            extent = self.value(axis.extent, scope)
            if self.builder.kinds[extent] != "integer" or self.builder.free[extent]:
                raise self.source.error(
                    self.source.tree, f"the size of axis {axis.name}", "whole numbers and sizes as N"
                )
            scope[axis.name.upper()] = extent
            return self.builder.axis(axis.name, extent)
        if axis.name.isdigit():
            return self.builder.axis(axis.name, self.builder.integer(int(axis.name)))
        if axis.name not in named:
            what = f'the result has an axis "{axis.name}" that no operand has'
            allowed = f"axes of operands, or a size, as {axis.name}=(N + 1)//2"
            raise self.source.error(self.source.tree.returns or self.source.tree, what, allowed)
        return self.builder.axis(axis.name, self.builder.size(axis.name))

    @contextmanager
    def under(self, condition: int) -> Iterator[None]:
        """A context for what runs only where a condition holds."""
        outer = self.path
        self.paths.append(outer)
        self.path = self.builder.emit("and", outer, condition)
        try:
            yield
        finally:
            self.path = outer
            self.paths.pop()

    # Statements

    def run(self, statements: Sequence[ast.stmt], scope: Scope) -> _Flow:
        for index, statement in enumerate(statements):
            flow = self.statement(statement, scope)
            if isinstance(flow, _Fall):
                scope = flow.scope
            elif isinstance(flow, _Return):
                return flow
            else:
                with self.under(self.builder.emit("not", flow.returned)):
                    rest = self.run(statements[index + 1 :], flow.scope)
                return self.join(flow.returned, _Return(flow.register), rest)
        return _Fall(scope)

    def join(self, condition: int, then: _Flow, other: _Flow) -> _Flow:
        """The state after a branch: returned values are joined with returned values, variables with variables."""
        known = self.builder.instructions[condition]
        if known.operation == "truth":
            return then if known.value else other
        match then, other:
            case _Return(a), _Return(b):
                return _Return(self.select(condition, a, b))
            case _Fall(a), _Fall(b):
                return _Fall(self.merge(condition, a, b))
        registers = [None if isinstance(flow, _Fall) else flow.register for flow in (then, other)]
        scopes = [None if isinstance(flow, _Return) else flow.scope for flow in (then, other)]
        returned = self.select(condition, self.has_returned(then), self.has_returned(other))
        one, two = registers
        register = two if one is None else one if two is None else self.select(condition, one, two)
        first, second = scopes
        scope = second if first is None else first if second is None else self.merge(condition, first, second)
        assert register is not None
        assert scope is not None
        return _Partly(returned, register, scope)

    def has_returned(self, flow: _Flow) -> int:
        return flow.returned if isinstance(flow, _Partly) else self.builder.truth(isinstance(flow, _Return))

    def merge(self, condition: int, a: Scope, b: Scope) -> Scope:
        scope: Scope = {}
        for name in dict.fromkeys([*a, *b]):
            one, other = a.get(name), b.get(name)
            if isinstance(one, int) and isinstance(other, int):
                if self.builder.is_condition(one) != self.builder.is_condition(other):
                    scope[name] = _Missing("is a number on one path and a condition on another")
                else:
                    scope[name] = self.select(condition, one, other)
            elif one == other and one is not None:
                scope[name] = one
            else:
                scope[name] = _Missing("is not assigned on every path that leads here")
        return scope

    def select(self, condition: int, a: int, b: int) -> int:
        emit = self.builder.emit
        if not self.builder.is_condition(a):
            return emit("select", condition, *self.alike(a, b))
        return emit("or", emit("and", condition, a), emit("and", emit("not", condition), b))

    def statement(self, node: ast.stmt, scope: Scope) -> _Flow:
        match node:
            case _Assigned():
                return _Fall(scope | {node.name: node.register})
            case ast.Return(value=None):
                raise self.source.error(node, "return without a number", "return and a number")
            case ast.Return(value):
                assert value is not None
                return _Return(self.number(value, scope))
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(ast.Name(id=name), value=value):
                return _Fall(scope if value is None else scope | {name: self.value(value, scope)})
            case ast.AugAssign(ast.Name(id=name) as target, operator, value):
                read = ast.copy_location(ast.Name(target.id, ast.Load()), node)
                return _Fall(scope | {name: self.arithmetic(node, operator, read, value, scope)})
            case ast.Assign():
                raise self.source.error(node, "an assignment to more than one name", "one name on the left")
            case ast.If(test, body, orelse):
                condition = self.condition(test, scope)
                with self.under(condition):
                    then = self.run(body, scope)
                with self.under(self.builder.emit("not", condition)):
                    other = self.run(orelse, scope)
                return self.join(condition, then, other)
            case ast.For(target=ast.Name(id=name), iter=bounds, body=body, orelse=[]):
                return self.loop(node, name, bounds, body, scope)
            case ast.For():
                raise self.source.error(node, "this for loop", "for k in range(n), without else")
            case ast.Match(subject, cases):
                return self.match(self.value(subject, scope), cases, scope)
            case ast.Pass() | ast.Expr(ast.Constant(str())):
                return _Fall(scope)
            case ast.Expr(value):
                self.value(value, scope)  # report an error inside the expression first
        raise self.foreign(node)

    def match(self, subject: int, cases: Sequence[ast.match_case], scope: Scope) -> _Flow:
        if not cases:
            return _Fall(scope)
        case = cases[0]
        inside = self.pattern_scope(case.pattern, subject, scope)
        condition = self.pattern(case.pattern, subject)
        if case.guard is not None:
            condition = self.builder.emit("and", condition, self.condition(case.guard, inside))
        with self.under(condition):
            then = self.run(case.body, inside)
        # A name that a pattern without conditions has caught stays caught when the guard fails.
        with self.under(self.builder.emit("not", condition)):
            other = self.match(subject, cases[1:], inside)
        return self.join(condition, then, other)

    def pattern_scope(self, pattern: ast.pattern, subject: int, scope: Scope) -> Scope:
        if isinstance(pattern, ast.MatchAs) and pattern.pattern is None and pattern.name is not None:
            return scope | {pattern.name: subject}
        return scope

    def pattern(self, pattern: ast.pattern, subject: int) -> int:
        match pattern:
            case ast.MatchAs(pattern=None):
                return self.builder.truth(True)
            case ast.MatchValue(value):
                return self.builder.emit("eq", *self.alike(subject, self.value(value, {})))
            case ast.MatchOr(patterns) if all(isinstance(choice, ast.MatchValue) for choice in patterns):
                result = self.builder.truth(False)
                for choice in patterns:
                    result = self.builder.emit("or", result, self.pattern(choice, subject))
                return result
        kind = type(pattern).__name__.removeprefix("Match").lower()
        raise self.source.error(pattern, f"this pattern ({kind})", _PATTERNS)

    # Loops

    def loop(self, node: ast.For, name: str, bounds: ast.expr, body: Sequence[ast.stmt], scope: Scope) -> _Flow:
        """A loop: sums, products and extremes as reductions, any other round by round."""
        first, step, count = self.range(bounds, scope)
        rounds = self.builder.instructions[count]
        if rounds.operation != "integer" or rounds.value > 2:
            reduced = self.reduced(name, body, scope, first, step, count)
            if reduced is not None:
                return _Fall(reduced)
        if rounds.operation != "integer":
            raise SizesNeeded
        if rounds.value > LARGEST_LOOP:
            what = f"a loop of {int(rounds.value)} rounds, each of which needs the one before"
            raise self.source.error(node, what, f"{LARGEST_LOOP} rounds, or a sum, product, maximum or minimum")
        unrolled: list[ast.stmt] = []
        for place in range(int(rounds.value)):
            number = self.builder.emit("add", first, self.builder.emit("mul", self.builder.integer(place), step))
            unrolled += [_Assigned(name, number), *body]
        return self.run(unrolled, scope)

    def reduced(
        self, name: str, body: Sequence[ast.stmt], scope: Scope, first: int, step: int, count: int
    ) -> Scope | None:
        """The scope after a loop whose variables are sums, products or extremes of what the rounds compute."""
        builder, emit = self.builder, self.builder.emit
        axis = builder.variable(name, count)
        assigned = {
            target.id
            for statement in body
            for target in ast.walk(statement)
            if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store)
        }
        carried = {
            key: emit("carry", name=f"{key}.{axis}")
            for key in sorted(assigned)
            if isinstance(value := scope.get(key), int) and not builder.is_condition(value)
        }
        inside = scope | carried | {name: emit("add", first, emit("mul", axis, step))}
        flow = self.run(body, inside)
        if not isinstance(flow, _Fall):
            return None
        after: Scope = scope | {name: _Missing("is assigned only in a loop")}
        for key in sorted(assigned):
            if key not in carried:
                after[key] = _Missing("is assigned only in a loop")
                continue
            end = flow.scope[key]
            part = self.part_of_round(end, carried[key], set(carried.values())) if isinstance(end, int) else None
            if part is None:
                return None
            together: Operation = {"sum": "add", "prod": "mul", "greatest": "max", "least": "min"}[part.operation]  # type: ignore[assignment]
            before, value = scope[key], part.value
            assert isinstance(before, int)
            if part.takes_last:  # the last of equal ones is the first of those in reverse
                last = emit("sub", count, builder.integer(1))
                value = builder.substitute(value, {axis: emit("sub", last, axis)})
            compares = float(part.operation in ("greatest", "least"))
            pair = self.alike(before, emit(part.operation, value, axis, value=compares))
            after[key] = emit(together, *(reversed(pair) if part.takes_last else pair))
        return after

    def part_of_round(self, end: int, carry: int, carried: set[int]) -> _Part | None:
        """The part that a round has in a variable; None if it is carried in another way."""
        builder, emit = self.builder, self.builder.emit
        step = builder.instructions[end]
        at = step.arguments

        def is_free(register: int) -> bool:
            return not self.reaches(register, carried)

        match step.operation:
            case "add" | "mul" | "max" | "min":
                for one, other in (at, at[::-1]):
                    if one == carry and is_free(other):
                        names = {"add": "sum", "mul": "prod", "max": "greatest", "min": "least"}
                        takes_last = step.operation in ("max", "min") and at[1] == carry
                        return _Part(names[step.operation], other, takes_last)  # type: ignore[arg-type]
            case "sub" if at[0] == carry and is_free(at[1]):
                return _Part("sum", emit("neg", at[1]))
            case "select":
                test = builder.instructions[at[0]]
                bounds = {"lt", "le"} & {test.operation}
                if bounds and at[2] == carry and set(test.arguments) == {carry, at[1]} and is_free(at[1]):
                    name: Operation = "greatest" if test.arguments[0] == carry else "least"
                    return _Part(name, at[1], takes_last=test.operation == "le")
                if at[2] == carry and is_free(at[0]):
                    part = self.part_of_round(at[1], carry, carried)
                    if part is None:
                        return None
                    neutral = {"sum": 0.0, "prod": 1.0, "greatest": -math.inf, "least": math.inf}[part.operation]
                    chosen = emit("select", at[0], builder.number(part.value), builder.constant(neutral))
                    return part._replace(value=chosen)
        return None

    def reaches(self, register: int, targets: set[int]) -> bool:
        return not targets.isdisjoint(needed_by(self.builder.instructions, [register], targets.__contains__))

    def range(self, node: ast.expr, scope: Scope) -> tuple[int, int, int]:
        """First number, step and count of a range."""
        builder, emit = self.builder, self.builder.emit
        if not isinstance(node, ast.Call) or self.callee(node, scope) is not range or node.keywords:
            raise self.source.error(node, "a loop over something that is no range", _RANGE)
        registers = [self.value(argument, scope) for argument in node.args]
        for register, argument in zip(registers, node.args, strict=True):
            if builder.kinds[register] != "integer" or builder.free[register] or self.has_data(register):
                raise self.source.error(argument, "a range whose bound is known only at run time", _RANGE)
        if not 1 <= len(registers) <= 3:
            raise self.source.error(node, f"range of {len(registers)} arguments", _RANGE)
        first = registers[0] if len(registers) > 1 else builder.integer(0)
        stop = registers[0] if len(registers) == 1 else registers[1]
        step = registers[2] if len(registers) == 3 else builder.integer(1)
        known = builder.instructions[step]
        if known.operation != "integer" or known.value < 1:
            raise self.source.error(node, "a step that is not a constant of at least 1", _RANGE)
        span = emit("add", emit("sub", stop, first), builder.integer(int(known.value) - 1))
        count = emit("floordiv", span, step) if known.value != 1 else span
        return first, step, emit("max", count, builder.integer(0)) if len(registers) > 1 else count

    def has_data(self, register: int) -> bool:
        reads = {position for position, step in enumerate(self.builder.instructions) if step.operation == "read"}
        return self.reaches(register, reads)

    def reduction(self, node: ast.Call, function: Any, generator: ast.GeneratorExp, scope: Scope) -> int:
        """sum(...), max(...), min(...), prod(...) or mean(...) of a generator expression."""
        operation, emit = _REDUCTIONS[function], self.builder.emit
        loops: list[tuple[int, int]] = []
        outer = self.path
        inside = scope
        for comprehension in generator.generators:
            if not isinstance(comprehension.target, ast.Name):
                raise self.source.error(comprehension.target, "a loop over more than one name", _RANGE)
            first, step, count = self.range(comprehension.iter, inside)
            name = comprehension.target.id
            axis = self.builder.variable(name, count)
            inside = inside | {name: emit("add", first, emit("mul", axis, step))}
            test = self.builder.truth(True)
            for condition in comprehension.ifs:
                register = self.condition(condition, inside)
                test = emit("and", test, register)
                self.path = emit("and", self.path, register)
            loops.append((axis, test))
        value = self.number(generator.elt, inside)
        self.path = outer
        total = self.over(operation, value, loops)
        if function not in (statistics.mean, statistics.fmean):
            return total
        return emit("div", total, self.over("sum", self.builder.constant(1.0), loops))

    def over(self, operation: Operation, value: int, loops: Sequence[tuple[int, int]]) -> int:
        neutral = {"sum": 0.0, "prod": 1.0, "greatest": -math.inf, "least": math.inf}[operation]
        for axis, test in reversed(loops):
            value = self.builder.emit("select", test, value, self.builder.constant(neutral))
            value = self.builder.emit(operation, value, axis)
        return value

    # Expressions

    def alike(self, a: int, b: int) -> tuple[int, int]:
        """Two values as whole numbers if both are, and else as numbers."""
        kinds = {self.builder.kinds[a], self.builder.kinds[b]}
        return (a, b) if kinds == {"integer"} else (self.builder.number(a), self.builder.number(b))

    def plain(self, node: ast.expr, scope: Scope) -> int:
        """A number or a whole number."""
        register = self.value(node, scope)
        if self.builder.is_condition(register):
            raise self.source.error(node, "a condition where a number is needed", "1.0 if condition else 0.0")
        return register

    def number(self, node: ast.expr, scope: Scope) -> int:
        return self.builder.number(self.plain(node, scope))

    def index(self, node: ast.expr, scope: Scope) -> int:
        """A whole number; a number is cut off to one."""
        return self.builder.emit("whole", self.plain(node, scope))

    def read(self, node: ast.AST, tensor: OperandTensor, indices: Sequence[ast.expr], scope: Scope) -> int:
        """An element of an operand."""
        leading = [axis for axis in tensor.axes if axis.name == "_"]
        given = list(indices)
        if leading and (not given or (isinstance(given[0], ast.Constant) and given[0].value is ...)):
            given = given[1:]
        elif leading:
            raise self.source.error(node, f"{tensor.name} without its leading axes", f"{tensor.name}[..., i]")
        if len(given) != len(tensor.axes) - len(leading):
            named = ", ".join("..." if axis.name == "_" else axis.name for axis in tensor.axes)
            what = f"{tensor.name} has {len(tensor.axes)} axes, but {len(indices)} indices"
            raise self.source.error(node, what, f"{tensor.name}[{named}]")
        registers = [self.index(index, scope) for index in given]
        if leading:
            registers.insert(0, self.builder.axis("_", self.builder.size("_")))
        for path in (*self.paths, self.path):  # a read that has been made on the way here is not made again
            read = ProgramInstruction("read", (path, *registers), name=tensor.name)
            if path == self.path or self.builder.has(read):
                line = getattr(node, "lineno", self.source.tree.lineno)
                return self.builder.emit("read", path, *registers, name=tensor.name, line=line)
        raise AssertionError("the present path is the last one")

    def subscript(self, node: ast.Subscript, scope: Scope) -> int:
        indices = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        target: ast.expr = node.value
        while isinstance(target, ast.Subscript):
            indices = [*(target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]), *indices]
            target = target.value
        if not isinstance(target, ast.Name):
            raise self.foreign(node)
        value = scope.get(target.id)
        if isinstance(value, OperandTensor):
            return self.read(node, value, indices, scope)
        if value is None and target.id not in self.locals:
            try:
                value = self.source.resolve(target.id)
            except KeyError:
                raise self.source.error(node, f'there is no "{target.id}" here') from None
        if isinstance(value, int | _Missing):
            raise self.source.error(node, f'an index of "{target.id}", which is a number', "operands and tables")
        return self.look_up(node, target.id, value, [self.plain(index, scope) for index in indices])

    def look_up(self, node: ast.AST, name: str, values: Any, indices: Sequence[int]) -> int:
        """An entry of a table of numbers; indices are cut off to whole numbers and kept inside."""
        values = values.tolist() if hasattr(values, "tolist") else values
        lengths, flat = [], [values]
        while flat and isinstance(flat[0], list | tuple):
            lengths.append(len(flat[0]))
            if any(not isinstance(row, list | tuple) or len(row) != lengths[-1] for row in flat):
                break
            flat = [entry for row in flat for entry in row]
        if not flat or any(isinstance(entry, bool) or not isinstance(entry, int | float) for entry in flat):
            raise self.source.error(
                node, f'"{name}" is no table', "lists, tuples and arrays of numbers, rows of equal length"
            )
        if len(indices) != len(lengths):
            what = f'"{name}" is a table with {len(lengths)} axes, but has {len(indices)} indices'
            raise self.source.error(node, what, "one index for each axis")
        builder, emit = self.builder, self.builder.emit
        known = [builder.instructions[index] for index in indices]
        if all(step.operation == "integer" for step in known):
            offset = 0
            for step, length in zip(known, lengths, strict=True):
                if not 0 <= step.value < length:
                    raise self.source.error(node, f'"{name}" has no entry {int(step.value)}', f"0 to {length - 1}")
                offset = offset * length + int(step.value)
            return self.constant(flat[offset], node, f'an entry of "{name}"')
        position = builder.constant(0.0)
        for index, length in zip(indices, lengths, strict=True):
            place = builder.number(index)
            if len(indices) > 1:
                place = emit("max", emit("min", place, builder.constant(length - 1)), builder.constant(0.0))
                position = emit("add", emit("mul", position, builder.constant(length)), emit("floor", place))
            else:
                position = place
        return emit("lookup", position, table=tuple(map(float, flat)))

    def condition(self, node: ast.expr, scope: Scope) -> int:
        register = self.value(node, scope)
        if not self.builder.is_condition(register):
            raise self.source.error(node, "a number where a condition is needed", "a comparison, as x != 0")
        return register

    def value(self, node: ast.expr, scope: Scope) -> int:
        emit = self.builder.emit
        match node:
            case ast.Constant(bool(value)):
                return self.builder.truth(value)
            case ast.Constant(int(value) | float(value)):
                return self.constant(value, node, "it")
            case ast.Constant(value):
                what = "a string" if isinstance(value, str | bytes) else repr(value)
                raise self.source.error(node, f"{what} is no number")
            case ast.Name(name):
                return self.name(node, name, scope)
            case ast.Attribute(ast.Name(module), name) if self.is_math(module, scope) and name in _CONSTANTS:
                return self.builder.constant(getattr(math, name))
            case ast.BinOp(left, operator, right):
                return self.arithmetic(node, operator, left, right, scope)
            case ast.UnaryOp(ast.USub(), operand):
                return emit("neg", self.plain(operand, scope))
            case ast.UnaryOp(ast.UAdd(), operand):
                return self.plain(operand, scope)
            case ast.UnaryOp(ast.Not(), operand):
                return emit("not", self.condition(operand, scope))
            case ast.BoolOp(operator, operands):
                joint: Operation = "and" if isinstance(operator, ast.And) else "or"
                result, outer = self.condition(operands[0], scope), self.path
                for operand in operands[1:]:
                    # The next operand counts only where the ones before leave it open.
                    with self.under(result if joint == "and" else emit("not", result)):
                        register = self.condition(operand, scope)
                    result = emit(joint, result, register)
                assert self.path == outer
                return result
            case ast.Compare(left, operators, comparators):
                return self.comparison(node, [left, *comparators], operators, scope)
            case ast.IfExp(test, body, orelse):
                condition = self.condition(test, scope)
                with self.under(condition):
                    a = self.value(body, scope)
                with self.under(emit("not", condition)):
                    b = self.value(orelse, scope)
                if self.builder.is_condition(a) != self.builder.is_condition(b):
                    raise self.source.error(node, "a number on one side and a condition on the other")
                return self.select(condition, a, b)
            case ast.Call():
                return self.call(node, scope)
            case ast.Subscript():
                return self.subscript(node, scope)
        raise self.foreign(node)

    def name(self, node: ast.expr, name: str, scope: Scope) -> int:
        value = scope.get(name)
        if isinstance(value, int):
            return value
        if isinstance(value, _Missing):
            raise self.source.error(node, f'"{name}" {value.why}', "a value on every path")
        if isinstance(value, OperandTensor):
            named = ", ".join("..." if axis.name == "_" else axis.name for axis in value.axes)
            raise self.source.error(node, f"{name} is a tensor, no number", f"{name}[{named}]")
        if name in self.locals:
            raise self.source.error(node, f'"{name}" is read before it is assigned', "a value on every path")
        try:
            constant = self.source.resolve(name)
        except KeyError:
            raise self.source.error(node, f'there is no "{name}" here') from None
        return self.constant(constant, node, f'"{name}"')

    def constant(self, value: Any, node: ast.AST, what: str) -> int:
        """The current value of a Python number."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.source.error(node, f"{what} is a {type(value).__name__}, no number")
        try:
            number = float(value)
            return self.builder.integer(value) if isinstance(value, int) else self.builder.constant(number)
        except OverflowError:
            raise self.source.error(node, f"{what} is larger than any float64", "numbers up to 1.8e308") from None

    def arithmetic(self, node: ast.AST, operator: ast.operator, left: ast.expr, right: ast.expr, scope: Scope) -> int:
        a, b = self.plain(left, scope), self.plain(right, scope)
        kind = type(operator)
        if kind is ast.Pow:
            return self.power(node, a, b)
        if kind in _WHOLE_ONLY:
            if {self.builder.kinds[a], self.builder.kinds[b]} != {"integer"}:
                raise self.source.error(node, f"the operator {kind.__name__} of numbers", "math.floor(a / b)")
            if self.builder.instructions[b].operation == "integer" and not self.builder.instructions[b].value:
                raise self.source.error(node, "a division by zero")
            return self.builder.emit(_WHOLE_ONLY[kind], a, b)
        if kind not in _ARITHMETIC:
            raise self.source.error(
                node, f"the operator {kind.__name__}", "+ - * / and **, and // and % of whole numbers"
            )
        if kind is ast.Div:
            return self.builder.emit("div", self.builder.number(a), self.builder.number(b))
        return self.builder.emit(_ARITHMETIC[kind], *self.alike(a, b))

    def power(self, node: ast.AST, base: int, exponent: int) -> int:
        known, constant = self.builder.instructions[exponent], ("constant", "integer")
        allowed = f"whole numbers from -{LARGEST_EXPONENT} to {LARGEST_EXPONENT}; sqrt and exp for others"
        if known.operation not in constant and self.builder.instructions[base].operation in constant:
            return self.exponential(node, self.builder.instructions[base].value, self.builder.number(exponent))
        if known.operation not in constant:
            raise self.source.error(node, "an exponent that is no constant", allowed)
        if not known.value.is_integer() or abs(known.value) > LARGEST_EXPONENT:
            raise self.source.error(node, f"the exponent {known.value:g}", allowed)
        return self.builder.power(base, int(known.value))

    def exponential(self, node: ast.AST, base: float, exponent: int) -> int:
        """A known base to any power."""
        if not base > 0:
            raise self.source.error(node, f"{base:g} to a power that is no constant", "a base above 0")
        if base == 2:
            return self.builder.emit("exp2", exponent)
        return self.builder.emit("exp", self.builder.emit("mul", exponent, self.builder.constant(math.log(base))))

    def comparison(
        self, node: ast.AST, operands: Sequence[ast.expr], operators: Sequence[ast.cmpop], scope: Scope
    ) -> int:
        registers = [self.plain(operand, scope) for operand in operands]
        result = self.builder.truth(True)
        for a, operator, b in zip(registers, operators, registers[1:], strict=False):
            if type(operator) not in _COMPARISONS:
                raise self.source.error(node, f"the comparison {type(operator).__name__}", "< <= > >= == !=")
            operation, is_swapped = _COMPARISONS[type(operator)]
            a, b = self.alike(a, b)
            compared = self.builder.emit(operation, *((b, a) if is_swapped else (a, b)))
            result = self.builder.emit("and", result, compared)
        return result

    def call(self, node: ast.Call, scope: Scope) -> int:
        function = self.callee(node, scope)
        if hasattr(function, "inline"):
            return self.inline(node, function, scope)
        if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            if function not in _REDUCTIONS or node.keywords:
                raise self.source.error(node, f"{_label(function)} of a comprehension", "sum, max, min, prod and mean")
            return self.reduction(node, function, node.args[0], scope)
        if function is math.log2 and len(node.args) == 1 and not node.keywords:
            natural = self.builder.emit("log", self.number(node.args[0], scope))
            return self.builder.emit("mul", natural, self.builder.constant(1 / math.log(2)))
        if function is math.ldexp and len(node.args) == 2 and not node.keywords:
            size = self.builder.emit("exp2", self.builder.emit("floor", self.number(node.args[1], scope)))
            return self.builder.emit("mul", self.number(node.args[0], scope), size)
        try:
            operation = _FUNCTIONS[function]
        except (KeyError, TypeError):
            raise self.source.error(node, f"the call of {_label(function)}") from None
        registers = [self.plain(argument, scope) for argument in node.args]
        least = 2 if operation in ("min", "max") else 1
        if node.keywords or len(registers) < least or (least == 1 and len(registers) > 1):
            counted = "two numbers or more" if least == 2 else "one number"
            raise self.source.error(node, f"{operation} of {len(registers)} arguments", f"{operation} of {counted}")
        if operation not in _WHOLE:
            registers = [self.builder.number(register) for register in registers]
        if least == 1:
            is_whole = self.builder.kinds[registers[0]] == "integer"
            if is_whole and operation == "floor":
                return registers[0]
            if operation == "number":
                return self.builder.number(registers[0])
            return self.builder.emit(operation, registers[0])
        result = registers[0]
        for register in registers[1:]:
            result = self.builder.emit(operation, *self.alike(result, register))
        return result

    def callee(self, node: ast.Call, scope: Scope) -> Any:
        match node.func:
            case ast.Name(name) if name == self.source.name and name not in scope:
                raise self.source.error(node, f"recursion: {name} calls itself")
            case ast.Name(name) if name not in self.locals:
                try:
                    return self.source.resolve(name)
                except KeyError:
                    raise self.source.error(node, f'there is no "{name}" here') from None
            case ast.Name(name):
                raise self.source.error(node, f'the call of "{name}", a local variable')
            case ast.Attribute(ast.Name(module), name) if self.is_math(module, scope):
                return getattr(math, name, None)
            case ast.Attribute(ast.Name("statistics"), ("mean" | "fmean") as name) if "statistics" not in self.locals:
                return getattr(statistics, name)
            case ast.Attribute():
                raise self.source.error(node, f"{ast.unparse(node.func)}: attribute access")
        raise self.foreign(node.func)

    def inline(self, node: ast.Call, operator: Any, scope: Scope) -> int:
        """Another operator's program in place of its call."""
        if node.keywords and any(keyword.arg is None for keyword in node.keywords):
            raise self.source.error(node, "unpacking")
        registers = [self.plain(argument, scope) for argument in node.args]
        named = {str(keyword.arg): self.plain(keyword.value, scope) for keyword in node.keywords}
        try:
            register: int = operator.inline(self.builder, registers, named)
        except LanguageError:
            raise
        except TypeError as error:
            raise self.source.error(node, str(error), "the arguments that the operator has") from None
        return register

    def is_math(self, module: str, scope: Scope) -> bool:
        if module in self.locals:
            return False
        try:
            return self.source.resolve(module) is math
        except KeyError:
            return False

    def foreign(self, node: ast.AST) -> LanguageError:
        name = type(node).__name__
        return self.source.error(node, f"{_FOREIGN.get(name, name)} is not in the operator language", ALLOWED)


def _label(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


class _Assigned(ast.Pass):
    """A statement that gives a register to a name, in a loop that is written out."""

    def __init__(self, name: str, register: int) -> None:
        super().__init__()
        self.name = name
        self.register = register
