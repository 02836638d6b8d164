"""Published results, computed again: one module each, with a function `reproduce`.

It takes nothing; that of a story, which trains, takes `on_event` and tells what happens as an evaluation does.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from presilicon.base.errors import unknown
from presilicon.records import Reproduction

_MODULES = {
    "mlperf": "mlperf",
    "caterpillar": "caterpillar",
    "checkpointing": "checkpointing",
    "in-place-transpose": "in_place_transpose",
    "memory-of-normalization": "memory_of_normalization",
    "hybrid-table1": "hybrid_table1",
    "hybrid-table2": "hybrid_table2",
    "hybrid-table3": "hybrid_table3",
    "hybrid-table4": "hybrid_table4",
    "hybrid-headline": "hybrid_headline",
    "instrument-area": "instrument_area",
    "dead-relu": "dead_relu",
    "normcheck": "normcheck",
    "predictiveness": "predictiveness",
}
"""Module of each name, in this package."""

STORIES = frozenset(["dead-relu", "normcheck", "predictiveness"])
"""Those that train with an instrument, and tell it in curves."""


def reproduction_names() -> list[str]:
    """What can be reproduced."""
    return sorted(_MODULES)


def reproduce(name: str, on_event: Callable[[dict[str, Any]], None] | None = None) -> Reproduction:
    """Published figures beside ours, with the assumptions behind them; `on_event` hears what happens in a story.

    Raises:
        ConfigError: there is no reproduction of that name.
    """
    if name not in _MODULES:
        raise unknown("reproduction", name, _MODULES)
    module = import_module(f"{__name__}.{_MODULES[name]}")
    result: Reproduction = module.reproduce(on_event) if name in STORIES else module.reproduce()
    return result
