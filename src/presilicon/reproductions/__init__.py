"""Published results computed again, one file each.

A reproduction is a function `reproduce()` that returns a `Reproduction`. One that trains takes `on_event` and calls it
with the events of its training, so that they can be recorded.

Its verdict is `conclude(statements, rows)` (`verdicts`): every statement is decided by the rows that are reported, and
can come out either way (docs/decisions/verdicts.md).
"""

from collections.abc import Callable
from inspect import signature

from presilicon.base import ConfigError, ExtensionPoint
from presilicon.records import Event, Reproduction

__all__ = ["REPRODUCTIONS", "reproduce", "reproduction_names", "trains"]

_NAMES = (
    "ada-gp",
    "camel",
    "caterpillar",
    "checkpointing",
    "co-design",
    "dead-relu",
    "eyeriss",
    "fast",
    "formats-at-equal-area",
    "hybrid-figures",
    "hybrid-headline",
    "hybrid-speed",
    "hybrid-table1",
    "hybrid-table2",
    "hybrid-table3",
    "hybrid-table4",
    "in-place-transpose",
    "instrument-area",
    "memory-of-normalization",
    "mlperf",
    "normcheck",
    "predictiveness",
    "procrustes",
    "tensordash",
)

REPRODUCTIONS: ExtensionPoint[Callable[..., Reproduction]] = ExtensionPoint(
    "presilicon.reproductions",
    "reproduction",
    {name: f"{__name__}.{name.replace('-', '_')}:reproduce" for name in _NAMES},
)


def reproduction_names() -> list[str]:
    """Names of all reproductions."""
    return sorted(REPRODUCTIONS.names())


def trains(name: str) -> bool:
    """Whether a reproduction trains networks, and so has events to record.

    Raises:
        ConfigError: there is no reproduction of that name.
    """
    function = REPRODUCTIONS.load(name)
    with REPRODUCTIONS.errors_of(name):
        return "on_event" in signature(function).parameters


def reproduce(name: str, on_event: Callable[[Event], None] | None = None) -> Reproduction:
    """Published figures next to ours, with the assumptions behind them.

    `on_event` is called with the events of a reproduction that trains.

    Raises:
        ConfigError: there is no reproduction of that name.
    """
    function = REPRODUCTIONS.load(name)
    with REPRODUCTIONS.errors_of(name):
        result = function(on_event=on_event) if trains(name) else function()
    if not isinstance(result, Reproduction):
        raise ConfigError(f'reproduction "{name}" must return a Reproduction, not {result!r}')
    return result
