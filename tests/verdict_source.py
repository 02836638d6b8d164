"""Rules for the source of a reproduction: what its verdict may be made of."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

_CITATION = re.compile(r"\b(?:Tables?|Figures?|Fig\.|[Ss]ections?|Equation) (?:\d+(?:\.\d+)*[a-z]?|[IVX]+)\b")
_NAME = re.compile(r"\b\d+-bit\b|[A-Za-z][\w.^/]*(?:-\w+)*")
"""A word, with the digits in it: ResNet-50, CONV3, bfloat16, 16-bit."""
_NUMBER = re.compile(
    r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozens?|hundreds?|thousands?|half|halves|"
    r"thirds?|quarters?|fifths?|tenths?|twice|thrice|doubled?|tripled?)\b",
    re.IGNORECASE,
)
_LOOKUPS = frozenset(
    ("like", "under", "startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition")
)
"""Methods whose arguments name rows and are no text."""


class Fault(NamedTuple):
    line: int
    what: str


def faults(source: str) -> list[Fault]:
    """Every breach of the rules in the source of a module."""
    tree = ast.parse(source)
    assigned = dict(_assigned(tree))
    found = [
        *_literals_for_ours(tree, assigned),
        *_other_verdicts(tree),
        *_numbers_in_verdicts(tree, assigned),
        *_chosen_seeds(tree, assigned),
    ]
    return sorted(found)


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield node.target.id, node.value


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == name:
            yield node


def _outcomes(value: ast.expr) -> Iterator[ast.expr]:
    """The expressions of which one is the value."""
    if isinstance(value, ast.IfExp):
        yield from (*_outcomes(value.body), *_outcomes(value.orelse))
    elif isinstance(value, ast.BoolOp):
        for part in value.values:
            yield from _outcomes(part)
    else:
        yield value


def _is_literal(value: ast.expr, assigned: dict[str, ast.expr]) -> bool:
    """Whether a value is a number that is written down: here, or in a name of the module."""
    names = [
        node for node in ast.walk(value) if isinstance(node, ast.Name) and node.id not in ("float", "int", "round")
    ]
    if isinstance(value, ast.Name) and value.id in assigned:
        return _is_literal(assigned[value.id], {})
    return not names and not (isinstance(value, ast.Constant) and value.value is None)


def _literals_for_ours(tree: ast.Module, assigned: dict[str, ast.expr]) -> Iterator[Fault]:
    for call in _calls(tree, "Reproduced"):
        ours = [keyword.value for keyword in call.keywords if keyword.arg == "ours"] + call.args[3:4]
        for value in (outcome for own in ours for outcome in _outcomes(own)):
            if _is_literal(value, assigned):
                yield Fault(value.lineno, "a literal stands for a figure of ours")


def _other_verdicts(tree: ast.Module) -> Iterator[Fault]:
    """A verdict is `conclude(statements, rows)`, on the very rows that are reported."""
    for call in _calls(tree, "Reproduction"):
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        rows = given.get("rows", "").removeprefix("tuple(").removesuffix(")")
        if not rows.isidentifier() or given.get("verdict") != f"conclude(statements, {rows})":
            yield Fault(call.lineno, "the verdict is not concluded from the rows")


def _numbers_in_verdicts(tree: ast.Module, assigned: dict[str, ast.expr]) -> Iterator[Fault]:
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    pending, seen = ["statements"], set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in functions:
            body = functions[name].body
            parts: list[ast.AST] = list(body[1:] if ast.get_docstring(functions[name]) else body)
        elif name in assigned:
            parts = [assigned[name]]
        else:
            continue
        for node in (node for part in parts for node in _texts(part)):
            if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.value, ast.Name):
                pending.append(node.value.id)
            elif isinstance(node, ast.Name) and not isinstance(assigned.get(node.id), ast.Dict):
                pending.append(node.id)  # of a dictionary that is gone through, the keys
            elif isinstance(node, ast.FormattedValue | ast.Call):
                yield Fault(node.lineno, "a number is written down where text is made")
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and has_number(node.value):
                yield Fault(node.lineno, f"a number in the text of a verdict: {node.value!r}")


def _texts(node: ast.AST) -> Iterator[ast.AST]:
    """Strings and names that text may come from, and places that write a number; not what only names rows."""
    match node:
        case ast.Attribute(value=ast.Name()) | ast.Subscript(value=ast.Name()):
            yield node
            return
        case ast.Subscript(value=value):
            yield from _texts(value)
            return
        case ast.Call(func=ast.Attribute(attr=attr, value=value)) if attr in _LOOKUPS:
            yield from _texts(value)
            return
        case ast.Dict(values=values):
            for value in values:
                yield from _texts(value)
            return
        case ast.Compare(left=left, comparators=comparators):  # a string that is looked for
            for part in (left, *comparators):
                if not isinstance(part, ast.Constant | ast.JoinedStr):
                    yield from _texts(part)
            return
        case ast.FormattedValue(value=value):
            if not any(isinstance(part, ast.Name) for part in ast.walk(value)):
                yield node
            yield from _texts(value)  # not its format
            return
        case ast.Call(func=func, args=args) if getattr(func, "id", getattr(func, "attr", "")) in (
            "str",
            "format",
        ) and any(isinstance(argument, ast.Constant) and not isinstance(argument.value, str) for argument in args):
            yield node
        case ast.Constant() | ast.Name():
            yield node
    for child in ast.iter_child_nodes(node):
        yield from _texts(child)


def has_number(text: str) -> bool:
    """Whether a text has a number that is neither part of a name nor of a citation."""
    words = _CITATION.sub("", text)
    return bool(_NUMBER.search(_NAME.sub(lambda found: found[0] if _NUMBER.fullmatch(found[0]) else "", words)))


def _chosen_seeds(tree: ast.Module, assigned: dict[str, ast.expr]) -> Iterator[Fault]:
    for name, value in assigned.items():
        counted = isinstance(value, ast.Constant) or (
            isinstance(value, ast.Call) and ast.unparse(value.func) == "range"
        )
        if "SEED" in name and not counted:
            yield Fault(value.lineno, "seeds are not a range")
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "seed" and isinstance(node.value, ast.Constant):
            yield Fault(node.value.lineno, "a single seed is written down")
        is_loop = isinstance(node, ast.For | ast.comprehension) and "seed" in ast.unparse(node.target)
        if is_loop and isinstance(node.iter, ast.Tuple | ast.List | ast.Set):
            yield Fault(node.iter.lineno, "seeds are not a range")
    stops = any(
        isinstance(loop, ast.For)
        and "SEEDS" in ast.unparse(loop.iter)
        and any(isinstance(node, ast.Break) for node in ast.walk(loop))
        for loop in ast.walk(tree)
    )
    picks = any(
        isinstance(loop, ast.comprehension) and "seed" in ast.unparse(loop.target) and loop.ifs
        for loop in ast.walk(tree)
    )
    if (stops or picks) and not any(_counts_seeds(call, assigned) for call in _calls(tree, "Reproduced")):
        yield Fault(1, "seeds are chosen by outcome, and no row says how many were tried")


def _counts_seeds(call: ast.Call, assigned: dict[str, ast.expr]) -> bool:
    if not call.args:
        return False
    name = call.args[0]
    name = assigned.get(name.id, name) if isinstance(name, ast.Name) else name
    return "seeds" in ast.unparse(name) and any(keyword.arg == "ours" for keyword in call.keywords)
