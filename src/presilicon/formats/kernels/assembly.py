"""Python functions assembled from text, and a user's plain functions prepared for compilation."""

import itertools
import linecache
from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

_numbers = itertools.count()


def define(name: str, source: str, scope: dict[str, Any]) -> Callable[..., Any]:
    """The function `name` of a source text; its lines can be read back, as compilers do."""
    filename = f"<presilicon {name} {next(_numbers)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    scope.setdefault("__name__", __name__)
    exec(compile(source, filename, "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function


def plain_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The Python function behind a compiled one, or the function itself."""
    return getattr(function, "py_func", function)


def names_used(function: FunctionType) -> dict[str, Any]:
    """The globals and closure variables that a function uses, by name."""
    code = function.__code__
    used = {name: function.__globals__[name] for name in _names_in(code) if name in function.__globals__}
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    return used | {name: cell.cell_contents for name, cell in cells}


def _names_in(code: CodeType) -> set[str]:
    """The names that a code and those defined inside of it read, as globals or attributes."""
    inner = (_names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)


def as_table(value: Any) -> Any:
    """A list or tuple of numbers as an array; None for anything else."""
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in "iufb" else None
    is_list = isinstance(value, list | tuple) and len(value) > 0
    if not is_list or not all(isinstance(item, int | float | list | tuple) for item in value):
        return None
    try:
        table = np.array(value)
    except ValueError:
        return None
    return table if table.dtype.kind in "iuf" else None


_compiled: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function compiled by Numba together with the plain functions and the lists of numbers that it uses."""
    import numba

    memo = _compiled
    if hasattr(function, "py_func") or not isinstance(function, FunctionType):
        return function
    if function not in memo:
        memo[function] = function
        scope, cells = dict(function.__globals__), list(function.__closure__ or ())
        used = names_used(function)
        checks = any(as_table(value) is not None for value in used.values())  # an index outside is an error, not noise
        own_cell = CellType()
        for name, value in used.items():
            if value is function:  # a function that calls itself
                if name in function.__code__.co_freevars:
                    cells[function.__code__.co_freevars.index(name)] = own_cell
                continue
            table = as_table(value) if isinstance(value, list | tuple) else None
            changed = jit(value) if isinstance(value, FunctionType) else value if table is None else table
            if changed is not value and name in function.__code__.co_freevars:
                cells[function.__code__.co_freevars.index(name)] = CellType(changed)
            elif changed is not value:
                scope[name] = changed
        copy = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, tuple(cells) or None)
        own_cell.cell_contents = numba.njit(nogil=True, no_cfunc_wrapper=True, boundscheck=checks)(copy)
        memo[function] = own_cell.cell_contents
        scope |= {name: memo[function] for name, value in scope.items() if value is function}
    compiled: Callable[..., Any] = memo[function]
    return compiled
