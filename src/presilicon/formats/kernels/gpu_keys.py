"""Keys of random numbers in GPU memory, for CUDA graphs: each replay rounds with the keys of its own step."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from presilicon.formats.rounding import Key


class KeyBank:
    """The keys that the kernels of a captured step read."""

    MOST = 1 << 14

    def __init__(self, device: torch.device) -> None:
        self._words = torch.zeros(self.MOST, 2, dtype=torch.int32, device=device)
        self._keys: list[tuple[Key, int]] = []

    def rows(self, keys: Sequence[tuple[Key, int]]) -> Tensor:
        """The memory of some keys, each with its block of 2^32 elements.

        Raises:
            RuntimeError: the step has too many keys.
        """
        first = len(self._keys)
        if first + len(keys) > self.MOST:
            raise RuntimeError(f"a captured step has more than {self.MOST} keys of random numbers")
        self._keys += keys
        return self._words[first : first + len(keys)]

    def write(self, step: int) -> None:
        """Write the keys of a training step."""
        words = [replace(key, step=step).words(block) for key, block in self._keys]
        if words:
            values = torch.tensor(words, dtype=torch.int64).to(torch.int32)
            values = values.pin_memory() if self._words.is_cuda else values
            self._words[: len(words)].copy_(values, non_blocking=True)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """A context whose kernels read their keys from this bank."""
        global _recording
        before, _recording = _recording, self
        try:
            yield
        finally:
            _recording = before


_recording: KeyBank | None = None


def rows_of(keys: Sequence[tuple[Key, int]]) -> Tensor | None:
    """The memory of keys in the bank that is recording; None if there is none."""
    return None if _recording is None else _recording.rows(keys)


def is_recording() -> bool:
    """Whether kernels read their keys from a bank."""
    return _recording is not None
