"""Modules that are loaded when they are first used: numpy and torch, and those of names that a package defers.

For modules that are imported without numpy and torch, as for `presilicon --help`. Numba cannot compile functions that
use these two.
"""

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any


class _Lazy(ModuleType):
    """A module that is imported when something in it is asked for."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)  # the next use finds it without this method
        return value


if TYPE_CHECKING:
    import numpy as np
    import torch
else:
    np, torch = _Lazy("numpy"), _Lazy("torch")

__all__ = ["deferred", "np", "torch"]


def deferred(package: str) -> Callable[[str], Any]:
    """A module-level `__getattr__` that imports a name's module when the name is first used.

    The names are those that the package's `__init__` imports for type checkers. A room defers what needs torch or
    numpy, so that importing the room stays fast:

        if TYPE_CHECKING:
            from presilicon.workloads.capturing.step_capture import capture

        __getattr__ = deferred(__name__)
    """

    def get(name: str) -> Any:
        module = _homes(package).get(name)
        if module is None:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(import_module(module), name)

    return get


@cache
def _homes(package: str) -> dict[str, str]:
    """The modules of the names that a package imports under `TYPE_CHECKING`."""
    source = Path(str(sys.modules[package].__file__)).read_text()
    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}
