"""Published results computed again: a reproduction is looked up by name, run, and checked.

A reproduction is a function that returns a `Reproduction`. One that trains takes `on_event` and calls it with the
events of its training, so that they can be recorded. Ours are in the distribution presilicon-evidence; any installed
package may register more.
"""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from inspect import signature

from presilicon.base import ConfigError, ExtensionPoint, MissingToolError
from presilicon.records import Event, Reproduction

REPRODUCTIONS: ExtensionPoint[Callable[..., Reproduction]] = ExtensionPoint(
    "presilicon.reproductions", "reproduction", {}, decides="never"
)
EVIDENCE = "presilicon-evidence"


def reproduction_names() -> list[str]:
    """Names of all reproductions.

    Raises:
        MissingToolError: there is none, for presilicon-evidence is not installed.
    """
    names = sorted(REPRODUCTIONS.names())
    if not names:
        _check_evidence()
    return names


def trains(name: str) -> bool:
    """Whether a reproduction trains networks, and so has events to record.

    Raises:
        ConfigError: there is no reproduction of that name.
        MissingToolError: there is none of that name here, and presilicon-evidence is not installed.
    """
    function = _load(name)
    with REPRODUCTIONS.errors_of(name):
        return "on_event" in signature(function).parameters


def reproduce(name: str, on_event: Callable[[Event], None] | None = None) -> Reproduction:
    """Published figures next to ours, with the assumptions behind them.

    `on_event` is called with the events of a reproduction that trains.

    Raises:
        ConfigError: there is no reproduction of that name.
        MissingToolError: there is none of that name here, and presilicon-evidence is not installed.
    """
    function = _load(name)
    with REPRODUCTIONS.errors_of(name):
        result = function(on_event=on_event) if trains(name) else function()
    if not isinstance(result, Reproduction):
        raise ConfigError(f'reproduction "{name}" must return a Reproduction, not {result!r}')
    return result


def _load(name: str) -> Callable[..., Reproduction]:
    if name not in REPRODUCTIONS:
        _check_evidence()
    return REPRODUCTIONS.load(name)


def _check_evidence() -> None:
    try:
        distribution(EVIDENCE)
    except PackageNotFoundError:
        raise MissingToolError(
            f"published results come with {EVIDENCE}: pip install {EVIDENCE} (in a source tree: pip install ./evidence)"
        ) from None
