"""Published results, computed again: one module each, with a function `reproduce` that takes nothing."""

from importlib import import_module

from presilicon.base.errors import unknown
from presilicon.records import Reproduction

_MODULES = {
    "mlperf": "mlperf",
    "caterpillar": "caterpillar",
    "checkpointing": "checkpointing",
    "in-place-transpose": "in_place_transpose",
    "memory-of-normalization": "memory_of_normalization",
}
"""Module of each name, in this package."""


def reproduction_names() -> list[str]:
    """What can be reproduced."""
    return sorted(_MODULES)


def reproduce(name: str) -> Reproduction:
    """Published figures beside ours, with the assumptions behind them.

    Raises:
        ConfigError: there is no reproduction of that name.
    """
    if name not in _MODULES:
        raise unknown("reproduction", name, _MODULES)
    module = import_module(f"{__name__}.{_MODULES[name]}")
    result: Reproduction = module.reproduce()
    return result
