"""Statements of the language. Branches are joined where they meet: variables, and returns with their condition."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from presilicon.programs.calls import Calls
from presilicon.programs.expressions import LocalTuple, Missing, Scope, Value
from presilicon.programs.program import Builder
from presilicon.programs.source import FunctionSource

_PATTERNS = "numbers, numbers | numbers, a name or _, with guards as case _ if x < 1"
SKIP, LEAVE = ".skip", ".leave"
"""Variables of a loop: whether the rest of a round is skipped, and whether the loop is left."""


@dataclass(frozen=True)
class Return:
    """Every path has returned a value."""

    value: Value


@dataclass(frozen=True)
class Fall:
    """The end of the statements was reached, with these variables."""

    scope: Scope


@dataclass(frozen=True)
class Partly:
    """Some paths have returned a value, and the others have reached the end with these variables."""

    returned: int
    """The condition under which it was returned."""
    value: Value
    scope: Scope


Flow = Return | Fall | Partly


class Statements(Calls):
    """Compiles the statements of one function."""

    def __init__(
        self, source: FunctionSource, builder: Builder, callers: tuple[Any, ...] = (), returns_number: bool = False
    ) -> None:
        super().__init__(source, builder, callers)
        self.returns_number = returns_number

    def compile(self, scope: Scope) -> Value:
        """The result of the function."""
        tree = self.source.tree
        flow = self.run(tree.body, scope)
        if not isinstance(flow, Return):
            raise self.source.error(tree, f"a path through {tree.name} ends without a return", "a return on every path")
        return flow.value

    def run(self, statements: Sequence[ast.stmt], scope: Scope) -> Flow:
        """The state after some statements."""
        for index, statement in enumerate(statements):
            flow = self.statement(statement, scope)
            if isinstance(flow, Return):
                return flow
            rest = statements[index + 1 :]
            skip = flow.scope.get(SKIP)
            if isinstance(flow, Partly):
                with self.under(self.builder.emit("not", flow.returned)):
                    after = self.unless(skip, flow.scope, rest)
                return self.join(flow.returned, Return(flow.value), after)
            if skip is not None and not self.is_known(skip, False):
                return self.unless(skip, flow.scope, rest)
            scope = flow.scope
        return Fall(scope)

    def unless(self, skip: int | None, scope: Scope, statements: Sequence[ast.stmt]) -> Flow:
        """The state after the rest of a round, which runs unless it is skipped."""
        if skip is None or self.is_known(skip, False):
            return self.run(statements, scope)
        if self.is_known(skip, True) or not statements:
            return Fall(scope)
        with self.under(self.builder.emit("not", skip)):
            rest = self.run(statements, scope | {SKIP: self.builder.truth(False)})
        return self.join(skip, Fall(scope), rest)

    def join(self, condition: int, then: Flow, other: Flow) -> Flow:
        """The state after a branch: returned values are joined with returned values, variables with variables."""
        known = self.builder.instructions[condition]
        if known.operation == "truth":
            return then if known.value else other
        match then, other:
            case Return(a), Return(b):
                return Return(self.either(self.source.tree, condition, a, b))
            case Fall(a), Fall(b):
                return Fall(self.merge(condition, a, b))
        values = [None if isinstance(flow, Fall) else flow.value for flow in (then, other)]
        scopes = [None if isinstance(flow, Return) else flow.scope for flow in (then, other)]
        returned = self.builder.select(condition, self.has_returned(then), self.has_returned(other))
        one, two = values
        value = two if one is None else one if two is None else self.either(self.source.tree, condition, one, two)
        first, second = scopes
        scope = second if first is None else first if second is None else self.merge(condition, first, second)
        assert value is not None
        assert scope is not None
        return Partly(returned, value, scope)

    def has_returned(self, flow: Flow) -> int:
        """The condition under which a value was returned."""
        return flow.returned if isinstance(flow, Partly) else self.builder.truth(isinstance(flow, Return))

    def merge(self, condition: int, a: Scope, b: Scope) -> Scope:
        """The variables after a branch."""
        scope: Scope = {}
        for name in dict.fromkeys([*a, *b]):
            one, other = a.get(name), b.get(name)
            if isinstance(one, int | LocalTuple) and isinstance(other, int | LocalTuple):
                joined = self.select(condition, one, other)
                scope[name] = Missing("is a tuple of another length on another path") if joined is None else joined
            elif one is other or (type(one) is type(other) and not hasattr(one, "shape") and one == other):
                scope[name] = one
            else:
                scope[name] = Missing("is not assigned on every path that leads here")
        return scope

    def statement(self, node: ast.stmt, scope: Scope) -> Flow:
        """The state after a statement."""
        match node:
            case ast.Return(value=None):
                raise self.source.error(node, "return without a number", "return and a number")
            case ast.Return(value):
                assert value is not None
                return Return(self.number(value, scope) if self.returns_number else self.value(value, scope))
            case ast.Assign(targets, value):
                assigned = self.value(value, scope)
                for target in targets:
                    scope = scope | self.assigned(target, assigned)
                return Fall(scope)
            case ast.AnnAssign(target, value=value):
                return Fall(scope if value is None else scope | self.assigned(target, self.value(value, scope)))
            case ast.AugAssign(ast.Name(id=name) as target, operator, value):
                read = ast.copy_location(ast.Name(target.id, ast.Load()), node)
                return Fall(scope | {name: self.arithmetic(node, operator, read, value, scope)})
            case ast.If(test, body, orelse):
                condition = self.condition(test, scope)
                if self.is_known(condition):
                    return self.run(body if self.is_known(condition, True) else orelse, scope)
                with self.under(condition):
                    then = self.run(body, scope)
                with self.under(self.builder.emit("not", condition)):
                    other = self.run(orelse, scope)
                return self.join(condition, then, other)
            case ast.For() | ast.While():
                return self.loop(node, scope)
            case ast.Break() | ast.Continue():
                flags = {SKIP} if isinstance(node, ast.Continue) else {SKIP, LEAVE}
                return Fall(scope | dict.fromkeys(flags, self.builder.truth(True)))
            case ast.Match(subject, cases):
                return self.match(self.plain(subject, scope), cases, scope)
            case ast.Pass() | ast.Expr(ast.Constant(str())):
                return Fall(scope)
            case ast.Expr(value):
                self.value(value, scope)  # report an error inside the expression first
        raise self.foreign(node)

    def assigned(self, target: ast.expr, value: Value) -> Scope:
        """The variables that an assignment sets."""
        match target:
            case ast.Name(name):
                return {name: value}
            case ast.Tuple(parts) | ast.List(parts):
                if not isinstance(value, LocalTuple) or len(value) != len(parts):
                    given = f"{len(value)} values" if isinstance(value, LocalTuple) else "one number"
                    raise self.source.error(target, f"{given} for {len(parts)} names", "as many values as names")
                names: Scope = {}
                for part, entry in zip(parts, value, strict=True):
                    names |= self.assigned(part, entry)
                return names
        raise self.source.error(
            target, "an assignment to an entry or an attribute", "names, and tuples of names", "a new tuple"
        )

    def loop(self, node: ast.For | ast.While, scope: Scope) -> Flow:
        """The state after a loop."""
        raise NotImplementedError

    def match(self, subject: int, cases: Sequence[ast.match_case], scope: Scope) -> Flow:
        """The state after a `match` on a number."""
        if not cases:
            return Fall(scope)
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
        """The variables inside a case."""
        if isinstance(pattern, ast.MatchAs) and pattern.pattern is None and pattern.name is not None:
            return scope | {pattern.name: subject}
        return scope

    def pattern(self, pattern: ast.pattern, subject: int) -> int:
        """Whether a case applies, without its guard."""
        match pattern:
            case ast.MatchAs(pattern=None):
                return self.builder.truth(True)
            case ast.MatchValue(value):
                return self.builder.emit("eq", *self.builder.alike(subject, self.plain(value, {})))
            case ast.MatchOr(patterns) if all(isinstance(choice, ast.MatchValue) for choice in patterns):
                result = self.builder.truth(False)
                for choice in patterns:
                    result = self.builder.emit("or", result, self.pattern(choice, subject))
                return result
        kind = type(pattern).__name__.removeprefix("Match").lower()
        raise self.source.error(pattern, f"this pattern ({kind})", _PATTERNS)
