"""Data with random items, in a file of its own, as a user writes it; worker processes load the file."""

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from presilicon import Splits, Workload

COUNT = 100


def pair(count: int = COUNT) -> tuple[Tensor, Tensor]:
    """Points, and whether their coordinates have a positive sum."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(count, 4, generator=generator)
    return inputs, (inputs.sum(1) > 0).long()


class Noisy(Dataset[tuple[Tensor, int]]):
    """Items with noise from all three global generators."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        inputs, targets = pair()
        noise = torch.rand(()) + float(numpy.random.rand()) + random.random()
        return inputs[index] + noise, int(targets[index])


class Broken(Noisy):
    """Items that cannot be read."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        raise KeyError("no such row")


class Samples(IterableDataset[tuple[Tensor, Tensor]]):
    """Samples in their order, with noise."""

    def __init__(self, noise: float = 1.0, end: int = COUNT) -> None:
        self._noise, self._end = noise, end

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for number, (value, target) in enumerate(zip(*pair(), strict=True)):
            if number == self._end:
                raise OSError("the disk is gone")
            yield value + self._noise * (torch.rand(()) + random.random()), target


def collate_doubled(items: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    """A batch with all inputs doubled."""
    return 2 * torch.stack([value for value, _ in items]), torch.tensor([target for _, target in items])


def load(kind: str, workers: int = 0) -> Splits:
    """Splits whose training part is of a kind."""
    splits: dict[str, Any] = {
        "items": Noisy(),
        "loader": DataLoader(Noisy(), 7, shuffle=True, num_workers=workers, collate_fn=collate_doubled),
        "broken": DataLoader(Broken(), num_workers=workers),
        "samples": Samples(),
        "sample loader": DataLoader(Samples(noise=0.0), batch_size=9, num_workers=workers),
        "broken stream": DataLoader(Samples(end=3), num_workers=workers),
    }
    return Splits(splits[kind], pair(), pair())


def make_model() -> nn.Module:
    """A small network with dropout."""
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))


workload = Workload(
    name="noisy",
    model=make_model,
    data=partial(load, "items"),
    target=1.0,
    batch_size=20,
    max_steps=12,
    evaluate_every=4,
)
