"""Realistic mistakes in Python source: each mutant changes one place, and the rest of the text stays as it is."""

import ast
import difflib
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, pairwise
from typing import NamedTuple

Sites = Iterator[tuple[ast.AST, str]]
"""Nodes, each with the text that takes its place."""
Defaults = Mapping[str, frozenset[str]]
"""Parameters that may be left out, by the name of the function or class."""

COPIES = {"clone", "copy"}
COPYING = {"list", "dict", "set", "sorted", "deepcopy", "copy"}
ENDS = {"min": "max", "minimum": "maximum", "amin": "amax", "argmin": "argmax", "ceil": "floor", "mins": "maxs"}
ENDS |= {right: left for left, right in ENDS.items()}
COMPARISONS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
MEANS = {"sum": "mean", "mean": "sum", "fmean": "median", "median": "fmean", "prod": "sum"}
MEAN = "(lambda values: sum(values := list(values)) / max(len(values), 1))"
SYMMETRIC = {"isinstance", "min", "max", "gcd", "lcm", "isclose", "getattr", "setattr", "hasattr", "cast", "print"}
SYMMETRIC |= {"minimum", "maximum", "fmin", "fmax", "logical_and", "logical_or", "hypot", "array_equal", "equal"}
DRAWS = {"random", "uniform", "gauss"}
"""Functions whose results equal no given number: a comparison with them is not off by one."""
ROLES = (
    *(
        ("weight", "activation"),
        ("activation", "error"),
        ("gradient", "weight"),
        ("rows", "columns"),
        ("row", "column"),
    ),
    *(("read", "write"), ("reads", "writes"), ("input", "output"), ("inputs", "outputs"), ("forward", "backward")),
    *(("first", "last"), ("low", "high"), ("lower", "upper"), ("lowest", "highest"), ("start", "end")),
    *(("source", "target"), ("left", "right"), ("m", "n"), ("n", "k"), ("x", "y"), ("a", "b"), ("time", "energy")),
    *(("before", "after"), ("sent", "received"), ("width", "depth"), ("exponent", "mantissa"), ("bits", "bytes")),
    *(("compute", "memory"), ("arrivals", "misses"), ("earliest", "latest"), ("shortest", "longest")),
)
"""Names that are mistaken for one another, also as parts of longer names."""
_PARTNERS: dict[str, list[str]] = defaultdict(list)
for _left, _right in ROLES:
    _PARTNERS[_left].append(_right)
    _PARTNERS[_right].append(_left)
TEXTUAL = {"__repr__", "__str__", "__dir__", "__rich__", "print", "echo", "warn", "debug", "info", "warning", "log"}
"""Functions that only say something, whether they are called or defined."""
UNDECIDING = {"strict", "encoding", "errors", "indent", "help", "message", "stacklevel", "daemon", "maxsize", "title"}
"""Keywords that change no result."""
_KEYED = re.compile(r"key|identity|cache|memo|kept|known|seen|priced|remembered", re.IGNORECASE)
_ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Constant, ast.Subscript, ast.Tuple, ast.List, ast.Dict, ast.JoinedStr)


class Mutant(NamedTuple):
    """One changed place of a source text."""

    kind: str
    line: int
    start: int
    end: int
    text: str
    """Replaces the bytes of the source (as UTF-8) from `start` to `end`."""

    def apply(self, source: str) -> str:
        data = source.encode()
        return (data[: self.start] + self.text.encode() + data[self.end :]).decode()

    def changes(self, source: str) -> bool:
        """Whether the result is Python and means something else than the source does."""
        try:
            return ast.dump(ast.parse(self.apply(source))) != ast.dump(ast.parse(source))
        except SyntaxError:
            return False

    def difference(self, source: str) -> list[str]:
        """The lines that go and come, as a diff writes them."""
        lines = difflib.ndiff(source.splitlines(), self.apply(source).splitlines())
        return [line for line in lines if line[:2] in ("- ", "+ ")]


def defaults_of(sources: Iterable[str]) -> Defaults:
    """What calls may leave out of the functions and classes that the sources define."""
    optional: dict[str, set[str]] = defaultdict(set)
    required: dict[str, set[str]] = defaultdict(set)
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                given, missing = _parameters(node.args)
                optional[node.name] |= given.keys()
                required[node.name] |= missing
            elif isinstance(node, ast.ClassDef):
                for field in node.body:
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                        (optional if field.value else required)[node.name].add(field.target.id)
    return {name: frozenset(optional[name] - required[name]) for name in {*optional, *required}}


def function_at(source: str, line: int) -> str:
    """The name of the innermost function around a line; empty outside of all."""
    functions = [
        node for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]  # fmt: skip
    return max(functions, key=lambda node: node.lineno).name if functions else ""


def mutants_of(source: str, defaults: Defaults, lines: Iterable[int] | None = None) -> dict[str, list[Mutant]]:
    """The mutants of a source by kind, in the order of the text; those that begin on `lines`, if any are given.

    A few mean what the source means, or are no Python: `Mutant.changes` tells.
    """
    return _Source(source, defaults).mutants(None if lines is None else frozenset(lines))


def _parameters(arguments: ast.arguments) -> tuple[dict[str, ast.expr], set[str]]:
    """Defaults by parameter, and the parameters without one."""
    positional = [*arguments.posonlyargs, *arguments.args]
    first = len(positional) - len(arguments.defaults)
    given = {a.arg: value for a, value in zip(positional[first:], arguments.defaults, strict=True)}
    given |= {a.arg: value for a, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value}
    return given, {a.arg for a in (*positional, *arguments.kwonlyargs)} - given.keys()


class _Source:
    def __init__(self, source: str, defaults: Defaults) -> None:
        self.source, self.data, self.defaults = source, source.encode(), defaults
        self.tree = ast.parse(source)
        self.starts = [0, *accumulate(len(line) for line in self.data.splitlines(keepends=True))]
        self.functions: dict[ast.AST, ast.FunctionDef] = {}
        self.attributes = {node.attr for node in ast.walk(self.tree) if isinstance(node, ast.Attribute)}
        self.attributes |= {node.target.id for node in ast.walk(self.tree)
                            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}  # fmt: skip
        self.nodes = list(self._deciding(self.tree, None))

    def mutants(self, lines: frozenset[int] | None) -> dict[str, list[Mutant]]:
        found = {}
        for kind, sites in KINDS.items():
            mutants = []
            for node in self.nodes:
                for at, text in sites(self, node):
                    mutant = self._mutant(kind, at, text)
                    if lines is None or mutant.line in lines:
                        mutants.append(mutant)
            found[kind] = sorted(set(mutants), key=lambda mutant: mutant[1:])
        return found

    def _mutant(self, kind: str, at: ast.AST | tuple[int, int], text: str) -> Mutant:
        start, end = at if isinstance(at, tuple) else self.span(at)
        return Mutant(kind, bisect_right(self.starts, start), start, end, text)

    def span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def text(self, node: ast.AST) -> str:
        """The text of an expression, in parentheses where it could fall apart."""
        start, end = self.span(node)
        text = self.data[start:end].decode()
        return text if isinstance(node, _ATOMS) else f"({text})"

    def _deciding(self, node: ast.AST, function: ast.FunctionDef | None) -> Iterator[ast.AST]:
        """The nodes under `node` that decide something: no imports, types, messages, checks of types or decorators."""
        if isinstance(node, ast.FunctionDef):
            if node.name in TEXTUAL:
                return
            function = node
        if function is not None:
            self.functions[node] = function
        yield node
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_params", "msg", "bases"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _is_undeciding(child):
                    yield from self._deciding(child, function)

    # The kinds.

    def dropped_terms(self, node: ast.AST) -> Sites:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div | ast.FloorDiv):
            if not any(isinstance(side, ast.JoinedStr | ast.List | ast.Tuple) for side in (node.left, node.right)):
                yield node, self.text(node.left)
                if not isinstance(node.op, ast.Sub | ast.Div | ast.FloorDiv):
                    yield node, self.text(node.right)
        elif isinstance(node, ast.AugAssign):
            yield node, f"{self.text(node.target)} = {self.text(node.value)}"

    def swapped_roles(self, node: ast.AST) -> Sites:
        if isinstance(node, ast.Call) and _name(node.func) not in SYMMETRIC:
            for left, right in pairwise(node.args):
                if not isinstance(left, ast.Starred | ast.GeneratorExp) and not isinstance(right, ast.Starred):
                    (start, middle), (resume, end) = self.span(left), self.span(right)
                    between = self.data[middle:resume].decode()
                    yield (start, end), f"{self.data[resume:end].decode()}{between}{self.data[start:middle].decode()}"
        elif isinstance(node, ast.Attribute):
            end = self.span(node)[1]
            for partner in _partners(node.attr):
                if partner in self.attributes:
                    yield (end - len(node.attr.encode()), end), partner
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node in self.functions:
            for partner in _partners(node.id):
                if partner in _names(self.functions[node]):
                    yield node, partner
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for partner in _PARTNERS.get(node.value, ()):
                yield node, f'"{partner}"'

    def ignored_arguments(self, node: ast.AST) -> Sites:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node in self.functions:
            given, _ = _parameters(self.functions[node].args)
            is_opened = self.data[self.span(node)[1] :][:1] in (b".", b"[", b"(")
            if isinstance(given.get(node.id), ast.Constant) and not is_opened:
                yield node, self.text(given[node.id])

    def missing_copies(self, node: ast.AST) -> Sites:
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in COPIES and not node.args:
                yield node, self.text(node.func.value)
            elif _name(node.func) in COPYING and node.args and not isinstance(node.args[0], ast.GeneratorExp):
                yield node, self.text(node.args[0])

    def comparisons_off_by_one(self, node: ast.AST) -> Sites:
        if isinstance(node, ast.Compare):
            for i, (left, right) in enumerate(pairwise([node.left, *node.comparators])):
                replaced = COMPARISONS.get(type(node.ops[i]))
                is_drawn = any(isinstance(side, ast.Call) and _name(side.func) in DRAWS for side in (left, right))
                if replaced and not is_drawn:
                    start, end = self.span(left)[1], self.span(right)[0]
                    yield (start, end), re.sub(r"[<>]=?", replaced, self.data[start:end].decode())

    def swapped_ends(self, node: ast.AST) -> Sites:
        """The least for the largest, and down for up."""
        yield from self._renamed(node, ENDS)

    def first_for_last(self, node: ast.AST) -> Sites:
        if isinstance(node, ast.Subscript):
            index = ast.unparse(node.slice)
            if index in ("0", "-1"):
                yield node.slice, "-1" if index == "0" else "0"
            elif index in ("1:", ":-1"):
                yield node.slice, ":-1" if index == "1:" else "1:"
        elif isinstance(node, ast.Call) and _name(node.func) == "reversed":
            yield node, f"iter({self.text(node.args[0])})"

    def changed_constants(self, node: ast.AST) -> Sites:
        if not isinstance(node, ast.Constant):
            return
        if isinstance(node.value, bool):
            yield node, str(not node.value)
        elif isinstance(node.value, int):
            yield from ((node, str(value)) for value in {0: (1,), 1: (0, 2)}.get(
                node.value, (node.value - 1, node.value + 1)))  # fmt: skip
        elif isinstance(node.value, float):
            yield node, repr(node.value * 2 if node.value else 1.0)

    def changed_conditions(self, node: ast.AST) -> Sites:
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node.test, f"not {self.text(node.test)}"
            if not isinstance(node, ast.While):
                yield from ((node.test, answer) for answer in ("True", "False"))
        elif isinstance(node, ast.comprehension):
            for condition in node.ifs:
                yield condition, f"not {self.text(condition)}"
                yield condition, "True"
        elif isinstance(node, ast.match_case) and node.guard:
            yield node.guard, "True"
        elif isinstance(node, ast.BoolOp):
            joint = " and " if isinstance(node.op, ast.And) else " or "
            for dropped in node.values:
                yield node, f"({joint.join(self.text(value) for value in node.values if value is not dropped)})"

    def unchanged_returns(self, node: ast.AST) -> Sites:
        """What came in is returned as it was."""
        function = self.functions.get(node)
        if not isinstance(node, ast.Return) or function is None or node.value is None or function.returns is None:
            return
        returned = ast.unparse(function.returns)
        for argument in (*function.args.args, *function.args.kwonlyargs):
            if argument.annotation is not None and ast.unparse(argument.annotation) == returned:
                yield node.value, argument.arg

    def early_exits(self, node: ast.AST) -> Sites:
        if isinstance(node, ast.Continue):
            yield node, "break"
        elif isinstance(node, ast.For | ast.While):
            first, last = node.body[0], node.body[-1]
            if first.lineno > node.lineno and not isinstance(last, ast.Return | ast.Raise | ast.Break | ast.Continue):
                end = self.span(last)[1]
                yield (end, end), f"\n{' ' * first.col_offset}break"

    def sums_for_means(self, node: ast.AST) -> Sites:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "sum":
            if len(node.args) == 1 and not node.keywords:
                yield node.func, MEAN
        else:
            yield from self._renamed(node, MEANS, methods=True)

    def and_for_or(self, node: ast.AST) -> Sites:
        if isinstance(node, ast.BoolOp):
            joint = " or " if isinstance(node.op, ast.And) else " and "
            yield node, f"({joint.join(map(self.text, node.values))})"
        else:
            yield from self._renamed(node, {"all": "any", "any": "all"})

    def omitted_keywords(self, node: ast.AST) -> Sites:
        if not isinstance(node, ast.Call):
            return
        omissible = self.defaults.get(_name(node.func))
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg in UNDECIDING:
                continue
            if omissible is None or keyword.arg in omissible:
                start, end = self.span(keyword)
                rest = re.match(rb"\s*,\s*", self.data[end:])
                if rest:
                    yield (start, end + rest.end()), ""
                elif before := re.search(rb",\s*$", self.data[:start]):
                    yield (before.start(), end), ""
                else:
                    yield (start, end), ""

    def short_keys(self, node: ast.AST) -> Sites:
        """A cache that is keyed by too little."""
        match node:
            case ast.Subscript(value=value, slice=ast.Tuple() as key) if _KEYED.search(_name(value)):
                pass
            case ast.Assign(targets=[target], value=ast.Tuple() as key) if _KEYED.search(_name(target)):
                pass
            case ast.Call(func=ast.Attribute(attr="get" | "setdefault"), args=[ast.Tuple() as key, *_]):
                pass
            case ast.Return(value=ast.Tuple() as key) if node in self.functions and _KEYED.search(
                self.functions[node].name
            ):
                pass
            case _:
                return
        for dropped in key.elts if len(key.elts) > 1 else ():
            rest = [self.data[slice(*self.span(part))].decode() for part in key.elts if part is not dropped]
            yield key, f"({', '.join(rest)},)"

    def _renamed(self, node: ast.AST, names: Mapping[str, str], methods: bool = False) -> Sites:
        """Another function called in place of one of `names`."""
        if isinstance(node, ast.Call) and (_name(node.func)) in names:
            end = self.span(node.func)[1]
            name = _name(node.func)
            if isinstance(node.func, ast.Attribute) or not methods:
                yield (end - len(name), end), names[name]


KINDS: dict[str, Callable[[_Source, ast.AST], Sites]] = {
    "dropped term": _Source.dropped_terms,
    "swapped role": _Source.swapped_roles,
    "ignored argument": _Source.ignored_arguments,
    "missing copy": _Source.missing_copies,
    "comparison off by one": _Source.comparisons_off_by_one,
    "min for max": _Source.swapped_ends,
    "first for last": _Source.first_for_last,
    "changed constant": _Source.changed_constants,
    "changed condition": _Source.changed_conditions,
    "unchanged return": _Source.unchanged_returns,
    "early exit": _Source.early_exits,
    "sum for mean": _Source.sums_for_means,
    "and for or": _Source.and_for_or,
    "omitted keyword": _Source.omitted_keywords,
    "short key": _Source.short_keys,
}


def _name(node: ast.AST) -> str:
    """The last name of a dotted expression; empty for others."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _names(function: ast.FunctionDef) -> set[str]:
    return {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)} | {
        node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _partners(name: str) -> Iterator[str]:
    """The names that differ from `name` by one swapped word."""
    words = name.split("_")
    for i, word in enumerate(words):
        for partner in _PARTNERS.get(word, ()):
            yield "_".join([*words[:i], partner, *words[i + 1 :]])


def _is_undeciding(node: ast.AST) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Raise() | ast.Assert() | ast.JoinedStr():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Call(func=function):
            return _name(function) in TEXTUAL or _name(function).endswith(("Error", "Warning"))
        case ast.keyword(arg=arg):
            return arg in UNDECIDING
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
    return False
