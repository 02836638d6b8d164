"""Map-style data sets, read item by item."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, default_collate, get_worker_info

from presilicon.base import ConfigError, RunFailedError, derive_seed
from presilicon.workloads.reading.batch import Batch, Slot, as_pair, one_line
from presilicon.workloads.reading.randomness import PrivateRandom
from presilicon.workloads.reading.splits import dataset_of
from presilicon.workloads.user import load_file, workload_errors

Files = tuple[tuple[Path, str], ...]
"""Arguments of `load_file` for the files that the classes of a data set are defined in."""


class Portable:
    """A value that a spawned process can unpickle although its class is in a file of the user."""

    def __init__(self, value: Any, files: Files) -> None:
        self.value, self._files = value, files

    def __getstate__(self) -> tuple[bytes, Files]:
        return pickle.dumps(self.value), self._files

    def __setstate__(self, state: tuple[bytes, Files]) -> None:
        packed, self._files = state
        for file, shown in self._files:
            load_file(file, shown)
        self.value = pickle.loads(packed)


class Items:
    """A map-style data set, read item by item, in this process or in workers."""

    def __init__(self, split: Any, name: str, seed: int, files: Files = ()) -> None:
        loader = split if isinstance(split, DataLoader) else None
        self._count = len(dataset_of(split))
        self._workers = loader.num_workers if loader is not None else 0
        self._prefetch = loader.prefetch_factor if loader is not None else None
        collate = default_collate if loader is None else loader.collate_fn
        init = None if loader is None else loader.worker_init_fn
        self._reader = _Reader(Portable((dataset_of(split), collate, init), files), name, seed)

    def __len__(self) -> int:
        return self._count

    def read_here(self, slots: Iterable[Slot]) -> Iterator[Batch]:
        """The examples of each slot, read in this process."""
        return (_checked(self._reader.__getitems__(slot)) for slot in slots)

    def read(self, slots: Iterable[Slot]) -> Iterator[Batch]:
        """The examples of each slot; workers read ahead."""
        if self._workers == 0:
            yield from self.read_here(slots)
            return
        loader: DataLoader[Any] = DataLoader(
            self._reader,  # type: ignore[arg-type]
            batch_sampler=slots,  # type: ignore[arg-type]
            num_workers=self._workers,
            prefetch_factor=self._prefetch,
            collate_fn=_same,
            # Spawned, because a process that has run parallel Numba must not fork.
            multiprocessing_context="spawn",
            # The loader would otherwise draw from the generator of dropout.
            generator=torch.Generator(),
        )
        try:
            yield from map(_checked, loader)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ConfigError(
                f"the data cannot be sent to worker processes ({error}); use classes and functions of a module, or "
                "num_workers=0"
            ) from error
        except RuntimeError as error:
            raise RunFailedError(f"the data cannot be read: {one_line(error)}; num_workers=0 shows where") from error


def _same(batch: Any) -> Any:
    return batch


def _checked(result: Batch | str) -> Batch:
    if isinstance(result, str):
        raise RunFailedError(result)
    return result


class _Reader:
    """Reads and collates the items of a slot, with random numbers that depend only on seed, epoch and index."""

    def __init__(self, parts: Portable, name: str, seed: int) -> None:
        self._parts, self._name, self._seed = parts, name, seed
        self._is_started = False

    def __getitems__(self, slot: Slot) -> Batch | str:
        """The batch, or the reason why it cannot be read, because a worker's exception would arrive as a traceback."""
        dataset, collate, init = self._parts.value
        item = -1
        try:
            with workload_errors(), PrivateRandom() as generators:
                worker = get_worker_info()
                if worker is not None and init is not None and not self._is_started:
                    init(worker.id)
                self._is_started = True
                items = []
                for item in slot.indices.tolist():
                    generators.seed(derive_seed(self._seed, "item", slot.epoch, item))
                    items.append(dataset[item])
                pair = collate(items)
            inputs, targets = as_pair(pair, self._name, len(items))
        except Exception as error:
            reason = (
                str(error) if isinstance(error, ConfigError | RunFailedError) else f"{type(error).__name__}: {error}"
            )
            return f"example {item} of the {self._name} split cannot be read: {reason}"
        return Batch(slot.epoch, slot.end, inputs, targets)
