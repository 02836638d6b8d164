"""Random numbers of data sets, apart from those of training."""

from __future__ import annotations

import random
from types import TracebackType
from typing import Any

import numpy
import torch
from torch import Tensor


class PrivateRandom:
    """A context in which the global generators of Python, numpy and torch have a state of their own."""

    def __init__(self, seed: int | None = None) -> None:
        self._own: tuple[Any, Any, Tensor] | None = None
        self._seed = seed

    def seed(self, seed: int) -> None:
        """Seed the three generators."""
        random.seed(seed)
        numpy.random.seed(seed % 2**32)
        torch.default_generator.manual_seed(seed)

    def __enter__(self) -> PrivateRandom:
        self._outer = _states()
        if self._own is not None:
            _restore(self._own)
        elif self._seed is not None:
            self.seed(self._seed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._own = _states()
        _restore(self._outer)


def _states() -> tuple[Any, Any, Tensor]:
    return random.getstate(), numpy.random.get_state(), torch.default_generator.get_state()


def _restore(states: tuple[Any, Any, Tensor]) -> None:
    random.setstate(states[0])
    numpy.random.set_state(states[1])
    torch.default_generator.set_state(states[2])
