"""Readers of any kind of split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from presilicon.workloads.reading.batch import Batch, Slot
from presilicon.workloads.reading.items import Files, Items
from presilicon.workloads.reading.splits import kind_of
from presilicon.workloads.reading.stream import Stream

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
