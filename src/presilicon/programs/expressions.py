"""Expressions of the language: what each of them adds to a program."""

import ast
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from presilicon.programs.axes import TensorAxis
from presilicon.programs.program import Builder, Operation
from presilicon.programs.source import ALLOWED, FunctionSource, LanguageError

LARGEST_EXPONENT = 64
_ARITHMETIC: dict[type[ast.operator], Operation] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floordiv", ast.Mod: "mod"
}  # fmt: skip
_BITS: dict[type[ast.operator], Operation] = {
    ast.BitAnd: "bitand", ast.BitOr: "bitor", ast.BitXor: "bitxor", ast.LShift: "shl", ast.RShift: "shr"
}  # fmt: skip
_LOGIC: dict[type[ast.operator], Operation] = {ast.BitAnd: "and", ast.BitOr: "or"}
_COMPARISONS: dict[type[ast.cmpop], tuple[Operation, bool]] = {
    ast.Lt: ("lt", False),
    ast.LtE: ("le", False),
    ast.Gt: ("lt", True),  # a > b is b < a
    ast.GtE: ("le", True),
    ast.Eq: ("eq", False),
    ast.NotEq: ("ne", False),
}
_FOREIGN = {
    "a comprehension": ("ListComp SetComp DictComp", "a loop, or sum(... for k in range(n))"),
    "a comprehension outside of sum, max, min, prod and mean": ("GeneratorExp", "a loop"),
    "a lambda": ("Lambda", "a function with def beside this one"),
    "a function inside the function": ("FunctionDef", "a function beside this one"),
    "try": ("Try", "an if that asks first"),
    "an import": ("Import ImportFrom", "an import at the top of the file"),
    "global": ("Global", "an argument and a result"),
    "nonlocal": ("Nonlocal", "an argument and a result"),
    "an assignment inside an expression": ("NamedExpr", "an assignment of its own"),
    "a dict": ("Dict", "a list outside of the function, by index"),
    "unpacking": ("Starred", "one name for each entry"),
    "an expression without effect": ("Expr", "an assignment, or return"),
    "a class": ("ClassDef", ""), "a string": ("JoinedStr", ""), "an index": ("Subscript", ""), "a set": ("Set", ""),
    "del": ("Delete", ""),
}  # fmt: skip
"""What the language does not have: the nodes of Python that are meant, and what to try instead."""


class LocalTuple(tuple[Any, ...]):
    """Several values in order: a tuple of the function, what it returns, or the lanes of an argument."""

    __slots__ = ()


@dataclass(frozen=True)
class Missing:
    """A variable that has no value here, and why."""

    why: str


@dataclass(frozen=True)
class OperandTensor:
    """An operand that is read by index."""

    name: str
    axes: tuple[TensorAxis, ...]

    @property
    def spelled(self) -> str:
        """An element, as the function would read it."""
        return f"{self.name}[{', '.join('...' if axis.name == '_' else axis.name for axis in self.axes)}]"


Value = int | LocalTuple
"""A register, or several values."""
Scope = dict[str, Any]
"""Values by name, and beside them tensors, and constants that are tables."""


class Expressions:
    """Compiles the expressions of one function."""

    def __init__(self, source: FunctionSource, builder: Builder, callers: tuple[Any, ...] = ()) -> None:
        self.source, self.builder = source, builder
        self.callers = (*callers, source.function)
        """The functions whose calls led here, and this one."""
        code = source.function.__code__
        self.locals = frozenset(code.co_varnames) | frozenset(code.co_cellvars)

    def compile(self, scope: Scope) -> Value:
        """The result of the function."""
        raise NotImplementedError

    @contextmanager
    def under(self, condition: int) -> Iterator[None]:
        """A context for what runs only where a condition holds."""
        builder = self.builder
        outer = builder.path
        builder.paths.append(outer)
        builder.path = builder.emit("and", outer, condition)
        try:
            yield
        finally:
            builder.path = outer
            builder.paths.pop()

    # Kinds

    def select(self, condition: int, a: Value, b: Value) -> Value | None:
        """One of two values; None if one is a tuple and the other is not as long."""
        if isinstance(a, int) and isinstance(b, int):
            return self.builder.select(condition, a, b)
        if isinstance(a, int) or isinstance(b, int) or len(a) != len(b):
            return None
        parts = [self.select(condition, one, other) for one, other in zip(a, b, strict=True)]
        return None if None in parts else LocalTuple(parts)

    def plain(self, node: ast.expr, scope: Scope) -> int:
        """A number or a whole number; a condition is 1 or 0."""
        value = self.value(node, scope)
        if not isinstance(value, int):
            raise self.source.error(node, "a tuple where a number is needed", "one of its entries, as pair[0]")
        return self.builder.whole(value)

    def number(self, node: ast.expr, scope: Scope) -> int:
        """A number."""
        return self.builder.number(self.plain(node, scope))

    def index(self, node: ast.expr, scope: Scope) -> int:
        """A whole number; a number is cut off to one."""
        return self.builder.emit("whole", self.plain(node, scope))

    def bits(self, node: ast.AST, register: int, symbol: str) -> int:
        """A whole number whose bits are needed."""
        if self.builder.kinds[register] != "integer":
            raise self.source.error(node, f"{symbol} of a number that is not whole", "whole numbers", "int(x)")
        return register

    def condition(self, node: ast.expr, scope: Scope) -> int:
        """Whether a value holds: a number does unless it is 0."""
        value = self.value(node, scope)
        if isinstance(value, int):
            return self.truth(value)
        raise self.source.error(node, "a tuple where a condition is needed", "a comparison, as x != 0")

    def truth(self, register: int) -> int:
        """Whether a value is not 0."""
        builder, kind = self.builder, self.builder.kinds[register]
        if kind == "condition":
            return register
        zero = builder.integer(0) if kind == "integer" else builder.constant(0.0)
        return builder.emit("ne", register, zero)

    def is_known(self, condition: int, value: bool | None = None) -> bool:
        """Whether a condition is a constant, or that one."""
        step = self.builder.instructions[condition]
        return step.operation == "truth" and value in (None, bool(step.value))

    # Names and constants

    def value(self, node: ast.expr, scope: Scope) -> Value:
        """The value of an expression."""
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
            case ast.Attribute():
                return self.constant(self.static(node, scope), node, f'"{ast.unparse(node)}"')
            case ast.BinOp(left, operator, right):
                return self.arithmetic(node, operator, left, right, scope)
            case ast.UnaryOp(ast.USub(), operand):
                return emit("neg", self.plain(operand, scope))
            case ast.UnaryOp(ast.UAdd(), operand):
                return self.plain(operand, scope)
            case ast.UnaryOp(ast.Not(), operand):
                return emit("not", self.condition(operand, scope))
            case ast.UnaryOp(ast.Invert(), operand):
                return emit("bitxor", self.bits(node, self.plain(operand, scope), "~"), self.builder.integer(-1))
            case ast.BoolOp(operator, operands):
                return self.chosen(node, isinstance(operator, ast.And), operands, scope)
            case ast.Compare(left, operators, comparators):
                return self.comparison(node, [left, *comparators], operators, scope)
            case ast.IfExp(test, body, orelse):
                condition = self.condition(test, scope)
                if self.is_known(condition):  # the other side may be wrong here, as an index that is tested before
                    return self.value(body if self.is_known(condition, True) else orelse, scope)
                with self.under(condition):
                    a = self.value(body, scope)
                with self.under(emit("not", condition)):
                    b = self.value(orelse, scope)
                return self.either(node, condition, a, b)
            case ast.Tuple(parts) | ast.List(parts) if not any(isinstance(part, ast.Starred) for part in parts):
                return LocalTuple(self.value(part, scope) for part in parts)
            case ast.Call():
                return self.call(node, scope)
            case ast.Subscript():
                return self.subscript(node, scope)
        raise self.foreign(node)

    def either(self, node: ast.AST, condition: int, a: Value, b: Value) -> Value:
        """One of two values that must be alike."""
        result = self.select(condition, a, b)
        if result is None:
            raise self.source.error(node, "tuples of different lengths on two paths", "the same length on every path")
        return result

    def chosen(self, node: ast.AST, is_and: bool, operands: Sequence[ast.expr], scope: Scope) -> Value:
        """`a and b` or `a or b`: the first operand that decides, or the last, as in Python."""
        emit, kinds = self.builder.emit, self.builder.kinds
        result = self.value(operands[0], scope)
        for operand in operands[1:]:
            if not isinstance(result, int):
                raise self.source.error(node, "a tuple where a condition is needed", "a comparison, as x != 0")
            holds = self.truth(result)
            if self.is_known(holds, not is_and):
                return result
            # The next operand counts only where the ones before leave it open.
            with self.under(holds if is_and else emit("not", holds)):
                value = self.value(operand, scope)
            if isinstance(value, int) and kinds[result] == kinds[value] == "condition":
                result = emit("and" if is_and else "or", result, value)
            else:
                result = self.either(node, holds, *((value, result) if is_and else (result, value)))
        return result

    def name(self, node: ast.expr, name: str, scope: Scope) -> Value:
        """The value of a variable, or of a constant outside of the function."""
        value = self.known(node, name, scope)
        if isinstance(value, int | LocalTuple) and name in scope:
            return value
        if isinstance(value, OperandTensor):
            raise self.source.error(node, f"{name} is a tensor, no number", value.spelled)
        return self.constant(value, node, f'"{name}"')

    def known(self, node: ast.AST, name: str, scope: Scope) -> Any:
        """The meaning of a name: a value, a tensor, or an object outside of the function."""
        value = scope.get(name)
        if isinstance(value, Missing):
            raise self.source.error(node, f'"{name}" {value.why}', "a value on every path")
        if value is not None:
            return value
        if name in self.locals:
            raise self.source.error(node, f'"{name}" is read before it is assigned', "a value on every path")
        try:
            return self.source.resolve(name)
        except KeyError:
            raise self.source.error(node, f'there is no "{name}" here', "names of this file and of Python") from None

    def static(self, node: ast.Attribute, scope: Scope) -> Any:
        """The object of a dotted name in a module, as `math.pi`."""
        match node.value:
            case ast.Name(name) if name not in scope and name not in self.locals:
                owner = self.known(node, name, scope)
            case ast.Attribute() as inner:
                owner = self.static(inner, scope)
            case _:
                owner = None
        if not isinstance(owner, ModuleType):
            raise self.source.error(node, f"{ast.unparse(node)}: attribute access", "names in modules, as math.pi")
        if not hasattr(owner, node.attr):
            raise self.source.error(node, f'there is no "{ast.unparse(node)}"', "names in modules, as math.pi")
        return getattr(owner, node.attr)

    def constant(self, value: Any, node: ast.AST, what: str) -> int:
        """The current value of a Python number."""
        value = value.item() if hasattr(value, "dtype") and not getattr(value, "shape", True) else value
        if isinstance(value, bool):
            return self.builder.truth(value)
        if not isinstance(value, int | float):
            raise self.source.error(node, f"{what} is a {type(value).__name__}, no number")
        try:
            number = float(value)
        except OverflowError:
            raise self.source.error(node, f"{what} is larger than any float64", "numbers up to 1.8e308") from None
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            return self.builder.constant(number)
        return self.builder.integer(value) if isinstance(value, int) else self.builder.constant(number)

    # Arithmetic

    def arithmetic(self, node: ast.AST, operator: ast.operator, left: ast.expr, right: ast.expr, scope: Scope) -> int:
        """An operation on two values."""
        builder, kind = self.builder, type(operator)
        if kind in _LOGIC:
            one, other = self.value(left, scope), self.value(right, scope)
            sides = [side for side in (one, other) if isinstance(side, int) and builder.is_condition(side)]
            if len(sides) == 2:
                return builder.emit(_LOGIC[kind], *sides)
        a, b = self.plain(left, scope), self.plain(right, scope)
        if kind is ast.Pow:
            return self.power(node, a, b)
        if kind in _BITS:
            symbol = {"bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>"}[_BITS[kind]]
            return builder.emit(_BITS[kind], self.bits(node, a, symbol), self.bits(node, b, symbol))
        if kind is ast.Div:
            return builder.emit("div", builder.number(a), builder.number(b))
        if kind not in _ARITHMETIC:
            raise self.source.error(node, f"the operator {kind.__name__}", "+ - * / // % ** & | ^ << >>")
        divisor = builder.instructions[b]
        is_whole = builder.kinds[a] == builder.kinds[b] == "integer"
        if kind in (ast.FloorDiv, ast.Mod) and is_whole and divisor.operation == "integer":
            step = int(divisor.value)
            if step == 0:
                raise self.source.error(node, "a division by zero")
            if builder.is_exact and step > 0 and step & (step - 1) == 0:  # bits instead of a division
                if kind is ast.Mod:
                    return builder.emit("bitand", a, builder.integer(step - 1))
                return builder.emit("shr", a, builder.integer(step.bit_length() - 1))
        return builder.emit(_ARITHMETIC[kind], *builder.alike(a, b))

    def power(self, node: ast.AST, base: int, exponent: int) -> int:
        """`base ** exponent` with a known exponent, or of a known base."""
        builder = self.builder
        known, constant = builder.instructions[exponent], ("constant", "integer")
        allowed = f"whole numbers from -{LARGEST_EXPONENT} to {LARGEST_EXPONENT}, or a known base"
        steps = [builder.instructions[register] for register in (base, exponent)]
        if all(step.operation in constant for step in steps):
            return self.known_power(node, *(int(s.value) if s.operation == "integer" else s.value for s in steps))
        if known.operation not in constant and builder.instructions[base].operation in constant:
            return self.exponential(node, base, exponent)
        if known.operation not in constant:
            raise self.source.error(node, "an exponent that is no constant", allowed, "math.exp(y * math.log(x))")
        if not float(known.value).is_integer() or abs(known.value) > LARGEST_EXPONENT:
            what = f"the exponent {known.value:g}"
            raise self.source.error(node, what, allowed, "math.sqrt, or math.exp and math.log")
        return builder.power(base, int(known.value))

    def known_power(self, node: ast.AST, base: float, exponent: float) -> int:
        """A power of constants, as Python has it."""
        try:
            return self.constant(base**exponent, node, "this power")
        except (ArithmeticError, ValueError) as error:
            raise self.source.error(node, f"this power ({error})", "numbers up to 1.8e308") from None

    def exponential(self, node: ast.AST, base: int, exponent: int) -> int:
        """A known base to any power."""
        builder, emit = self.builder, self.builder.emit
        known = builder.instructions[base].value
        if not known > 0:
            raise self.source.error(node, f"{known:g} to a power that is no constant", "a base above 0")
        if builder.is_exact and known == 2 and builder.kinds[base] == builder.kinds[exponent] == "integer":
            return emit("shl", builder.integer(1), exponent)
        if builder.is_exact and known == 2 and builder.kinds[exponent] == "integer":
            return emit("ldexp", builder.constant(1.0), builder.number(exponent))
        exponent = builder.number(exponent)
        if known == 2:
            return emit("exp2", exponent)
        return emit("exp", emit("mul", exponent, builder.constant(math.log(known))))

    def comparison(
        self, node: ast.AST, operands: Sequence[ast.expr], operators: Sequence[ast.cmpop], scope: Scope
    ) -> int:
        """A chain of comparisons."""
        registers = [self.plain(operand, scope) for operand in operands]
        result = self.builder.truth(True)
        for a, operator, b in zip(registers, operators, registers[1:], strict=False):
            if type(operator) not in _COMPARISONS:
                raise self.source.error(node, f"the comparison {type(operator).__name__}", "< <= > >= == !=")
            operation, is_swapped = _COMPARISONS[type(operator)]
            a, b = self.builder.alike(a, b)
            compared = self.builder.emit(operation, *((b, a) if is_swapped else (a, b)))
            result = self.builder.emit("and", result, compared)
        return result

    # What depends on operands, tables and functions

    def subscript(self, node: ast.Subscript, scope: Scope) -> Value:
        """An element of an operand, an entry of a table, or of a tuple."""
        raise NotImplementedError

    def call(self, node: ast.Call, scope: Scope) -> Value:
        """The result of a call."""
        raise NotImplementedError

    def foreign(self, node: ast.AST) -> LanguageError:
        """The error about Python that the language does not have."""
        name = type(node).__name__
        meant = ((label, attempt) for label, (nodes, attempt) in _FOREIGN.items() if name in nodes.split())
        label, attempt = next(meant, (name.lower(), ""))
        return self.source.error(node, f"{label} is not in the language", ALLOWED, attempt)
