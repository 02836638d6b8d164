"""Fashion-MNIST (Xiao et al., 2017): pictures of clothes, 28 by 28 pixels, in ten classes.

16,000 of its 70,000 pictures come with the package. Where the whole set is there, it is used instead: in the folder
that `PRESILICON_FASHION_MNIST` names, or where Debian's package dataset-fashion-mnist puts it.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
from collections.abc import Callable
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from presilicon.base.errors import ConfigError
from presilicon.workloads.published import from_networks
from presilicon.workloads.workload import Splits, Workload, sgd

if TYPE_CHECKING:
    from numpy import intp, uint8
    from numpy.typing import NDArray
    from torch import nn

VARIABLE = "PRESILICON_FASHION_MNIST"
"""An environment variable: the folder of the four `idx` files, or `subset` for what comes with the package."""

INSTALLED = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist puts the files."""

CLASSES = 10
VALIDATION = 200
"""The last so many pictures of each class in the training file are the validation split, of the subset too."""
SUBSET_TRAIN, SUBSET_TEST = 1200, 200
"""The first so many pictures of each class are in the subset."""


class Part(NamedTuple):
    """Pictures as (examples, 28, 28) bytes, and their classes."""

    images: NDArray[uint8]
    labels: NDArray[uint8]


Parts = tuple[Part, Part, Part]
"""Training, validation and test."""


def full_set() -> Path | None:
    """The folder of the whole set, or None where the subset is to be used.

    Raises:
        ConfigError: the environment variable names a place that does not have the files.
    """
    given = os.environ.get(VARIABLE, "")
    if given == "subset":
        return None
    if given:
        folder = Path(given)
        if not _files(folder):
            raise ConfigError(
                f"{VARIABLE} is {given!r}: there is no train-images-idx3-ubyte there, with or without .gz. "
                'Give the folder of the four files of Fashion-MNIST, or "subset"'
            )
        return folder
    return INSTALLED if _files(INSTALLED) else None


def load_fashion(image: bool, full: bool) -> Splits:
    """The pictures as float32 with the training split's mean 0 and deviation 1, and class numbers.

    Inputs are (examples, 1, 28, 28) when `image`, else (examples, 784). The subset has 12,000, 2,000 and 2,000 pictures
    in its splits, as many of each class; the `full` set 58,000, the same 2,000, and 10,000.

    Raises:
        ConfigError: the full set is wanted and not there.
    """
    import torch

    parts = _full_parts() if full else read_subset()
    # Summed as integers: no order of additions can change a bit of it.
    pixels = parts[0].images.astype("int64")
    mean = float(pixels.sum()) / pixels.size
    deviation = (float((pixels * pixels).sum()) / pixels.size - mean * mean) ** 0.5

    def pair(part: Part) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = (torch.tensor(part.images, dtype=torch.float32) - mean) / deviation
        return inputs.reshape((-1, 1, 28, 28) if image else (-1, 784)), torch.tensor(part.labels, dtype=torch.int64)

    return Splits(*map(pair, parts))


def read_subset() -> Parts:
    """The splits that come with the package."""
    import numpy

    packed = (resources.files(__package__) / "data" / "fashion-mnist-16000.npy.xz").read_bytes()
    file = io.BytesIO(lzma.decompress(packed))
    train, validation, test = (Part(numpy.load(file), numpy.load(file)) for _ in range(3))
    return train, validation, test


def read_full(folder: Path) -> Parts:
    """The splits of the whole set, from the four files as they are published."""
    import numpy

    images, labels = _read(folder, "train-images-idx3-ubyte"), _read(folder, "train-labels-idx1-ubyte")
    held = numpy.sort(numpy.concatenate([_of_class(labels, each)[-VALIDATION:] for each in range(CLASSES)]))
    rest = numpy.setdiff1d(numpy.arange(len(labels)), held)
    test = Part(_read(folder, "t10k-images-idx3-ubyte"), _read(folder, "t10k-labels-idx1-ubyte"))
    return Part(images[rest], labels[rest]), Part(images[held], labels[held]), test


def subset_of(parts: Parts) -> Parts:
    """The subset of the whole set that comes with the package, sorted by class, which packs best."""
    train, validation, test = parts
    return _first(train, SUBSET_TRAIN), _first(validation, VALIDATION), _first(test, SUBSET_TEST)


def _first(part: Part, count: int) -> Part:
    import numpy

    chosen = numpy.concatenate([_of_class(part.labels, each)[:count] for each in range(CLASSES)])
    return Part(part.images[chosen], part.labels[chosen])


def _of_class(labels: NDArray[uint8], number: int) -> NDArray[intp]:
    import numpy

    return numpy.flatnonzero(labels == number)


def _full_parts() -> Parts:
    folder = full_set()
    if folder is None:
        raise ConfigError(
            f"the whole of Fashion-MNIST is not here: install Debian's package dataset-fashion-mnist, or set "
            f"{VARIABLE} to the folder of its four files"
        )
    return read_full(folder)


def _files(folder: Path) -> bool:
    return any((folder / f"train-images-idx3-ubyte{ending}").is_file() for ending in ("", ".gz"))


def _read(folder: Path, name: str) -> NDArray[uint8]:
    """An idx file: two zero bytes, the type (8: bytes), the number of axes, their lengths, then the data."""
    import numpy

    plain, packed = folder / name, folder / f"{name}.gz"
    try:
        content = plain.read_bytes() if plain.is_file() else gzip.decompress(packed.read_bytes())
    except (OSError, EOFError) as error:
        raise ConfigError(f"{packed}: cannot be read ({error})") from None
    axes = content[3] if content[:3] == b"\0\0\x08" else 0
    shape = [int.from_bytes(content[4 * axis + 4 : 4 * axis + 8], "big") for axis in range(axes)]
    data = numpy.frombuffer(content, numpy.uint8)[4 * axes + 4 :]
    if not axes or data.size != numpy.prod(shape):
        raise ConfigError(f"{plain}: this is no idx file of bytes, or it is cut off")
    return data.reshape(shape)


def fashion_mlp() -> Workload:
    """A perceptron of two hidden layers of 128 units, on what is there of Fashion-MNIST."""
    return _workload(
        "fashion-mlp",
        "a multilayer perceptron",
        model=partial(from_networks, "perceptron.perceptron", widths=(784, 128, 128, 10)),
        image=False,
        learning_rate=0.02,
        max_steps=2500,
    )


def fashion_cnn() -> Workload:
    """A small convolutional network without normalization, on what is there of Fashion-MNIST."""
    return _workload(
        "fashion-cnn",
        "a small convolutional network",
        model=partial(from_networks, "fashion.convolutional"),
        image=True,
        learning_rate=0.05,
        max_steps=1500,
    )


def fashion_resnet() -> Workload:
    """A ResNet-8 with batch normalization, on what is there of Fashion-MNIST."""
    return _workload(
        "fashion-resnet",
        "a ResNet-8 with batch normalization",
        model=partial(from_networks, "fashion.residual"),
        image=True,
        learning_rate=0.05,
        max_steps=1500,
    )


def _workload(
    name: str, network: str, *, model: Callable[[], nn.Module], image: bool, learning_rate: float, max_steps: int
) -> Workload:
    full = full_set() is not None
    return Workload(
        name=name,
        description=f"{network} on {'the whole' if full else '16,000 pictures'} of Fashion-MNIST",
        model=model,
        data=partial(load_fashion, image=image, full=full),
        # docs/workloads.md says how target and budget were chosen.
        target=0.85,
        optimizer=partial(sgd, learning_rate=learning_rate, momentum=0.9),
        batch_size=64,
        evaluate_every=25,
        sustain=3,
        max_steps=max_steps,
    )
