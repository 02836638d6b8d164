"""Iterables of batches or samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, default_collate

from presilicon.base import ConfigError, PresiliconError, RunFailedError, derive_seed
from presilicon.workloads.reading.batch import Batch, as_pair, one_line
from presilicon.workloads.reading.items import Files, Portable
from presilicon.workloads.reading.randomness import PrivateRandom
from presilicon.workloads.reading.splits import kind_of
from presilicon.workloads.user import workload_errors

_SAMPLES = 64
"""Samples that are read at a time, because exchanging the random generators for each would take longer than reading."""


class Stream:
    """An iterable of batches or samples, iterated again for each epoch."""

    def __init__(self, split: Any, name: str, seed: int, files: Files = ()) -> None:
        self._split, self._name, self._seed, self._files = split, name, seed, files
        self._is_batched = kind_of(split, name) == "batches"

    def read(self, epoch: int, offset: int, count: int) -> Iterator[Batch]:
        """Batches of `count` samples from a position on, whatever the sizes of the stream's own; tails are dropped.

        Raises:
            ConfigError: an epoch has too few samples for one batch.
        """
        while True:
            came = 0
            pending: list[tuple[Tensor, Tensor]] = []
            start = first = offset
            for inputs, targets in self.epoch(epoch):
                came += len(inputs)
                if came <= start:
                    continue
                fresh = min(came - start, len(inputs))
                pending.append((inputs[-fresh:], targets[-fresh:]))
                start = max(start, came)
                ready = sum(len(part) for part, _ in pending)
                while ready >= count:
                    joined, expected = (torch.cat(parts) for parts in zip(*pending, strict=True))
                    pending = [(joined[count:], expected[count:])]
                    ready -= count
                    offset += count
                    yield Batch(epoch, offset, joined[:count], expected[:count])
                # A stream may fill the same buffer again.
                pending = [(inputs.clone(), targets.clone()) for inputs, targets in pending]
            if came < max(count, first):
                is_first = epoch == first == 0
                again = "" if is_first else " when it was iterated again: its __iter__ must start from the beginning"
                raise ConfigError(f"the {self._name} split ended after {came} samples, but a step needs {count}{again}")
            epoch, offset = epoch + 1, 0

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch; random numbers drawn by the stream come from generators of its own."""
        generators = PrivateRandom(derive_seed(self._seed, "stream", epoch))
        try:
            with workload_errors():
                with generators:
                    batches = iter(self._source(epoch))
                while True:
                    with generators:
                        values = list(islice(batches, 1 if self._is_batched else _SAMPLES))
                    if not values:
                        return
                    yield as_pair(values[0] if self._is_batched else default_collate(values), self._name)
        except PresiliconError:
            raise
        except Exception as error:
            raise RunFailedError(f"the {self._name} split cannot be read: {one_line(error)}") from error

    def _source(self, epoch: int) -> Iterable[Any]:
        split = self._split
        if not isinstance(split, DataLoader) or split.num_workers == 0:
            return split  # type: ignore[no-any-return]
        init = split.worker_init_fn
        return DataLoader(
            _Iterated(Portable(split.dataset, self._files)),
            batch_size=split.batch_size,
            drop_last=split.drop_last,
            num_workers=split.num_workers,
            prefetch_factor=split.prefetch_factor,
            collate_fn=_Called(Portable(split.collate_fn, self._files)),
            worker_init_fn=None if init is None else _Called(Portable(init, self._files)),
            multiprocessing_context="spawn",
            generator=torch.Generator().manual_seed(derive_seed(self._seed, "workers", epoch)),
        )


class _Iterated(IterableDataset[Any]):
    def __init__(self, dataset: Portable) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return iter(self._dataset.value)


class _Called:
    def __init__(self, function: Portable) -> None:
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function.value(*args)
