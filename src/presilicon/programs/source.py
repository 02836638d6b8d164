"""The source of a Python function, with the lines that error messages show."""

import ast
import builtins
import linecache
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from presilicon.base import ConfigError, is_installed

ALLOWED = (
    "numbers, + - * / // % **, & | ^ ~ << >> of whole numbers, comparisons, and/or/not, if/elif/else, match, "
    "for k in range(n), while, break, continue, local variables and tuples, return, sum/max/min/prod/mean over ranges, "
    "abs, min, max, round, int, floor, ceil, sqrt, exp, log, tanh, erf, sin, cos, frexp, ldexp, copysign, operands and "
    "tables by index, and functions of these"
)


class LanguageError(ConfigError):
    """Python that the language does not have."""


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _spelled(value: Any) -> str:
    """A value that a function sees, by what it means and not by where it stands."""
    describe = getattr(value, "describe", None)
    if callable(describe):
        return repr(describe())
    listed = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(listed, int | float | complex | str | list | tuple | None):
        return repr(listed)
    if isinstance(value, ModuleType):
        return value.__name__ if is_installed(value.__name__) else "module"  # what is read of it is spelled by itself
    plain = plain_function(value)
    if isinstance(plain, FunctionType) and not is_installed(plain.__module__):
        return source_of(plain).meaning()
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def plain_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The Python function behind a compiled one, or the function itself."""
    return getattr(function, "py_func", function)


class FunctionSource:
    """The parsed source of a function, and the names that it sees."""

    def __init__(self, function: Callable[..., Any]) -> None:
        code = getattr(function, "__code__", None)
        if code is None:
            name = getattr(function, "__name__", type(function).__name__)
            raise LanguageError(f"the source of {name} cannot be read; allowed: a function written with def in a file")
        self.function = function
        self.file = code.co_filename
        self.name = function.__name__
        linecache.checkcache(self.file)
        self._lines = linecache.getlines(self.file, function.__globals__)
        self.tree = self._find(code.co_firstlineno)
        self._resolved: dict[str, Any] = {}

    def error(self, node: ast.AST, what: str, allowed: str = ALLOWED, attempt: str = "") -> LanguageError:
        """The error about a node: file, line, what is wrong, what is allowed, what to try, and the line itself."""
        line = getattr(node, "lineno", self.tree.lineno)
        text = self._lines[line - 1].strip() if line <= len(self._lines) else ""
        what = f"{what}; allowed: {allowed}" + (f"; try: {attempt}" if attempt else "")
        return LanguageError(f"{Path(self.file).name}, line {line}: {what}\n    {text}")

    def resolve(self, name: str) -> Any:
        """The object that a non-local name refers to in the function's scope; KeyError if there is none.

        The first answer is cached, so that later changes of the name have no effect: operators are compiled when the
        function is decorated.
        """
        if name not in self._resolved:
            self._resolved[name] = self._look_up(name)
        return self._resolved[name]

    def has(self, name: str) -> bool:
        """Whether a non-local name refers to anything."""
        try:
            self.resolve(name)
        except KeyError:
            return False
        return True

    def meaning(self) -> str:
        """The function without comments and layout, and what the names stand for that it does not define itself."""
        body = [node for node in self.tree.body if not _is_docstring(node)]
        arguments = [argument.arg for argument in (*self.tree.args.args, *self.tree.args.kwonlyargs)]
        seen: dict[str, str] = {}
        for node in (name for part in body for name in ast.walk(part) if isinstance(name, ast.Name | ast.Attribute)):
            try:
                seen[ast.unparse(node)] = _spelled(self._dotted(node))
            except (KeyError, AttributeError):
                continue  # a variable of its own
        return repr((arguments, [ast.dump(node) for node in body], sorted(seen.items())))

    def _dotted(self, node: ast.expr) -> Any:
        """The object of a name, or of a name in a module; KeyError or AttributeError if there is none."""
        if isinstance(node, ast.Attribute):
            return getattr(self._dotted(node.value), node.attr)
        return self.resolve(node.id if isinstance(node, ast.Name) else "")

    def _look_up(self, name: str) -> Any:
        free = dict(zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True))
        if name in free:
            try:
                return free[name].cell_contents
            except ValueError:
                raise KeyError(name) from None  # not yet assigned
        space: dict[str, Any] = self.function.__globals__
        return space[name] if name in space else vars(builtins)[name]

    def _find(self, first: int) -> ast.FunctionDef:
        """The definition that begins on a line, decorators included."""
        try:
            tree = ast.parse("".join(self._lines))
        except SyntaxError:
            tree = ast.Module([], [])
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef) or node.name != self.name:
                continue
            if min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) == first:
                return node
        raise LanguageError(
            f"{Path(self.file).name}, line {first}: the source of {self.name} cannot be read, but functions are "
            "compiled from it; allowed: a function written with def in a file, not a lambda and not one made by exec"
        )


@lru_cache(maxsize=4096)
def source_of(function: Callable[..., Any]) -> FunctionSource:
    """The source of a function that others call.

    Raises:
        LanguageError: it cannot be read.
    """
    return FunctionSource(plain_function(function))
