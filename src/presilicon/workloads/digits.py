"""Handwritten digits: 1,797 images of 8 by 8 pixels from scikit-learn's wheel."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from presilicon.base import MissingToolError, np, torch
from presilicon.workloads.reading.splits import Splits
from presilicon.workloads.workload import Workload, sgd

if TYPE_CHECKING:
    from torch import nn

SPLIT_SEED = 20240229
"""Seed of the assignment of images to splits, which is the same in every run."""

HELD_OUT = 0.2
"""Fraction of each class in the validation split; the test split has the same."""


def load_digits(image: bool) -> Splits:
    """The digits as float32, normalized by the training split's mean and deviation; split 60/20/20 within each class.

    Inputs are (examples, 1, 8, 8) if `image`, else (examples, 64); targets are class indices.
    """
    table = np.loadtxt(_table_file(), delimiter=",")
    pixels, labels = table[:, :-1], table[:, -1].astype(int)
    # RandomState rather than default_rng, because its stream is the same in all versions of numpy.
    order = np.random.RandomState(SPLIT_SEED).permutation(len(labels))
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for digit in range(10):
        members = order[labels[order] == digit]
        held = round(HELD_OUT * len(members))
        for part, indices in zip(parts, np.split(members, [-2 * held, -held]), strict=True):
            part.extend(indices)
    train, validation, test = (np.sort(part) for part in parts)
    pixels = (pixels - pixels[train].mean()) / pixels[train].std()
    inputs = torch.from_numpy(pixels.astype(np.float32)).reshape((-1, 1, 8, 8) if image else (-1, 64))
    targets = torch.from_numpy(labels.astype(np.int64))
    return Splits(*((inputs[part], targets[part]) for part in (train, validation, test)))


def _table_file() -> Path:
    """The images in scikit-learn's wheel, found without importing it: that would take longer than the training."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise MissingToolError("the digits workloads need scikit-learn: pip install scikit-learn")
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


def digits_mlp() -> nn.Module:
    """Two hidden layers of 64 units."""
    from torch import nn

    return nn.Sequential(
        OrderedDict(
            hidden1=nn.Linear(64, 64),
            relu1=nn.ReLU(),
            hidden2=nn.Linear(64, 64),
            relu2=nn.ReLU(),
            output=nn.Linear(64, 10),
        )
    )


def digits_cnn() -> nn.Module:
    """Two 3x3 convolutions, a pooling layer and two linear layers; no normalization."""
    from torch import nn

    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 16, 3, padding=1),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(16, 16, 3, padding=1),
            relu2=nn.ReLU(),
            pool=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            hidden=nn.Linear(16 * 4 * 4, 32),
            relu3=nn.ReLU(),
            output=nn.Linear(32, 10),
        )
    )


def digits_revnet(blocks: int = 4, width: int = 32) -> nn.Module:
    """A convolution, reversible blocks of two 3x3 convolutions, pooling and a linear layer; no normalization."""
    from torch import nn

    from presilicon.workloads.reversible import Coupling, Reversible

    def half() -> nn.Module:
        return nn.Sequential(OrderedDict(relu=nn.ReLU(), conv=nn.Conv2d(width // 2, width // 2, 3, padding=1)))

    return nn.Sequential(
        OrderedDict(
            stem=nn.Conv2d(1, width, 3, padding=1),
            blocks=Reversible(*(Coupling(half(), half()) for _ in range(blocks))),
            relu=nn.ReLU(),
            pool=nn.AvgPool2d(2),
            flatten=nn.Flatten(),
            output=nn.Linear(width * 16, 10),
        )
    )


DIGITS_MLP = Workload(
    name="digits-mlp",
    description="a multilayer perceptron on 8x8 handwritten digits (scikit-learn)",
    model=digits_mlp,
    data=partial(load_digits, image=False),
    target=0.97,
    optimizer=partial(sgd, learning_rate=0.05, momentum=0.9, weight_decay=1e-3),
    schedule="constant(scale_from=32)",
    batch_size=32,
    evaluate_every=10,
    sustain=3,
    max_steps=1500,
)

DIGITS_CNN = Workload(
    name="digits-cnn",
    description="a small convolutional network on 8x8 handwritten digits (scikit-learn)",
    model=digits_cnn,
    data=partial(load_digits, image=True),
    target=0.97,
    optimizer=partial(sgd, learning_rate=0.02, momentum=0.9),
    schedule="constant(scale_from=32)",
    batch_size=32,
    evaluate_every=10,
    sustain=3,
    max_steps=1500,
)

DIGITS_REVNET = replace(
    DIGITS_CNN,
    name="digits-revnet",
    description="reversible convolution blocks on 8x8 handwritten digits (scikit-learn), for --method camel",
    model=digits_revnet,
)
