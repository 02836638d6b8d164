"""Code that is not emulated."""

import threading
from collections.abc import Iterator
from contextlib import ContextDecorator, contextmanager
from typing import Any

from presilicon.emulation.compilation import uncompiled
from presilicon.emulation.state.recomputation import Region, open_regions

EXACT = "float32 (exact by request)"
"""Formats of ops inside `exact`, in a coverage listing."""


def exact() -> "Exact":
    """A context in which torch computes an emulated model as if it were not emulated; also a decorator.

    It belongs around code inside a model's forward pass, such as a rotary embedding or a router, or around a call of a
    module. What is computed inside has torch's own backward pass. Layers keep the formats of their master weights, and
    optimizers are not affected.

    >>> import torch
    >>> from presilicon.designs import load_recipe
    >>> from presilicon.emulation import emulate_
    >>> model, x = emulate_(torch.nn.Linear(8, 2), load_recipe("fp8-hybrid").numerics), torch.randn(3, 8)
    >>> with exact():
    ...     torch.equal(model(x), x @ model.weight.T + model.bias)
    True
    """
    return Exact()


class Exact(ContextDecorator):
    """The context of `exact`."""

    @uncompiled
    def __enter__(self) -> "Exact":
        _thread.entries.append([region.record for region in open_regions()])
        return self

    @uncompiled
    def __exit__(self, *exc: object) -> None:
        _thread.entries.pop()

    def _recreate_cm(self) -> "Exact":
        return Exact()


class _Thread(threading.local):
    def __init__(self) -> None:
        self.entries: list[list[Any]] = []
        """For each exact context, the records of the checkpointed regions that were running when it was entered."""


_thread = _Thread()


def is_exact() -> bool:
    """Whether code is running that must not be emulated."""
    return bool(_thread.entries)


def was_exact_before(region: Region) -> bool:
    """Whether a checkpointed region as a whole is inside an exact context."""
    return any(all(record is not region.record for record in records) for records in _thread.entries)


@contextmanager
def exactly(active: bool) -> Iterator[None]:
    """A recomputation of code that ran inside an exact context, or outside of all."""
    before = _thread.entries
    _thread.entries = [[]] if active else []
    try:
        yield
    finally:
        _thread.entries = before
