"""numpy and torch as names that a module can import at its top: they are loaded when they are first used.

For modules that are imported without them, as for `presilicon --help`. Numba cannot compile functions that use these.
"""

from importlib import import_module
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

__all__ = ["np", "torch"]
