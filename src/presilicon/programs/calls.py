"""Calls of functions, and reductions over ranges."""

import ast
import math
import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import FunctionType
from typing import Any

from presilicon.programs.elements import Elements
from presilicon.programs.expressions import LocalTuple, Scope, Value
from presilicon.programs.functions import MATHEMATICS
from presilicon.programs.program import Operation, needed_by
from presilicon.programs.source import LanguageError, plain_function, source_of

_FUNCTIONS: dict[Any, Operation] = {
    abs: "abs", math.fabs: "abs", min: "min", max: "max", math.floor: "floor", math.sqrt: "sqrt",
    **{getattr(math, name): name for name in MATHEMATICS},
    int: "whole", math.trunc: "whole", float: "number",
}  # fmt: skip
_REDUCTIONS: dict[Any, Operation] = {
    sum: "sum", max: "greatest", min: "least", math.prod: "prod", statistics.mean: "sum", statistics.fmean: "sum"
}  # fmt: skip
NEUTRAL = {"sum": 0.0, "prod": 1.0, "greatest": -math.inf, "least": math.inf}
JOINED: dict[str, Operation] = {"sum": "add", "prod": "mul", "greatest": "max", "least": "min"}
_WHOLE = frozenset(["abs", "min", "max", "whole", "number", "floor"])
"""Functions that take whole numbers as they are."""
_CASTS = {
    "bool_": "bool", "int64": "whole", "float64": "number", "float32": "narrow",
    "int8": 8, "int16": 16, "int32": 32, "uint8": 8, "uint16": 16, "uint32": 32,
}  # fmt: skip
"""Types of numpy that are called: widths wrap around."""
RANGE = "range(n) with whole numbers, sizes as N, and constants; `if` after it for a bound that depends on indices"


class Calls(Elements):
    """Compiles calls, and sums and the like of generator expressions."""

    def call(self, node: ast.Call, scope: Scope) -> Value:
        """The result of a call."""
        function = self.callee(node, scope)
        if hasattr(function, "inline"):
            return self.inline(node, function, scope)
        if isinstance(plain_function(function), FunctionType) and function not in _REDUCTIONS:
            return self.call_function(node, plain_function(function), scope)
        if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            if function not in _REDUCTIONS or node.keywords:
                raise self.source.error(node, f"{_label(function)} of a comprehension", "sum, max, min, prod and mean")
            return self.reduction(node, function, node.args[0], scope)
        if node.keywords:
            raise self.source.error(node, f"an argument of {_label(function)} by name", "arguments in order")
        if function is len and len(node.args) == 1:
            entries = self.argument(node.args[0], scope)
            if not isinstance(entries, int | float):
                return self.builder.integer(len(entries))
        return self.builtin(node, function, [self.plain(argument, scope) for argument in node.args])

    def builtin(self, node: ast.Call, function: Any, at: list[int]) -> Value:
        """The result of a function of Python, `math` or numpy."""
        builder, emit = self.builder, self.builder.emit
        count, compiled = _SPECIAL.get(function, (0, None)) if isinstance(function, Hashable) else (0, None)
        if compiled is not None and len(at) == count:
            return compiled(self, node, *at)
        if getattr(function, "__module__", "") == "numpy" and _label(function) in _CASTS and len(at) == 1:
            return self.cast(node, _label(function), at[0])
        if not isinstance(function, Hashable) or function not in _FUNCTIONS:
            raise self.source.error(node, f"the call of {_label(function)}")
        operation = _FUNCTIONS[function]
        least = 2 if operation in ("min", "max") else 1
        if len(at) < least or (least == 1 and len(at) > 1):
            counted = "two numbers or more" if least == 2 else "one number"
            raise self.source.error(node, f"{operation} of {len(at)} arguments", f"{operation} of {counted}")
        if operation not in _WHOLE:
            at = [builder.number(register) for register in at]
        if least == 1:
            if builder.kinds[at[0]] == "integer" and operation == "floor":
                return at[0]
            if operation == "number":
                return builder.number(at[0])
            value = emit(operation, at[0])
            return self.as_python(value) if operation == "floor" else value
        result = at[0]
        for register in at[1:]:
            result = emit(operation, *builder.alike(result, register))
        return result

    def cast(self, node: ast.AST, name: str, register: int) -> int:
        """A call of one of numpy's types."""
        builder, emit = self.builder, self.builder.emit
        match _CASTS[name]:
            case "bool":
                return self.truth(register)
            case "whole":
                return emit("whole", register)
            case int(width) if name.startswith("u"):
                return emit("bitand", emit("whole", register), builder.integer((1 << width) - 1))
            case int(width):
                gap = builder.integer(64 - width)
                return emit("shr", emit("shl", emit("whole", register), gap), gap)
        number = builder.number(register)
        return emit("narrow", number) if name == "float32" else number

    def as_python(self, number: int) -> int:
        """A number without a fraction: in functions on codes a whole one, as in Python."""
        return self.builder.emit("whole", number) if self.builder.is_exact else number

    def rounded(self, node: ast.AST, x: int) -> int:
        """The nearest whole number; between two the even one."""
        builder, emit = self.builder, self.builder.emit
        if builder.kinds[x] == "integer":
            return x
        low = emit("floor", x)
        rest, half = emit("sub", x, low), builder.constant(0.5)
        twice = emit("mul", emit("floor", emit("mul", low, half)), builder.constant(2.0))
        tie = emit("and", emit("eq", rest, half), emit("ne", twice, low))
        up = emit("or", emit("lt", half, rest), tie)
        return self.as_python(emit("select", up, emit("add", low, builder.constant(1.0)), low))

    def ceiling(self, node: ast.AST, x: int) -> int:
        """The smallest whole number that is not below `x`."""
        builder, emit = self.builder, self.builder.emit
        if builder.kinds[x] == "integer":
            return x
        up = emit("neg", emit("floor", emit("neg", x)))
        return self.as_python(emit("add", up, builder.constant(0.0)))  # 0 and never -0

    def is_infinite(self, node: ast.AST, x: int) -> int:
        """Whether a number is infinite."""
        builder = self.builder
        return builder.emit("eq", builder.emit("abs", builder.number(x)), builder.constant(math.inf))

    def is_finite(self, node: ast.AST, x: int) -> int:
        """Whether a number is neither infinite nor NaN."""
        builder = self.builder
        return builder.emit("lt", builder.emit("abs", builder.number(x)), builder.constant(math.inf))

    def is_nan(self, node: ast.AST, x: int) -> int:
        """Whether a number is NaN."""
        number = self.builder.number(x)
        return self.builder.emit("ne", number, number)

    def scaled(self, node: ast.AST, x: int, exponent: int) -> int:
        """`math.ldexp`."""
        builder, emit = self.builder, self.builder.emit
        is_whole = builder.is_exact and builder.kinds[exponent] == "integer"
        whole = builder.number(exponent) if is_whole else emit("floor", builder.number(exponent))
        return emit("ldexp", builder.number(x), whole)

    def split(self, node: ast.AST, x: int) -> LocalTuple:
        """`math.frexp`."""
        number = self.builder.number(x)
        return LocalTuple((self.builder.emit("fraction", number), self.builder.emit("exponent", number)))

    def with_sign(self, node: ast.AST, size: int, sign: int) -> int:
        """`math.copysign`."""
        return self.builder.emit("copysign", self.builder.number(size), self.builder.number(sign))

    def divided(self, node: ast.AST, a: int, b: int) -> LocalTuple:
        """`divmod`."""
        a, b = self.builder.alike(a, b)
        return LocalTuple((self.builder.emit("floordiv", a, b), self.builder.emit("mod", a, b)))

    def callee(self, node: ast.Call, scope: Scope) -> Any:
        """The function that a call names."""
        match node.func:
            case ast.Name(name) if name in self.locals or name in scope:
                raise self.source.error(node, f'the call of "{name}", a local variable')
            case ast.Name(name):
                if name == self.source.name and not self.source.has(name):  # it is being defined
                    raise self.source.error(node, f"recursion: {name} calls itself", attempt="a loop")
                return self.known(node, name, scope)
            case ast.Attribute() as dotted:
                return self.static(dotted, scope)
        raise self.foreign(node.func)

    def argument(self, node: ast.expr, scope: Scope) -> Any:
        """An argument of a function in the language: a value, or a table."""
        owner = None
        if isinstance(node, ast.Name):
            owner = self.known(node, node.id, scope)
        elif isinstance(node, ast.Attribute):
            owner = self.static(node, scope)
        is_table = isinstance(owner, list | tuple) or (hasattr(owner, "tolist") and getattr(owner, "shape", False))
        return owner if is_table and not isinstance(owner, LocalTuple) else self.value(node, scope)

    def call_function(self, node: ast.Call, function: Any, scope: Scope) -> Value:
        """A function's own statements in place of its call."""
        if function in self.callers:
            raise self.source.error(node, f"recursion: {function.__name__} calls itself", attempt="a loop")
        source = source_of(function)
        spec = source.tree.args
        names = [argument.arg for argument in (*spec.posonlyargs, *spec.args)]
        defaults = function.__defaults__ or ()
        bound: Scope = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
        bound |= function.__kwdefaults__ or {}
        known = {*names, *(argument.arg for argument in spec.kwonlyargs)}
        given = dict(zip(names, [self.argument(argument, scope) for argument in node.args], strict=False))
        given |= {str(keyword.arg): self.argument(keyword.value, scope) for keyword in node.keywords}
        if spec.vararg or spec.kwarg or len(node.args) > len(names) or not given.keys() <= known <= {*bound, *given}:
            count = len(node.args) + len(node.keywords)
            raise self.source.error(
                node, f"a call of {function.__name__} with {count} arguments", f"({', '.join(names)})"
            )
        inner = type(self)(source, self.builder, self.callers)
        return inner.compile(inner.bound({name: bound[name] for name in bound if name not in given}) | given)

    def bound(self, constants: Mapping[str, Any]) -> Scope:
        """Constant arguments in the scope: tables as they are, numbers as registers."""
        return {
            name: value
            if isinstance(value, list | tuple) or getattr(value, "shape", False)
            else self.constant(value, self.source.tree, f'the default of "{name}"')
            for name, value in constants.items()
        }

    def inline(self, node: ast.Call, operator: Any, scope: Scope) -> int:
        """Another operator's program in place of its call."""
        if any(keyword.arg is None for keyword in node.keywords):
            raise self.source.error(node, "unpacking", "arguments in order or by name")
        if getattr(operator, "function", None) in self.callers:
            raise self.source.error(node, f"recursion: {self.source.name} calls itself", attempt="a loop")
        registers = [self.plain(argument, scope) for argument in node.args]
        named = {str(keyword.arg): self.plain(keyword.value, scope) for keyword in node.keywords}
        try:
            register: int = operator.inline(self.builder, registers, named)
        except LanguageError:
            raise
        except TypeError as error:
            raise self.source.error(node, str(error), "the arguments that the operator has") from None
        return register

    # Ranges and reductions

    def range(self, node: ast.expr, scope: Scope) -> tuple[int, int, int]:
        """First number, step and count of a range."""
        builder, emit = self.builder, self.builder.emit
        first, stop, step = self.bounds(node, scope)
        for register in (first, stop, step):
            if builder.kinds[register] != "integer" or builder.free[register] or self.has_data(register):
                raise self.source.error(node, "a range whose bound is known only at run time", RANGE)
        known = builder.instructions[step]
        if known.operation != "integer" or known.value < 1:
            raise self.source.error(node, "a step that is not a constant of at least 1", RANGE)
        span = emit("add", emit("sub", stop, first), builder.integer(int(known.value) - 1))
        count = emit("floordiv", span, step) if known.value != 1 else span
        has_first = isinstance(node, ast.Call) and len(node.args) > 1
        return first, step, emit("max", count, builder.integer(0)) if has_first else count

    def bounds(self, node: ast.expr, scope: Scope) -> tuple[int, int, int]:
        """First number, end and step of a range, whatever they depend on."""
        if not isinstance(node, ast.Call) or self.callee(node, scope) is not range or node.keywords:
            raise self.source.error(node, "a loop over something that is no range", RANGE)
        if not 1 <= len(node.args) <= 3:
            raise self.source.error(node, f"range of {len(node.args)} arguments", RANGE)
        registers = [self.plain(argument, scope) for argument in node.args]
        first = registers[0] if len(registers) > 1 else self.builder.integer(0)
        stop = registers[0] if len(registers) == 1 else registers[1]
        return first, stop, registers[2] if len(registers) == 3 else self.builder.integer(1)

    def has_data(self, register: int) -> bool:
        """Whether a value depends on operands, or on what a loop carries."""
        steps = self.builder.instructions
        data = {position for position, step in enumerate(steps) if step.operation in ("read", "carry", "item")}
        return self.reaches(register, data)

    def reaches(self, register: int, targets: set[int]) -> bool:
        """Whether a value is computed from one of some others."""
        return not targets.isdisjoint(needed_by(self.builder.instructions, [register], targets.__contains__))

    def reduction(self, node: ast.Call, function: Any, generator: ast.GeneratorExp, scope: Scope) -> int:
        """sum(...), max(...), min(...), prod(...) or mean(...) of a generator expression."""
        operation, emit = _REDUCTIONS[function], self.builder.emit
        is_mean = function in (statistics.mean, statistics.fmean)
        if self.builder.is_exact:
            total = self.accumulated(operation, generator, generator.elt, scope)
            if not is_mean:
                return total
            count = self.accumulated("sum", generator, ast.copy_location(ast.Constant(1.0), node), scope)
            return emit("div", self.builder.number(total), self.builder.number(count))
        loops: list[tuple[int, int]] = []
        outer = self.builder.path
        inside = scope
        for comprehension in generator.generators:
            name = self.target(comprehension)
            first, step, count = self.range(comprehension.iter, inside)
            axis = self.builder.variable(name, count)
            inside = inside | {name: emit("add", first, emit("mul", axis, step))}
            test = self.builder.truth(True)
            for condition in comprehension.ifs:
                register = self.condition(condition, inside)
                test = emit("and", test, register)
                self.builder.path = emit("and", self.builder.path, register)
            loops.append((axis, test))
        value = self.number(generator.elt, inside)
        self.builder.path = outer
        total = self.over(operation, value, loops)
        return emit("div", total, self.over("sum", self.builder.constant(1.0), loops)) if is_mean else total

    def target(self, comprehension: ast.comprehension) -> str:
        """The name that a loop of a generator expression runs over."""
        if not isinstance(comprehension.target, ast.Name):
            raise self.source.error(comprehension.target, "a loop over more than one name", RANGE)
        return comprehension.target.id

    def over(self, operation: Operation, value: int, loops: Sequence[tuple[int, int]]) -> int:
        """A reduction over loops, where their conditions hold."""
        for axis, test in reversed(loops):
            value = self.builder.emit("select", test, value, self.builder.constant(NEUTRAL[operation]))
            value = self.builder.emit(operation, value, axis)
        return value

    def accumulated(self, operation: Operation, generator: ast.GeneratorExp, term: ast.expr, scope: Scope) -> int:
        """A reduction in the order of its terms."""
        raise NotImplementedError


_SPECIAL: dict[Any, tuple[int, Callable[..., Value]]] = {
    bool: (1, lambda self, node, x: self.truth(x)),
    round: (1, Calls.rounded),
    math.ceil: (1, Calls.ceiling),
    math.isnan: (1, Calls.is_nan),
    math.isinf: (1, Calls.is_infinite),
    math.isfinite: (1, Calls.is_finite),
    math.ldexp: (2, Calls.scaled),
    math.frexp: (1, Calls.split),
    math.copysign: (2, Calls.with_sign),
    math.pow: (2, lambda self, node, a, b: self.power(node, self.builder.number(a), b)),
    divmod: (2, Calls.divided),
}
"""Functions that are several operations: their number of arguments, and how they are compiled."""


def _label(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
