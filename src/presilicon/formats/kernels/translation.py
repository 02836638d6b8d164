"""Scalar Python functions as predicated Triton code.

The functions that a function calls are written in its place, loops over constant ranges are unrolled, and tables of
numbers become pointers. Both sides of a branch are computed; `tl.where` selects. Integers have 64 bits and floats are
float64, as in the code that Numba compiles. What cannot be translated raises `UntranslatableError` with file and line.
"""

import ast
import inspect
import math
import operator
import textwrap
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from presilicon.formats.kernels.assembly import as_table, names_used, plain_function

MOST_LINES = 20_000


class UntranslatableError(Exception):
    """A construct that has no Triton code."""


class Text(NamedTuple):
    """A value that is known when the kernel runs: a name, and i, f or b for integers, floats and truths."""

    name: str
    kind: str


class Table(NamedTuple):
    """A constant table behind a pointer."""

    pointer: str
    shape: tuple[int, ...]
    kind: str
    values: Any


DEAD = "dead"
"""The mask of code that no lane reaches."""

_OPERATORS = {
    ast.Add: ("+", operator.add), ast.Sub: ("-", operator.sub), ast.Mult: ("*", operator.mul),
    ast.BitAnd: ("&", operator.and_), ast.BitOr: ("|", operator.or_), ast.BitXor: ("^", operator.xor),
    ast.LShift: ("<<", operator.lshift), ast.RShift: (">>", operator.rshift), ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv), ast.Mod: ("%", operator.mod), ast.Pow: ("**", operator.pow),
}  # fmt: skip
_COMPARISONS = {
    ast.Lt: ("<", operator.lt), ast.LtE: ("<=", operator.le), ast.Gt: (">", operator.gt), ast.GtE: (">=", operator.ge),
    ast.Eq: ("==", operator.eq), ast.NotEq: ("!=", operator.ne),
}  # fmt: skip
_TYPES = {"i": "tl.int64", "f": "tl.float64", "b": "tl.int1"}
_WRAPS = {np.uint8: 8, np.uint16: 16, np.uint32: 32}


class Translation:
    """The lines of one kernel; functions are written into it one call after another."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tables: dict[str, Any] = {}
        """Tables by the name of their pointer."""
        self._count = 0
        self._owners: dict[int, Table] = {}

    def call(self, function: Callable[..., Any], arguments: list[Any]) -> Any:
        """The result of a function: a constant, a `Text`, or a list of them."""
        plain = plain_function(function)
        if not isinstance(plain, FunctionType):
            raise UntranslatableError(f"{function!r} is no Python function")
        return _Call(self, plain).run(arguments)

    def emit(self, text: str, kind: str) -> Text:
        """A new name for a value."""
        self._count += 1
        if self._count > MOST_LINES:
            raise UntranslatableError(f"more than {MOST_LINES} operations")
        name = f"t{self._count}"
        self.lines.append(f"{name} = {text}")
        return Text(name, kind)

    def table(self, values: Any) -> Table:
        """A pointer to a table."""
        if id(values) not in self._owners:
            array = as_table(values)
            name, kind = f"T{len(self.tables)}", "f" if array.dtype.kind == "f" else "i"
            wide = np.float64 if kind == "f" else np.uint8 if array.dtype == np.uint8 else np.int64
            self.tables[name] = np.ascontiguousarray(array, dtype=wide)
            self._owners[id(values)] = Table(name, array.shape, kind, values)
        return self._owners[id(values)]

    # Values

    def text(self, value: Any, kind: str | None = None) -> Text:
        """A value as text of a kind, by default its own."""
        if isinstance(value, Text):
            if kind is None or value.kind == kind:
                return value
            return self.emit(f"({value.name} != 0)" if kind == "b" else f"{value.name}.to({_TYPES[kind]})", kind)
        if isinstance(value, bool | int | float | np.generic):
            number = value.item() if isinstance(value, np.generic) else value
            kind = kind or kind_of(number)
            number = float(number) if kind == "f" else bool(number) if kind == "b" else int(number)
            literal = f'float("{number}")' if isinstance(number, float) and not math.isfinite(number) else repr(number)
            return self.emit(f"tl.full((), {literal}, {_TYPES[kind]})", kind)
        raise UntranslatableError(f"a {type(value).__name__} is no number")

    def binary(self, symbol: str, fold: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        """An arithmetic or bit operation."""
        if not isinstance(a, Text) and not isinstance(b, Text):
            return fold(a, b)
        kinds = {kind_of(a), kind_of(b)}
        if symbol == "/" or (symbol in ("+", "-", "*", "//", "%", "**") and "f" in kinds):
            return self._floats(symbol, a, b)
        if "f" in kinds:
            raise UntranslatableError(f"{symbol} of a float")
        if symbol in ("&", "|", "^") and kinds == {"b"}:
            return self.emit(f"{self.text(a).name} {symbol} {self.text(b).name}", "b")
        if symbol in ("//", "%"):
            return self._divide(symbol, a, b)
        if symbol == "**":
            if isinstance(b, int) and 0 <= b <= 8:
                out: Any = 1
                for _ in range(b):
                    out = self.binary("*", operator.mul, out, a)
                return out
            if a == 2:
                return self.binary("<<", operator.lshift, 1, b)
            raise UntranslatableError("a power of integers")
        return self.emit(f"{self.text(a, 'i').name} {symbol} {self.text(b, 'i').name}", "i")

    def _floats(self, symbol: str, a: Any, b: Any) -> Text:
        if symbol == "**":
            return self._power(a, b)
        x, y = self.text(a, "f"), self.text(b, "f")
        if symbol in ("//", "%"):
            quotient = self.emit(f"tl.floor({x.name} / {y.name})", "f")
            return quotient if symbol == "//" else self.emit(f"{x.name} - {quotient.name} * {y.name}", "f")
        return self.emit(f"{x.name} {symbol} {y.name}", "f")

    def _power(self, a: Any, b: Any) -> Text:
        if not isinstance(a, Text) and a == 2 and kind_of(b) != "f":
            return self.power_of_two(b)
        if isinstance(b, int) and 0 <= b <= 8:
            out: Any = 1.0
            for _ in range(b):
                out = self.binary("*", operator.mul, out, a)
            return self.text(out, "f")
        if not isinstance(a, Text):
            exponent = self.text(b, "f")
            scaled = self.binary("*", operator.mul, exponent, math.log2(a)) if a != 2 else exponent
            return self.emit(f"tl.exp2({self.text(scaled, 'f').name})", "f")
        raise UntranslatableError("a power with neither a constant base nor a small exponent")

    def power_of_two(self, exponent: Any) -> Text:
        """2.0 ** exponent of an integer, exactly: from -2044 to 2046."""
        n = self.text(exponent, "i")
        near = self.emit(f"tl.minimum(tl.maximum({n.name}, -1022), 1023)", "i")
        far = self.emit(f"tl.minimum(tl.maximum({n.name} - {near.name}, -1022), 1023)", "i")
        parts = [self.emit(f"(({x.name} + 1023) << 52).to(tl.float64, bitcast=True)", "f") for x in (near, far)]
        return self.emit(f"{parts[0].name} * {parts[1].name}", "f")

    def _divide(self, symbol: str, a: Any, b: Any) -> Text:
        """Division of integers that rounds down, as Python's."""
        x = self.text(a, "i")
        if isinstance(b, int) and b > 0 and b & (b - 1) == 0:
            return self.emit(f"{x.name} >> {b.bit_length() - 1}" if symbol == "//" else f"{x.name} & {b - 1}", "i")
        y = self.text(b, "i")
        y = self.emit(f"tl.where({y.name} == 0, 1, {y.name})", "i")  # in lanes that do not need it
        rest = self.emit(f"{x.name} % {y.name}", "i")
        off = self.emit(f"({rest.name} != 0) & (({rest.name} < 0) != ({y.name} < 0))", "b")
        if symbol == "%":
            return self.emit(f"tl.where({off.name}, {rest.name} + {y.name}, {rest.name})", "i")
        return self.emit(f"{x.name} // {y.name} - tl.where({off.name}, 1, 0).to(tl.int64)", "i")

    def compare(self, symbol: str, fold: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        """A comparison of numbers."""
        if not isinstance(a, Text) and not isinstance(b, Text):
            return fold(a, b)
        kind = "f" if "f" in (kind_of(a), kind_of(b)) else "i"
        return self.emit(f"{self.text(a, kind).name} {symbol} {self.text(b, kind).name}", "b")

    def both(self, a: Any, b: Any, symbol: str = "&") -> Any:
        """`a and b`, or `a or b` with the symbol |, of truths."""
        neutral = symbol == "&"
        for one, other in ((a, b), (b, a)):
            if not isinstance(one, Text):
                return other if bool(one) == neutral else (not neutral)
        return self.emit(f"{self.text(a, 'b').name} {symbol} {self.text(b, 'b').name}", "b")

    def invert(self, a: Any) -> Any:
        """`not a`."""
        return self.emit(f"{self.text(a, 'b').name} == 0", "b") if isinstance(a, Text) else not a

    def select(self, condition: Any, a: Any, b: Any) -> Any:
        """`a if condition else b`, also of lists."""
        if not isinstance(condition, Text):
            return a if condition else b
        if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
            return [self.select(condition, x, y) for x, y in zip(a, b, strict=True)]
        if a is b or (not isinstance(a, Text) and not isinstance(b, Text) and type(a) is type(b) and a == b):
            return a
        kinds = {kind_of(a), kind_of(b)}
        kind = "f" if "f" in kinds else "b" if kinds == {"b"} else "i"
        names = [self.text(x, kind).name for x in (a, b)]
        return self.emit(f"tl.where({self.text(condition, 'b').name}, {names[0]}, {names[1]})", kind)

    def item(self, owner: Any, index: Any) -> Any:
        """`owner[index]` of a list of values or a table; an index outside is that of a lane that does not need it."""
        if isinstance(owner, list) and not isinstance(index, Text):
            return owner[int(index)]
        if isinstance(owner, list):
            out = owner[0]
            for position, value in enumerate(owner[1:], start=1):
                out = self.select(self.compare("==", operator.eq, index, position), value, out)
            return out
        if not isinstance(owner, Table):
            raise UntranslatableError("an index of something that is no table")
        indices = index if isinstance(index, list) else [index]
        if len(indices) != len(owner.shape):
            raise UntranslatableError("a row of a table")
        if not any(isinstance(part, Text) for part in indices):
            return np.asarray(owner.values)[tuple(int(part) for part in indices)].item()
        flat: Any = 0
        for part, size in zip(indices, owner.shape, strict=True):
            wrapped = self.select(
                self.compare("<", operator.lt, part, 0), self.binary("+", operator.add, part, size), part
            )
            flat = self.binary("+", operator.add, self.binary("*", operator.mul, flat, size), wrapped)
        where = self.text(flat, "i")
        inside = self.emit(f"({where.name} >= 0) & ({where.name} < {math.prod(owner.shape)})", "b")
        load = f"tl.load({owner.pointer} + {where.name}, mask={inside.name}, other=0).to({_TYPES[owner.kind]})"
        return self.emit(load, owner.kind)

    # Functions of Python, `math` and numpy

    def builtin(self, function: Any, arguments: list[Any]) -> Any:
        """The result of a function that is no user's."""
        if not any(isinstance(value, Text) for value in arguments) and function is not math.frexp:
            return function(*arguments)
        if function in (min, max):
            return self._extreme(function, arguments)
        first = arguments[0]
        if function in (int, math.trunc, np.int64, np.int32):
            return self.text(first, "i")
        if function in (float, np.float64):
            return self.text(first, "f")
        if function is bool:
            return self.text(first, "b")
        if function is np.float32:
            return self.emit(f"{self.text(first, 'f').name}.to(tl.float32).to(tl.float64)", "f")
        if function in _WRAPS:
            return self.binary("&", operator.and_, self.text(first, "i"), (1 << _WRAPS[function]) - 1)
        if function is abs:
            return self.emit(f"tl.abs({first.name})", first.kind) if first.kind != "b" else self.text(first, "i")
        if function in (math.fabs, math.floor, math.ceil, math.sqrt, math.exp, math.exp2, math.log, math.log2):
            return self._mathematics(function.__name__, arguments)
        if function in (math.isnan, math.isinf, math.isfinite):
            x = self.text(first, "f").name
            wide = f'(tl.abs({x}) == float("inf"))'
            tests = {"isnan": f"{x} != {x}", "isinf": wide, "isfinite": f"({x} == {x}) & ({wide} == 0)"}
            return self.emit(tests[function.__name__], "b")
        if function is math.copysign:
            size = self.emit(f"tl.abs({self.text(first, 'f').name})", "f")
            sign = self.emit(f"{self.text(arguments[1], 'f').name}.to(tl.int64, bitcast=True) < 0", "b")
            return self.emit(f"tl.where({sign.name}, -{size.name}, {size.name})", "f")
        if function is math.ldexp:
            return self.binary("*", operator.mul, self.text(first, "f"), self.power_of_two(arguments[1]))
        if function is math.frexp:
            return self._split(first)
        if function is math.pow:
            return self._power(first, arguments[1])
        if function is round and len(arguments) == 1:
            return self._round(self.text(first, "f"))
        raise UntranslatableError(f"{getattr(function, '__name__', function)} has no Triton code")

    def _extreme(self, function: Any, arguments: list[Any]) -> Any:
        out = arguments[0]
        for value in arguments[1:]:
            smaller = (value, out) if function is min else (out, value)
            out = self.select(self.compare("<", operator.lt, *smaller), value, out)
        return out

    def _mathematics(self, name: str, arguments: list[Any]) -> Any:
        x = self.text(arguments[0], "f").name
        if name == "fabs":
            return self.emit(f"tl.abs({x})", "f")
        if len(arguments) > 1:
            raise UntranslatableError(f"{name} with two arguments")
        out = self.emit(f"tl.{name}({x})", "f")
        return self.text(out, "i") if name in ("floor", "ceil") else out

    def _split(self, value: Any) -> list[Text]:
        bits = self.emit(f"{self.text(value, 'f').name}.to(tl.int64, bitcast=True)", "i")
        field = self.emit(f"({bits.name} >> 52) & 2047", "i")
        number = self.emit(f"({field.name} != 0) & ({field.name} != 2047)", "b")
        half = self.emit(f"(({bits.name} & ~(2047 << 52)) | (1022 << 52)).to(tl.float64, bitcast=True)", "f")
        mantissa = self.select(number, half, self.text(value, "f"))
        return [mantissa, self.select(number, self.binary("-", operator.sub, field, 1022), 0)]

    def _round(self, x: Text) -> Any:
        low = self.emit(f"tl.floor({x.name})", "f")
        rest = self.emit(f"{x.name} - {low.name}", "f")
        whole = self.text(low, "i")
        odd = self.emit(f"({whole.name} & 1) == 1", "b")
        up = self.emit(f"({rest.name} > 0.5) | (({rest.name} == 0.5) & {odd.name})", "b")
        return self.emit(f"{whole.name} + tl.where({up.name}, 1, 0).to(tl.int64)", "i")


def kind_of(value: Any) -> str:
    """i, f or b."""
    if isinstance(value, Text):
        return value.kind
    if isinstance(value, bool | np.bool_):
        return "b"
    return "f" if isinstance(value, float | np.floating) else "i"


class _Call:
    """One call of a function, written into a translation."""

    def __init__(self, translation: Translation, function: FunctionType) -> None:
        self.t, self.function = translation, function
        self.scope: dict[str, Any] = names_used(function)
        self.names: dict[str, Any] = {}
        self.result: Any = None
        self.has_result = False
        self._breaks: list[list[Any]] = []

    def run(self, arguments: list[Any]) -> Any:
        try:
            source = textwrap.dedent(inspect.getsource(self.function))
        except OSError:
            raise UntranslatableError(f"the source of {self.function.__name__} cannot be read") from None
        tree = ast.parse(source).body[0]
        ast.increment_lineno(tree, self.function.__code__.co_firstlineno - 1)
        if not isinstance(tree, ast.FunctionDef):
            raise UntranslatableError(f"{self.function.__name__} is no `def`")
        parameters = [argument.arg for argument in tree.args.args]
        defaults = list(self.function.__defaults__ or ())
        values = [*arguments, *defaults[len(defaults) - (len(parameters) - len(arguments)) :]]
        self.names = dict(zip(parameters, values, strict=True))
        live = self.block(tree.body, True)
        if live is not DEAD and live is not False:
            self.fail(tree, "a path without a return")
        return self.result

    def fail(self, node: ast.AST, reason: str) -> NoReturn:
        path = self.function.__code__.co_filename
        raise UntranslatableError(f'File "{path}", line {getattr(node, "lineno", 0)}\n{reason}')

    # Statements: each takes the mask of the lanes that reach it and returns that of the lanes that go on.

    def block(self, body: list[ast.stmt], live: Any) -> Any:
        for statement in body:
            if live is DEAD or live is False:
                return DEAD
            try:
                live = self.statement(statement, live)
            except UntranslatableError as error:
                if "line " in str(error):
                    raise
                self.fail(statement, str(error))
        return live

    def statement(self, node: ast.stmt, live: Any) -> Any:
        match node:
            case ast.Return(value=value):
                self.give(None if value is None else self.value(value), live, node)
                return DEAD
            case ast.Assign(targets=targets, value=value):
                result = self.value(value)
                for target in targets:
                    self.assign(target, result, live)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self.assign(target, self.value(value), live)
            case ast.AugAssign(target=target, op=op, value=value):
                symbol, fold = _OPERATORS[type(op)]
                self.assign(target, self.t.binary(symbol, fold, self.value(target), self.value(value)), live)
            case ast.If():
                return self.branch(node, live)
            case ast.For():
                return self.loop(node, live)
            case ast.Break() | ast.Continue() if self._breaks:
                self._breaks[-1][isinstance(node, ast.Continue)].append(live)
                return DEAD
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case _:
                self.fail(node, f"`{type(node).__name__.lower()}` has no Triton code")
        return live

    def give(self, value: Any, live: Any, node: ast.AST) -> None:
        if value is None:
            self.fail(node, "a return without a value")
        self.result = value if not self.has_result else self.t.select(live, value, self.result)
        self.has_result = True

    def assign(self, target: ast.expr, value: Any, live: Any) -> None:
        if isinstance(target, ast.Tuple):
            if not isinstance(value, list) or len(value) != len(target.elts):
                self.fail(target, "an assignment of a tuple that is none")
            for part, single in zip(target.elts, value, strict=True):
                self.assign(part, single, live)
            return
        if not isinstance(target, ast.Name):
            self.fail(target, "an assignment to an element")
        before = self.names.get(target.id)
        self.names[target.id] = value if before is None or live is True else self.t.select(live, value, before)

    def branch(self, node: ast.If, live: Any) -> Any:
        condition = self.truth(node.test)
        if not isinstance(condition, Text):
            return self.block(node.body if condition else node.orelse, live)
        first = self.block(node.body, self.t.both(live, condition))
        second = self.block(node.orelse, self.t.both(live, self.t.invert(condition)))
        return self.join(first, second)

    def join(self, first: Any, second: Any) -> Any:
        if first is DEAD or second is DEAD:
            return second if first is DEAD else first
        return self.t.both(first, second, "|")

    def loop(self, node: ast.For, live: Any) -> Any:
        call = node.iter
        is_range = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"
        if not is_range or not isinstance(node.target, ast.Name) or node.orelse:
            self.fail(node, "a loop must be over range(...) with one name")
        assert isinstance(call, ast.Call)
        bounds = [self.value(argument) for argument in call.args]
        if any(isinstance(bound, Text) for bound in bounds):
            self.fail(node, "the bounds of a loop must be constants")
        ended: list[Any] = []
        for number in range(*(int(bound) for bound in bounds)):
            if live is DEAD:
                break
            self.names[node.target.id] = number
            self._breaks.append([ended, []])
            live = self.block(node.body, live)
            for skipped in self._breaks.pop()[1]:
                live = self.join(live, skipped)
        for mask in ended:
            live = self.join(live, mask)
        return live

    # Expressions

    def truth(self, node: ast.expr) -> Any:
        value = self.value(node)
        return self.t.text(value, "b") if isinstance(value, Text) else bool(value)

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=constant) if isinstance(constant, int | float):
                return constant
            case ast.Name(id=name):
                return self.name(node, name)
            case ast.Attribute():
                return self.attribute(node)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                symbol, fold = _OPERATORS[type(op)]
                return self.t.binary(symbol, fold, self.value(left), self.value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.value(operand)
                if not isinstance(value, Text):
                    return -value
                value = self.t.text(value, "i") if value.kind == "b" else value
                return self.t.emit(f"-{value.name}", value.kind)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.t.invert(self.truth(operand))
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return self.t.binary("^", operator.xor, self.value(operand), -1)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.value(operand)
            case ast.BoolOp(op=op, values=values):
                out = self.truth(values[0])
                for part in values[1:]:
                    out = self.t.both(out, self.truth(part), "&" if isinstance(op, ast.And) else "|")
                return out
            case ast.Compare():
                return self.comparison(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                condition = self.truth(test)
                if not isinstance(condition, Text):
                    return self.value(body if condition else orelse)
                return self.t.select(condition, self.value(body), self.value(orelse))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return [self.value(part) for part in parts]
            case ast.Subscript(value=owner, slice=index):
                return self.t.item(self.value(owner), self.value(index))
            case ast.Call():
                return self.call(node)
        self.fail(node, f"`{ast.unparse(node)[:60]}` has no Triton code")

    def name(self, node: ast.expr, name: str) -> Any:
        if name in self.names:
            return self.names[name]
        if name not in self.scope:
            self.fail(node, f"the name {name} is unknown here")
        value = self.scope[name]
        if isinstance(value, bool | int | float | np.generic):
            return value
        if as_table(value) is not None:
            return self.t.table(value)
        self.fail(node, f"{name} is neither a number nor a table of numbers")

    def attribute(self, node: ast.Attribute) -> Any:
        value = self.static(node)
        if isinstance(value, int | float):
            return value
        self.fail(node, f"`{ast.unparse(node)}` is no number")

    def static(self, node: ast.expr) -> Any:
        """A function or module that is known now; None if it is none."""
        if isinstance(node, ast.Name):
            builtins = {f.__name__: f for f in (abs, min, max, int, float, bool, round, len)}
            return self.scope.get(node.id, builtins.get(node.id))
        if isinstance(node, ast.Attribute):
            owner = self.static(node.value)
            return getattr(owner, node.attr, None) if isinstance(owner, ModuleType) else None
        return None

    def comparison(self, node: ast.Compare) -> Any:
        left, out = self.value(node.left), True
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            if type(op) not in _COMPARISONS:
                self.fail(node, f"`{ast.unparse(node)[:60]}` has no Triton code")
            right = self.value(right_node)
            symbol, fold = _COMPARISONS[type(op)]
            out = self.t.both(out, self.t.compare(symbol, fold, left, right))
            left = right
        return out

    def call(self, node: ast.Call) -> Any:
        function = self.static(node.func)
        if function is None or node.keywords:
            self.fail(node, f"`{ast.unparse(node)[:60]}` calls no function that is known here")
        arguments = [self.value(argument) for argument in node.args]
        if isinstance(plain_function(function), FunctionType):
            return self.t.call(function, arguments)
        if function is len and isinstance(arguments[0], list | Table):
            return len(arguments[0]) if isinstance(arguments[0], list) else arguments[0].shape[0]
        return self.t.builtin(function, arguments)
