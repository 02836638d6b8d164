"""The layers that patterns choose."""

from collections.abc import Iterable

from torch import nn

from presilicon.designs import Override, unmatched_pattern
from presilicon.records import Ends
from presilicon.workloads import named_layers


def select_layers(patterns: str | Iterable[str], model: nn.Module, ends: Ends) -> frozenset[str]:
    """The layers of a model that match a pattern, as in the overrides of numerics; "*" matches an emulated loss too.

    Raises:
        ConfigError: a pattern matches none; the message lists near names.
    """
    names = [name for name, _ in named_layers(model)]
    selection: set[str] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        matches = {name for name in [*names, "loss"] if Override(layers=pattern).matches(name, ends)}
        if not matches:
            raise unmatched_pattern("layers", pattern, names)
        selection |= matches
    return frozenset(selection)
