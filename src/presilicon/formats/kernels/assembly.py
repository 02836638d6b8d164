"""Python functions assembled from text."""

import itertools
import linecache
from collections.abc import Callable
from typing import Any

_numbers = itertools.count()


def define(name: str, source: str, scope: dict[str, Any]) -> Callable[..., Any]:
    """The function `name` of a source text; its lines can be read back, as compilers do."""
    filename = f"<presilicon {name} {next(_numbers)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    scope.setdefault("__name__", __name__)
    exec(compile(source, filename, "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function
