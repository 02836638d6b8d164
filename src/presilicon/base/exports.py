"""Names that a package offers without importing their modules until they are used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def deferred(package: str, names_by_module: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """A module-level `__getattr__` that imports a name's module when the name is first used.

    A room defers what needs torch or numpy, so that importing the room stays fast:

        if TYPE_CHECKING:
            from presilicon.workloads import capture

        __getattr__ = deferred(__name__, {"capture": ("capture",)})

    A module name that contains a dot is absolute; others are relative to `package`.
    """
    homes = {name: module for module, names in names_by_module.items() for name in names}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module = homes[name]
        return getattr(import_module(module if "." in module else f"{package}.{module}"), name)

    return get
