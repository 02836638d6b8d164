"""The global random generators of Python, NumPy and torch: one state for all, seeded, kept and exchanged together."""

from __future__ import annotations

import random
from types import TracebackType
from typing import Any

import numpy
import torch
from torch import Tensor


def seed_generators(seed: int, device: str = "cpu") -> None:
    """Seed those of the processor, and torch's of the device in use."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if device.startswith("cuda"):
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def fingerprint_of_generators(device: str) -> tuple[Any, ...]:
    """Their states, to be compared: equal before and after code that drew nothing."""
    _, keys, *rest = numpy.random.get_state(legacy=True)
    gpu = torch.cuda.get_rng_state(device).numpy().tobytes() if device.startswith("cuda") else b""
    return random.getstate(), numpy.asarray(keys).tobytes(), rest, torch.get_rng_state().numpy().tobytes(), gpu


class Generators:
    """The generators of the processor, and torch's of the device in use, as state that can be saved."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device

    def state_dict(self) -> dict[str, Any]:
        """The states as tensors and numbers; the GPU's only if one is used."""
        _, words, gauss = random.getstate()
        _, keys, position, has_gauss, cached = numpy.random.get_state(legacy=True)
        state = {
            "python": (torch.tensor(words), gauss),
            "numpy": (torch.from_numpy(numpy.asarray(keys, dtype=numpy.int64)), position, has_gauss, cached),
            "cpu": torch.get_rng_state(),
        }
        return state | ({"cuda": torch.cuda.get_rng_state(self._device)} if self._device.startswith("cuda") else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the generators."""
        words, gauss = state["python"]
        random.setstate((3, tuple(words.tolist()), gauss))
        keys, position, has_gauss, cached = state["numpy"]
        numpy.random.set_state(("MT19937", keys.numpy().astype(numpy.uint32), position, has_gauss, cached))
        torch.set_rng_state(state["cpu"])
        if "cuda" in state:
            torch.cuda.set_rng_state(state["cuda"], self._device)


class PrivateRandom:
    """A context in which the generators have a state of their own, which it keeps from one use to the next."""

    def __init__(self, seed: int | None = None, device: str = "cpu") -> None:
        self._own: tuple[Any, Any, Tensor, Tensor | None] | None = None
        self._seed, self._device = seed, device

    def seed(self, seed: int) -> None:
        """Seed the generators, within the context."""
        seed_generators(seed, self._device)

    def __enter__(self) -> PrivateRandom:
        self._outer = self._states()
        if self._own is not None:
            self._restore(self._own)
        elif self._seed is not None:
            self.seed(self._seed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._own = self._states()
        self._restore(self._outer)

    def _states(self) -> tuple[Any, Any, Tensor, Tensor | None]:
        gpu = torch.cuda.get_rng_state(self._device) if self._device.startswith("cuda") else None
        return random.getstate(), numpy.random.get_state(), torch.default_generator.get_state(), gpu

    def _restore(self, states: tuple[Any, Any, Tensor, Tensor | None]) -> None:
        random.setstate(states[0])
        numpy.random.set_state(states[1])
        torch.default_generator.set_state(states[2])
        if states[3] is not None:
            torch.cuda.set_rng_state(states[3], self._device)
