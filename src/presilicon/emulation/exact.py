"""Code that is not emulated."""

import sys
import threading
from collections.abc import Iterator
from contextlib import ContextDecorator, contextmanager
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.utils.checkpoint import CheckpointFunction

from presilicon.base import ConfigError
from presilicon.emulation.compilation import uncompiled
from presilicon.emulation.state.recomputation import checkpointed_region

EXACT = "float32 (exact by request)"
"""Formats of ops inside `exact`, in a coverage listing."""


def exact() -> "Exact":
    """A context in which torch computes an emulated model as if it were not emulated; also a decorator.

    It belongs around code inside a model's forward pass, such as a rotary embedding or a router, or around a call of a
    module. What is computed inside has torch's own backward pass. Layers keep the formats of their master weights, and
    optimizers are not affected.

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
        _thread.entries.append(_Entry(checkpointed_region(), _reentrant_regions()))
        return self

    @uncompiled
    def __exit__(self, *exc: object) -> None:
        _thread.entries.pop()

    def _recreate_cm(self) -> "Exact":
        return Exact()


class _Entry(NamedTuple):
    """The checkpointed regions that were running when an exact context was entered."""

    region: Any
    reentrant: int


class _Thread(threading.local):
    def __init__(self) -> None:
        self.entries: list[_Entry] = []


_thread = _Thread()


def is_exact() -> bool:
    """Whether code is running that must not be emulated."""
    return bool(_thread.entries)


def was_exact_before(region: Any) -> bool:
    """Whether a checkpointed region as a whole is inside an exact context."""
    return any(entry.region is not region for entry in _thread.entries)


@contextmanager
def exactly(active: bool) -> Iterator[None]:
    """A recomputation of code that ran inside an exact context, or outside of all."""
    before = _thread.entries
    _thread.entries = [_Entry(None, 0)] if active else []
    try:
        yield
    finally:
        _thread.entries = before


def refuse_reentrant_checkpoint() -> None:
    """Check that the running code is not recomputed by torch's reentrant checkpointing, outside of the exact context.

    Raises:
        ConfigError: it is; the recomputation would be emulated.
    """
    if torch.is_grad_enabled() or not is_exact():
        return
    if _reentrant_regions() > _thread.entries[0].reentrant:
        raise ConfigError(
            "reentrant checkpointing forgets presilicon.exact() in its recomputation; "
            "use torch.utils.checkpoint.checkpoint(..., use_reentrant=False)"
        )


def _reentrant_regions() -> int:
    """The number of reentrant checkpointed regions whose forward pass is running, which is without gradients."""
    if torch.is_grad_enabled():
        return 0
    regions = 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        regions += frame.f_code is CheckpointFunction.forward.__code__
        frame = frame.f_back
    return regions
