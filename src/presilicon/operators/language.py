"""The operator language: scalar Python, read from its source and compiled to a program."""

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from presilicon.operators.program import Builder, Operation
from presilicon.operators.source import ALLOWED, LanguageError, Source

_ARGUMENTS = "one number x, and constants as slope=0.5"
_PATTERNS = "numbers, numbers | numbers, a name or _, with guards as case _ if x < 1"
LARGEST_EXPONENT = 64

_FUNCTIONS: dict[Any, Operation] = {
    abs: "abs",
    math.fabs: "abs",
    min: "min",
    max: "max",
    math.floor: "floor",
    math.sqrt: "sqrt",
    math.exp: "exp",
    math.log: "log",
}
_CONSTANTS = ("pi", "e", "tau", "inf", "nan")
_ARITHMETIC: dict[type[ast.operator], Operation] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_COMPARISONS: dict[type[ast.cmpop], tuple[Operation, bool]] = {
    ast.Lt: ("lt", False),
    ast.LtE: ("le", False),
    ast.Gt: ("lt", True),  # a > b is b < a
    ast.GtE: ("le", True),
    ast.Eq: ("eq", False),
    ast.NotEq: ("ne", False),
}
_FOREIGN: dict[str, str] = {
    "For": "a for loop",
    "AsyncFor": "a for loop",
    "While": "a while loop",
    "ListComp": "a comprehension",
    "SetComp": "a comprehension",
    "DictComp": "a comprehension",
    "GeneratorExp": "a comprehension",
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


@dataclass(frozen=True)
class _Missing:
    """A variable that has no value here, and why."""

    why: str


Scope = dict[str, "int | _Missing"]


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


def compile_function(source: Source, builder: Builder, arguments: Sequence[int]) -> int:
    """The result of a function on `arguments`, the missing ones taken from its defaults, added to a program.

    Raises:
        LanguageError: the function uses something that the language does not have.
    """
    try:
        return _Compiler(source, builder).compile(arguments)
    except RecursionError:
        raise source.error(source.tree, f"the branches of {source.name} go too deep", "a few hundred") from None


class _Compiler:
    def __init__(self, source: Source, builder: Builder) -> None:
        self.source = source
        self.builder = builder
        self.locals = frozenset(source.function.__code__.co_varnames) | frozenset(source.function.__code__.co_cellvars)

    def compile(self, arguments: Sequence[int]) -> int:
        tree = self.source.tree
        flow = self.run(tree.body, self.parameters(arguments))
        if not isinstance(flow, _Return):
            raise self.source.error(tree, f"a path through {tree.name} ends without a return", "a return on every path")
        return flow.register

    def parameters(self, arguments: Sequence[int]) -> Scope:
        spec = self.source.tree.args
        for node in (spec.vararg, spec.kwarg, *spec.kwonlyargs):
            if node is None:
                continue
            raise self.source.error(node, f'the argument "{node.arg}" is not positional', _ARGUMENTS)
        names = [argument.arg for argument in (*spec.posonlyargs, *spec.args)]
        defaults = self.source.function.__defaults__ or ()
        if not names or len(names) - len(defaults) > 1:
            what = f"{self.source.name} has {len(names) - len(defaults)} arguments without a default"
            raise self.source.error(self.source.tree, what, _ARGUMENTS)
        scope: Scope = dict(zip(names, arguments, strict=False))
        for name, default in zip(reversed(names), reversed(defaults), strict=False):
            if name not in scope:
                scope[name] = self.constant(default, self.source.tree, f'the default of "{name}"')
        return scope

    # Statements

    def run(self, statements: Sequence[ast.stmt], scope: Scope) -> _Flow:
        for index, statement in enumerate(statements):
            flow = self.statement(statement, scope)
            if isinstance(flow, _Fall):
                scope = flow.scope
            elif isinstance(flow, _Return):
                return flow
            else:
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
            else:
                scope[name] = _Missing("is not assigned on every path that leads here")
        return scope

    def select(self, condition: int, a: int, b: int) -> int:
        emit = self.builder.emit
        if not self.builder.is_condition(a):
            return emit("select", condition, a, b)
        return emit("or", emit("and", condition, a), emit("and", emit("not", condition), b))

    def statement(self, node: ast.stmt, scope: Scope) -> _Flow:
        match node:
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
                return self.join(condition, self.run(body, scope), self.run(orelse, scope))
            case ast.Match(subject, cases):
                return self.match(self.number(subject, scope), cases, scope)
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
        then = self.run(case.body, inside)
        # A name that a pattern without conditions has caught stays caught when the guard fails.
        return self.join(condition, then, self.match(subject, cases[1:], inside))

    def pattern_scope(self, pattern: ast.pattern, subject: int, scope: Scope) -> Scope:
        if isinstance(pattern, ast.MatchAs) and pattern.pattern is None and pattern.name is not None:
            return scope | {pattern.name: subject}
        return scope

    def pattern(self, pattern: ast.pattern, subject: int) -> int:
        match pattern:
            case ast.MatchAs(pattern=None):
                return self.builder.truth(True)
            case ast.MatchValue(value):
                return self.builder.emit("eq", subject, self.number(value, {}))
            case ast.MatchOr(patterns) if all(isinstance(choice, ast.MatchValue) for choice in patterns):
                result = self.builder.truth(False)
                for choice in patterns:
                    result = self.builder.emit("or", result, self.pattern(choice, subject))
                return result
        kind = type(pattern).__name__.removeprefix("Match").lower()
        raise self.source.error(pattern, f"this pattern ({kind})", _PATTERNS)

    # Expressions

    def number(self, node: ast.expr, scope: Scope) -> int:
        register = self.value(node, scope)
        if self.builder.is_condition(register):
            raise self.source.error(node, "a condition where a number is needed", "1.0 if condition else 0.0")
        return register

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
                return emit("neg", self.number(operand, scope))
            case ast.UnaryOp(ast.UAdd(), operand):
                return self.number(operand, scope)
            case ast.UnaryOp(ast.Not(), operand):
                return emit("not", self.condition(operand, scope))
            case ast.BoolOp(operator, operands):
                joint: Operation = "and" if isinstance(operator, ast.And) else "or"
                registers = [self.condition(operand, scope) for operand in operands]
                result = registers[0]
                for register in registers[1:]:
                    result = emit(joint, result, register)
                return result
            case ast.Compare(left, operators, comparators):
                return self.comparison(node, [left, *comparators], operators, scope)
            case ast.IfExp(test, body, orelse):
                condition, a, b = self.condition(test, scope), self.value(body, scope), self.value(orelse, scope)
                if self.builder.is_condition(a) != self.builder.is_condition(b):
                    raise self.source.error(node, "a number on one side and a condition on the other")
                return self.select(condition, a, b)
            case ast.Call():
                return self.call(node, scope)
        raise self.foreign(node)

    def name(self, node: ast.expr, name: str, scope: Scope) -> int:
        value = scope.get(name)
        if isinstance(value, int):
            return value
        if isinstance(value, _Missing):
            raise self.source.error(node, f'"{name}" {value.why}', "a value on every path")
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
            return self.builder.constant(float(value))
        except OverflowError:
            raise self.source.error(node, f"{what} is larger than any float64", "numbers up to 1.8e308") from None

    def arithmetic(self, node: ast.AST, operator: ast.operator, left: ast.expr, right: ast.expr, scope: Scope) -> int:
        a, b = self.number(left, scope), self.number(right, scope)
        if isinstance(operator, ast.Pow):
            return self.power(node, a, b)
        if type(operator) not in _ARITHMETIC:
            raise self.source.error(
                node, f"the operator {type(operator).__name__}", "+ - * / and ** with a whole number"
            )
        return self.builder.emit(_ARITHMETIC[type(operator)], a, b)

    def power(self, node: ast.AST, base: int, exponent: int) -> int:
        known = self.builder.instructions[exponent]
        allowed = f"whole numbers from -{LARGEST_EXPONENT} to {LARGEST_EXPONENT}; sqrt and exp for others"
        if known.operation != "constant":
            raise self.source.error(node, "an exponent that is no constant", allowed)
        if not known.value.is_integer() or abs(known.value) > LARGEST_EXPONENT:
            raise self.source.error(node, f"the exponent {known.value:g}", allowed)
        return self.builder.power(base, int(known.value))

    def comparison(
        self, node: ast.AST, operands: Sequence[ast.expr], operators: Sequence[ast.cmpop], scope: Scope
    ) -> int:
        registers = [self.number(operand, scope) for operand in operands]
        result = self.builder.truth(True)
        for a, operator, b in zip(registers, operators, registers[1:], strict=False):
            if type(operator) not in _COMPARISONS:
                raise self.source.error(node, f"the comparison {type(operator).__name__}", "< <= > >= == !=")
            operation, is_swapped = _COMPARISONS[type(operator)]
            compared = self.builder.emit(operation, *((b, a) if is_swapped else (a, b)))
            result = self.builder.emit("and", result, compared)
        return result

    def call(self, node: ast.Call, scope: Scope) -> int:
        function = self.callee(node, scope)
        if hasattr(function, "inline"):
            return self.inline(node, function, scope)
        try:
            operation = _FUNCTIONS[function]
        except (KeyError, TypeError):
            name = getattr(function, "__name__", type(function).__name__)
            raise self.source.error(node, f"the call of {name}") from None
        registers = [self.number(argument, scope) for argument in node.args]
        least = 2 if operation in ("min", "max") else 1
        if node.keywords or len(registers) < least or (least == 1 and len(registers) > 1):
            counted = "two numbers or more" if least == 2 else "one number"
            raise self.source.error(node, f"{operation} of {len(registers)} arguments", f"{operation} of {counted}")
        if least == 1:
            return self.builder.emit(operation, registers[0])
        result = registers[0]
        for register in registers[1:]:
            result = self.builder.emit(operation, result, register)
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
            case ast.Attribute():
                raise self.source.error(node, "attribute access")
        raise self.foreign(node.func)

    def inline(self, node: ast.Call, operator: Any, scope: Scope) -> int:
        """Another operator's program in place of its call."""
        if node.keywords and any(keyword.arg is None for keyword in node.keywords):
            raise self.source.error(node, "unpacking")
        registers = [self.number(argument, scope) for argument in node.args]
        named = {str(keyword.arg): self.number(keyword.value, scope) for keyword in node.keywords}
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
