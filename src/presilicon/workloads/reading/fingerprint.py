"""A digest of a workload's data, which tells data sets apart whatever they are called and wherever they stand."""

from __future__ import annotations

from typing import Any

from presilicon.base import Content, content_of, derive_seed
from presilicon.workloads.reading.randomness import PrivateRandom
from presilicon.workloads.reading.splits import Splits, dataset_of, kind_of

_ITEMS = 16
"""Examples of a data set that are looked at, evenly spaced, besides what it is made of."""


def splits_digest(splits: Splits) -> Content:
    """The content of all splits: the bytes of tensors and arrays, and of data sets their state and some examples.

    A stream counts by its code and state, because reading it may use it up.
    """
    contents = [_split_content(getattr(splits, name), name) for name in ("train", "validation", "test")]
    return Content(
        content_of([content.digest for content in contents]).digest,
        tuple(place for content in contents for place in content.unknown),
        frozenset().union(*(content.modules for content in contents)),
    )


def _split_content(split: Any, name: str) -> Content:
    if kind_of(split, name) != "items":
        return content_of(split, f"the {name} split")
    dataset = dataset_of(split)
    count = len(dataset)
    chosen = sorted({count * number // _ITEMS for number in range(_ITEMS)} | {count - 1})
    examples = []
    with PrivateRandom() as generators:
        for index in chosen:
            generators.seed(derive_seed(0, "fingerprint", index))
            try:
                examples.append(dataset[index])
            except Exception as error:  # a training that reads this example will say so
                examples.append(type(error).__name__)
    own, read = content_of(split, f"the {name} split"), content_of([count, examples], f"the {name} split")
    return Content(content_of([own.digest, read.digest]).digest, own.unknown, own.modules)
