"""Loops of the language: as reductions, written out round by round, or as loops of the program."""

import ast
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from presilicon.programs.calls import JOINED, NEUTRAL, RANGE
from presilicon.programs.expressions import LocalTuple, Missing, OperandTensor, Scope, Value
from presilicon.programs.program import Builder, Kind, Operation, Program
from presilicon.programs.statements import LEAVE, SKIP, Fall, Flow, Partly, Return, Statements

TOTAL = ".total"
"""The variable of a reduction that is made in order."""
LARGEST_LOOP = 4096
"""The most rounds of a loop that is written out."""
LONG = 64
"""Rounds from which a loop of a function on codes is a loop of the program, which compiles sooner."""


class SizesNeeded(Exception):  # noqa: N818
    """A loop must be written out, and its length depends on sizes that are not known yet."""


class _Part(NamedTuple):
    """The part that a round of a loop has in a variable: what it adds to a sum, or offers to an extreme."""

    operation: Operation
    value: int
    takes_last: bool = False
    """Whether the last of equal values is taken, as `if x >= best: best = x` does."""


class _Bounds(NamedTuple):
    """The numbers of a range."""

    name: str
    first: int
    stop: int
    step: int


class Loops(Statements):
    """Compiles the loops of one function."""

    def loop(self, node: ast.For | ast.While, scope: Scope) -> Flow:
        """A loop: sums, products and extremes as reductions, others round by round, or as a loop of the program."""
        if node.orelse:
            raise self.source.error(node, "a loop with else", "for k in range(n) and while, without else", "a flag")
        if isinstance(node, ast.While):
            return self.repeated(node, None, scope)
        if not isinstance(node.target, ast.Name):
            raise self.source.error(node, "a loop over more than one name", "for k in range(n), without else")
        name, builder = node.target.id, self.builder
        bounds = self.bounds(node.iter, scope)
        if any(builder.kinds[bound] != "integer" or self.has_data(bound) or builder.free[bound] for bound in bounds):
            whole = [self.bits(node.iter, bound, "a bound") for bound in bounds]
            return self.repeated(node, _Bounds(name, *whole), scope)
        known = builder.instructions[bounds[2]]
        if known.operation == "integer" and known.value < 0:
            return self.downward(node, name, bounds, scope)
        first, step, count = self.range(node.iter, scope)
        rounds = builder.instructions[count]
        if not builder.is_exact and (rounds.operation != "integer" or rounds.value > 2):
            reduced = self.reduced(name, node.body, scope, first, step, count)
            if reduced is not None:
                return Fall(reduced)
        if rounds.operation != "integer":
            raise SizesNeeded
        numbers = (
            builder.emit("add", first, builder.emit("mul", builder.integer(place), step))
            for place in range(int(rounds.value))
        )
        return self.in_order(node, _Bounds(name, *bounds), int(rounds.value), numbers, scope)

    def downward(self, node: ast.For, name: str, bounds: tuple[int, int, int], scope: Scope) -> Flow:
        """A loop over a constant range that falls."""
        values = [self.builder.instructions[bound] for bound in bounds]
        if any(value.operation != "integer" for value in values):
            raise self.source.error(node, "a step that is not a constant of at least 1", RANGE)
        numbers = range(*(int(value.value) for value in values))
        return self.in_order(node, _Bounds(name, *bounds), len(numbers), map(self.builder.integer, numbers), scope)

    def in_order(self, node: ast.For, bounds: _Bounds, count: int, numbers: Iterator[int], scope: Scope) -> Flow:
        """A loop over a known range whose rounds need the ones before."""
        if self.builder.is_exact and count > LONG:
            return self.repeated(node, bounds, scope)
        if count > LARGEST_LOOP:
            what = f"a loop of {count} rounds, each of which needs the one before"
            raise self.source.error(node, what, f"{LARGEST_LOOP} rounds, or a sum, product, maximum or minimum")
        return self.written_out(bounds.name, numbers, node.body, scope)

    def written_out(self, name: str, numbers: Iterator[int], body: Sequence[ast.stmt], scope: Scope) -> Flow:
        """The state after the rounds of a loop one by one; later ones count where no `break` was reached."""
        builder = self.builder
        outer = {flag: scope.get(flag) for flag in (SKIP, LEAVE)}
        no = builder.truth(False)
        ends: list[tuple[int, Flow]] = []
        flow: Flow = Fall(scope)
        with ExitStack() as conditions:
            for number in numbers:
                flow = self.run(body, scope | {name: number, SKIP: no, LEAVE: no})
                if isinstance(flow, Return):
                    break
                scope = flow.scope
                if isinstance(flow, Partly):
                    ends.append((flow.returned, Return(flow.value)))
                    conditions.enter_context(self.under(builder.emit("not", flow.returned)))
                flow, leave = Fall(scope), scope[LEAVE]
                if self.is_known(leave, True):
                    break
                if not self.is_known(leave, False):
                    ends.append((leave, flow))
                    conditions.enter_context(self.under(builder.emit("not", leave)))
        for condition, end in reversed(ends):
            flow = self.join(condition, end, flow)
        return flow if isinstance(flow, Return) else _with_flags(flow, outer)

    # Loops of the program

    def repeated(self, node: ast.For | ast.While, bounds: _Bounds | None, scope: Scope) -> Flow:
        """A loop whose rounds are made one after another by every execution, as many as data ask for."""
        names = sorted({part.id for part in ast.walk(node) if isinstance(part, ast.Name)} & scope.keys())
        own = {name: scope[name] for name in names if isinstance(scope[name], int | LocalTuple)}
        stored = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        changing = [name for name in own if name in stored and (bounds is None or name != bounds.name)]
        fixed = [name for name in own if name not in changing and (bounds is None or name != bounds.name)]
        start = [register for name in changing for register in _registers(own[name])]
        start += [self.builder.integer(0)]  # whether the loop was left
        rest = [register for name in fixed for register in _registers(own[name])]
        if bounds is not None:
            start, rest = [*start, bounds.first], [*rest, bounds.stop, bounds.step]
        start, rest = ([self.builder.whole(register) for register in part] for part in (start, rest))
        kinds: list[Kind] = [self.builder.kinds[register] for register in start]
        results: list[Kind] = []
        while True:  # until the kinds of what is carried are those of what a round hands on
            rounds = _Rounds(self, node, bounds, scope, own, changing, fixed, kinds, results, rest)
            if rounds.kinds == kinds and rounds.results == results:
                break
            kinds, results = rounds.kinds, rounds.results
        numbers = [self.builder.number(at) if kind == "number" else at for at, kind in zip(start, kinds, strict=True)]
        empty = [self.builder.constant(0.0) if kind == "number" else self.builder.integer(0) for kind in results]
        has_returned = [self.builder.integer(0)] if results else []
        carried = [*numbers, *has_returned, *empty]
        program = rounds.finish()
        items = self.builder.loop(self.builder.path, [*carried, *rest], program)
        after: Scope = scope | {name: Missing("is assigned only in a loop") for name in stored}
        place = 0
        for name in changing:
            after[name], place = _rebuilt(own[name], items, place)
        if not results:
            return Fall(after)
        returned = self.truth(items[len(numbers)])
        values = items[len(numbers) + 1 :]
        return Partly(returned, values[0] if rounds.returns_one else LocalTuple(values), after)

    # Reductions

    def accumulated(self, operation: Operation, generator: ast.GeneratorExp, term: ast.expr, scope: Scope) -> int:
        """A reduction in the order of its terms: the loop that Python makes, with a variable of its own."""
        total, read = ast.Name(TOTAL, ast.Store()), ast.Name(TOTAL, ast.Load())
        step: ast.stmt
        if operation in ("sum", "prod"):
            step = ast.AugAssign(total, ast.Add() if operation == "sum" else ast.Mult(), term)
        else:
            better = ast.Compare(term, [ast.Gt() if operation == "greatest" else ast.Lt()], [read])
            step = ast.Assign([total], ast.IfExp(better, term, read))
        for comprehension in reversed(generator.generators):
            for test in reversed(comprehension.ifs):
                step = ast.If(test, [step], [])
            step = ast.For(ast.Name(self.target(comprehension), ast.Store()), comprehension.iter, [step], [])
        ast.fix_missing_locations(ast.copy_location(step, generator))
        builder, neutral = self.builder, NEUTRAL[operation]
        whole = {"greatest": -(2**63), "least": 2**63 - 1, "sum": 0, "prod": 1}[operation]
        for start in (builder.integer(whole), builder.constant(neutral)):
            flow = self.run([step], scope | {TOTAL: start})
            assert isinstance(flow, Fall)
            result: int = flow.scope[TOTAL]
            if builder.kinds[result] == "integer":
                break
        return result

    def reduced(
        self, name: str, body: Sequence[ast.stmt], scope: Scope, first: int, step: int, count: int
    ) -> Scope | None:
        """The scope after a loop whose variables are sums, products or extremes of what the rounds compute."""
        builder, emit = self.builder, self.builder.emit
        if any(isinstance(part, ast.Break | ast.Continue) for statement in body for part in ast.walk(statement)):
            return None
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
        if not isinstance(flow, Fall):
            return None
        after: Scope = scope | {name: Missing("is assigned only in a loop")}
        for key in sorted(assigned):
            if key not in carried:
                after[key] = Missing("is assigned only in a loop")
                continue
            end = flow.scope[key]
            part = self.part_of_round(end, carried[key], set(carried.values())) if isinstance(end, int) else None
            if part is None:
                return None
            before, value = scope[key], part.value
            if part.takes_last:  # the last of equal ones is the first of those in reverse
                last = emit("sub", count, builder.integer(1))
                value = builder.substitute(value, {axis: emit("sub", last, axis)})
            compares = float(part.operation in ("greatest", "least"))
            pair = builder.alike(before, emit(part.operation, value, axis, value=compares))
            after[key] = emit(JOINED[part.operation], *(reversed(pair) if part.takes_last else pair))
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
                    neutral = builder.constant(NEUTRAL[part.operation])
                    return part._replace(value=emit("select", at[0], builder.number(part.value), neutral))
        return None


class _Rounds:
    """A round of a loop, compiled as a program of its own for given kinds of what is carried."""

    def __init__(
        self, outer: Loops, node: ast.For | ast.While, bounds: _Bounds | None, scope: Scope, own: Scope,
        changing: Sequence[str], fixed: Sequence[str], kinds: Sequence[Kind], results: Sequence[Kind],
        rest: Sequence[int],
    ) -> None:  # fmt: skip
        builder = self.builder = Builder(is_exact=outer.builder.is_exact)
        compiler = type(outer)(outer.source, builder, outer.callers[:-1], outer.returns_number)
        flags: list[Kind] = ["integer", *results] if results else []
        places = [*kinds, *flags, *(outer.builder.kinds[register] for register in rest)]
        inputs = [
            builder.emit("carry", name=str(place), value=float(kind == "integer")) for place, kind in enumerate(places)
        ]
        inside: Scope = {
            name: Missing("is read inside of a loop whose number of rounds depends on data")
            if isinstance(value, OperandTensor)
            else value
            for name, value in scope.items()
            if not isinstance(value, int | LocalTuple)
        }
        place = 0
        for name in changing:
            inside[name], place = _rebuilt(own[name], inputs, place)
        is_left = inputs[place]
        position = inputs[place + 1] if bounds is not None else None
        place = len(kinds) + len(flags)
        for name in fixed:
            inside[name], place = _rebuilt(own[name], inputs, place)
        emit, no = builder.emit, builder.truth(False)
        goes_on = emit("eq", is_left, builder.integer(0))
        if bounds is not None:
            assert position is not None
            stop, step = inputs[-2:]
            rises, falls = emit("lt", position, stop), emit("lt", stop, position)
            upward = outer.builder.instructions[bounds.step]
            is_upward = emit("lt", builder.integer(0), step)
            if upward.operation == "integer":
                is_upward = builder.truth(upward.value > 0)
            goes_on = emit("and", goes_on, builder.select(is_upward, rises, falls))
            inside[bounds.name] = position
        else:
            assert isinstance(node, ast.While)
            with compiler.under(goes_on):
                goes_on = emit("and", goes_on, compiler.condition(node.test, inside))
        with compiler.under(goes_on):
            flow = compiler.run(node.body, inside | {SKIP: no, LEAVE: no})
        after = inside | {LEAVE: no} if isinstance(flow, Return) else flow.scope
        returned = compiler.has_returned(flow)
        left = emit("or", after[LEAVE], returned)
        values = [register for name in changing for register in self._same(outer, node, name, own[name], after[name])]
        values.append(left)
        if bounds is not None:
            assert position is not None
            values.append(emit("add", position, inputs[-1]))
        returned_values = [] if isinstance(flow, Fall) else list(_registers(flow.value))
        self.returns_one = not isinstance(flow, Fall) and isinstance(flow.value, int)
        if results and len(results) == len(returned_values):
            # What an earlier round returned stays: there is no later one.
            values += [returned, *returned_values]
        self.outputs = [goes_on, *map(builder.whole, values)]
        found = [builder.kinds[register] for register in self.outputs[1:]]
        joint = [_wider(one, other) for one, other in zip(found, kinds, strict=False)]
        self.kinds = joint
        self.results: list[Kind] = [builder.kinds[builder.whole(register)] for register in returned_values]
        self._places = places

    def _same(self, outer: Loops, node: ast.AST, name: str, before: Value, after: object) -> tuple[int, ...]:
        if isinstance(after, int | LocalTuple) and len(_registers(after)) == len(_registers(before)):
            return _registers(after)
        raise outer.source.error(node, f'"{name}" changes between a number and a tuple in a loop', "the same length")

    def finish(self) -> Program:
        """The program of a round."""
        builder = self.builder
        outputs = [
            builder.number(output) if kind == "number" else output
            for output, kind in zip(self.outputs[1:], self._places, strict=False)
        ]
        return builder.finish(self.outputs[0], *outputs)


def _registers(value: Value) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(at for entry in value for at in _registers(entry))


def _rebuilt(value: Value, registers: Sequence[int], place: int) -> tuple[Value, int]:
    """A value of the same shape from other registers, and the place after them."""
    if isinstance(value, int):
        return registers[place], place + 1
    entries = []
    for entry in value:
        rebuilt, place = _rebuilt(entry, registers, place)
        entries.append(rebuilt)
    return LocalTuple(entries), place


def _wider(one: Kind, other: Kind) -> Kind:
    return "integer" if one == other == "integer" else "number"


def _with_flags(flow: Fall | Partly, flags: Scope) -> Flow:
    """A state with the flags of the loop around, which is where the execution is then."""
    scope = {name: value for name, value in flow.scope.items() if name not in flags}
    scope |= {name: value for name, value in flags.items() if value is not None}
    return Fall(scope) if isinstance(flow, Fall) else Partly(flow.returned, flow.value, scope)
