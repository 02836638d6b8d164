"""Reading the examples of a split: rows of arrays, items of a data set, or a stream of batches."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

from presilicon.base import ConfigError, PresiliconError, RunFailedError, derive_seed
from presilicon.workloads.splits import dataset_of, kind_of
from presilicon.workloads.user import load_file, workload_errors

Files = tuple[tuple[Path, str], ...]
"""Arguments of `load_file` for the files that the classes of a data set are defined in."""


class Slot(NamedTuple):
    """Examples of one batch: the epoch, the position in it after them, and their indices."""

    epoch: int
    end: int
    indices: Tensor


class Batch(NamedTuple):
    """A batch that was read, with its place in the data."""

    epoch: int
    end: int
    inputs: Tensor
    targets: Tensor


_RESIDENT = 2**30
"""Bytes up to which a pair of tensors is moved to the device as a whole."""


def resident_pair(split: Any) -> tuple[Tensor, Tensor] | None:
    """A split that is a pair of tensors small enough to be held on a device; None for any other."""
    if not isinstance(split, tuple) or not all(isinstance(part, Tensor) for part in split):
        return None
    inputs, targets = split
    size = sum(part.numel() * part.element_size() for part in split)
    return (inputs, targets) if size <= _RESIDENT else None


class Rows:
    """A pair of tensors or arrays, read by index."""

    def __init__(self, pair: tuple[Any, Any]) -> None:
        self._pair = pair

    def __len__(self) -> int:
        return len(self._pair[0])

    def read(self, slots: Iterable[Slot]) -> Iterator[Batch]:
        """The examples of each slot."""
        for epoch, end, indices in slots:
            yield Batch(epoch, end, _rows(self._pair[0], indices), _rows(self._pair[1], indices))


def _rows(array: Any, indices: Tensor) -> Tensor:
    if isinstance(array, Tensor):
        return array[indices.to(array.device)]
    return torch.from_numpy(array[indices.cpu().numpy()])  # indexing copies, so a read-only file is no problem


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
            raise RunFailedError(f"the data cannot be read: {_reason(error)}; num_workers=0 shows where") from error


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


def _reason(error: Exception) -> str:
    """One line; a worker's error contains the traceback, with the error itself at the end."""
    line = (str(error).strip().splitlines() or [""])[-1]
    is_named = isinstance(error, PresiliconError) or line.startswith(type(error).__name__)
    return line if is_named else f"{type(error).__name__}: {line}"


def as_pair(value: Any, name: str, count: int | None = None) -> tuple[Tensor, Tensor]:
    """A batch as two tensors of the same length.

    Raises:
        ConfigError: it is something else.
    """
    if not isinstance(value, tuple | list) or len(value) != 2:
        shape = f"{type(value).__name__} of {len(value)}" if isinstance(value, tuple | list) else type(value).__name__
        raise ConfigError(f"a batch of the {name} split must be a pair (inputs, targets), not a {shape}")
    inputs, targets = (torch.from_numpy(part) if isinstance(part, numpy.ndarray) else part for part in value)
    for part in (inputs, targets):
        if not isinstance(part, Tensor) or part.dim() == 0:
            raise ConfigError(f"inputs and targets of the {name} split must be tensors, not {type(part).__name__}")
    if len(inputs) != len(targets) or (count is not None and len(inputs) != count):
        wanted = f": {count} of each are needed" if count is not None else ": as many of each are needed"
        raise ConfigError(f"a batch of the {name} split has {len(inputs)} inputs and {len(targets)} targets{wanted}")
    return inputs, targets


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
            start = offset
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
            if came < count:
                again = "" if epoch == 0 else " when it was iterated again: its __iter__ must start from the beginning"
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
                        value = next(batches, _END)
                    if value is _END:
                        return
                    yield as_pair(value if self._is_batched else default_collate([value]), self._name)
        except PresiliconError:
            raise
        except Exception as error:
            raise RunFailedError(f"the {self._name} split cannot be read: {_reason(error)}") from error

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


_END = object()


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


def open_split(split: Any, name: str, seed: int, files: Files = ()) -> Rows | Items | Stream:
    """A reader of a split's examples."""
    kind = kind_of(split, name)
    if kind == "pair":
        return Rows(split)
    return Items(split, name, seed, files) if kind == "items" else Stream(split, name, seed, files)


def all_inputs(split: Any, name: str, size: int = 1024) -> Iterator[Tensor]:
    """The inputs of one epoch of a split, in pieces."""
    source = open_split(split, name, seed=0)
    if isinstance(source, Stream):
        yield from (inputs for inputs, _ in source.epoch(0))
        return
    starts = range(0, len(source), size)
    slots = (Slot(0, start, torch.arange(start, min(start + size, len(source)))) for start in starts)
    yield from (batch.inputs for batch in source.read(slots))


def example_shapes(split: Any, size: int) -> tuple[Tensor, Tensor]:
    """A meta batch with the shapes and types of a split's examples."""
    source = open_split(split, "train", seed=0)
    slots = [Slot(0, 1, torch.tensor([0]))]
    if isinstance(source, Stream):
        batches = source.read(0, 0, 1)
    else:
        batches = source.read(slots) if isinstance(source, Rows) else source.read_here(slots)
    _, _, inputs, targets = next(batches)
    shapes = (torch.empty((size, *part.shape[1:]), dtype=part.dtype, device="meta") for part in (inputs, targets))
    return next(shapes), next(shapes)
