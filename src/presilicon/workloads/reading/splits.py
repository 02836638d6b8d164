"""The splits of a workload's data: tensors, data sets, loaders or streams of batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from presilicon.base import ConfigError

SplitKind = Literal["pair", "items", "samples", "batches"]


@dataclass(frozen=True, slots=True)
class Splits:
    """The examples of a workload.

    A split is one of these:

    - a pair of inputs and targets with the examples along axis 0, as tensors or numpy arrays. A split of more than
      1 GiB, and a `numpy.memmap`, is read batch by batch and never moved to a device as a whole;
    - a data set with `__len__` and `__getitem__`, whose items are pairs of an input and a target;
    - a torch `DataLoader` of such a data set: its `dataset`, `collate_fn`, `num_workers`, `prefetch_factor` and
      `worker_init_fn` are used, but batch size and order come from the workload and the run's seed;
    - for training only, an iterable of batches, a torch `IterableDataset` of samples, or a `DataLoader` of one. It is
      iterated again for each epoch, in its own order.

    Random numbers that a data set draws (from torch's, numpy's and Python's global generators) are seeded for each item
    and epoch, so they depend neither on the number of workers nor on where a run was resumed.
    """

    train: Any
    validation: Any
    """Decides when the target is reached."""
    test: Any
    """Only reported at the end; no decision depends on it."""

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            split = getattr(self, name)
            kind = kind_of(split, name)
            if kind in ("samples", "batches") and name != "train":
                raise ConfigError(
                    f"the {name} split must have a length, because it is evaluated as a whole, and "
                    f"{type(split).__name__} has none: give tensors or a data set with __len__ and __getitem__"
                )
            if kind == "pair":
                _check_pair(split, name)
            elif kind == "items" and len(dataset_of(split)) == 0:
                raise ConfigError(f"the {name} split is empty: give at least one example")


def kind_of(split: Any, name: str) -> SplitKind:
    """How the examples of a split are read.

    Raises:
        ConfigError: it is none of the kinds that a split can be, or a loader whose own sampler would be ignored.
    """
    from torch import Tensor
    from torch.utils.data import DataLoader, IterableDataset

    if isinstance(split, tuple):
        return "pair"
    if isinstance(split, DataLoader):
        if isinstance(split.dataset, IterableDataset):
            return "batches"
        _check_sampler(split, name)
        return "items"
    if isinstance(split, IterableDataset):
        return "samples"
    is_array = isinstance(split, Tensor | str | bytes | dict) or hasattr(split, "__array__")
    if not is_array and hasattr(split, "__len__") and hasattr(split, "__getitem__"):
        return "items"
    if not is_array and hasattr(split, "__iter__"):
        return "batches"
    raise ConfigError(
        f"the {name} split must be a pair (inputs, targets), a data set or a DataLoader, not {type(split).__name__}"
    )


def dataset_of(split: Any) -> Any:
    """The data set of a loader, or the data set itself."""
    from torch.utils.data import DataLoader

    return split.dataset if isinstance(split, DataLoader) else split


def _check_pair(split: tuple[Any, ...], name: str) -> None:
    if len(split) != 2:
        raise ConfigError(f"the {name} split must be a pair (inputs, targets), not a tuple of {len(split)}")
    inputs, targets = split
    if len(inputs) != len(targets) or len(inputs) == 0:
        raise ConfigError(
            f"the {name} split has {len(inputs)} inputs and {len(targets)} targets: "
            "give as many targets as inputs, and at least one"
        )


def _check_sampler(loader: Any, name: str) -> None:
    from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

    sampler = loader.sampler
    plain = type(sampler) is SequentialSampler or (type(sampler) is RandomSampler and not sampler.replacement)
    if not plain or type(loader.batch_sampler) is not BatchSampler:
        own = loader.batch_sampler if plain and loader.batch_sampler is not None else sampler
        what = "no batch size" if loader.batch_sampler is None else f"a {type(own).__name__}"
        raise ConfigError(
            f"the {name} split is a DataLoader with {what}, but the order of examples comes from the run's seed: "
            "give a loader with a batch size and without a sampler, or an IterableDataset that has its own order"
        )
