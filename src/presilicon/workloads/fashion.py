"""Fashion-MNIST (Xiao et al., 2017): images of clothes, 28 by 28 pixels, in ten classes.

The package contains 16,000 of the 70,000 images. The full set is used instead if it is in the folder named by
`PRESILICON_FASHION_MNIST`, or installed by Debian's package dataset-fashion-mnist.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import zlib
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from presilicon.base import LARGEST_DATA, ConfigError, MissingToolError, np, read_file, torch
from presilicon.workloads.published import classified, from_networks
from presilicon.workloads.reading.splits import Splits
from presilicon.workloads.workload import Workload, adamw, sgd

if TYPE_CHECKING:
    from numpy import intp, uint8
    from numpy.typing import NDArray
    from torch import Generator, Tensor


VARIABLE = "PRESILICON_FASHION_MNIST"
"""Environment variable: the folder of the four `idx` files, or `subset` for the images in the package."""

INSTALLED = Path("/usr/share/datasets/fashion-mnist")
"""Folder in which Debian's package dataset-fashion-mnist installs the files."""

CLASSES = 10
VALIDATION = 200
"""Images per class in the validation split, the last ones of the training file; the same for the subset."""
SUBSET_TRAIN, SUBSET_TEST = 1200, 200
"""Images per class in the subset, the first ones of each file."""


class FashionSplit(NamedTuple):
    """Images as (examples, 28, 28) bytes, and their classes."""

    images: NDArray[uint8]
    labels: NDArray[uint8]


Parts = tuple[FashionSplit, FashionSplit, FashionSplit]
"""Training, validation and test."""


def full_set() -> Path | None:
    """The folder of the full set, or None to use the subset.

    Raises:
        ConfigError: the environment variable names a folder without the files.
    """
    setting = os.environ.get(VARIABLE, "")
    if setting == "subset":
        return None
    if setting:
        folder = Path(setting)
        if not _files(folder):
            raise ConfigError(
                f"{VARIABLE} is {setting!r}, which contains no train-images-idx3-ubyte, with or without .gz; "
                'set it to the folder of the four files of Fashion-MNIST, or to "subset"'
            )
        return folder
    return INSTALLED if _files(INSTALLED) else None


def load_fashion(image: bool, full: bool) -> Splits:
    """The images as float32, normalized by the training split's mean and deviation, and class indices.

    Inputs are (examples, 1, 28, 28) if `image`, else (examples, 784). The splits of the subset have 12,000, 2,000 and
    2,000 images, equally many per class; those of the `full` set 58,000, the same 2,000, and 10,000.

    Raises:
        MissingToolError: the full set is not installed.
    """
    parts = read_full(require_full_set()) if full else read_subset()
    # Summed as integers, so that the order of additions does not matter.
    pixels = parts[0].images.astype("int64")
    mean = float(pixels.sum()) / pixels.size
    deviation = (float((pixels * pixels).sum()) / pixels.size - mean * mean) ** 0.5

    def pair(part: FashionSplit) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = (torch.tensor(part.images, dtype=torch.float32) - mean) / deviation
        return inputs.reshape((-1, 1, 28, 28) if image else (-1, 784)), torch.tensor(part.labels, dtype=torch.int64)

    return Splits(*map(pair, parts))


def read_subset() -> Parts:
    """The splits in the package."""
    packed = (resources.files(__package__) / "data" / "fashion-mnist-16000.npy.xz").read_bytes()
    file = io.BytesIO(lzma.decompress(packed))
    train, validation, test = (FashionSplit(np.load(file), np.load(file)) for _ in range(3))
    return train, validation, test


def read_full(folder: Path) -> Parts:
    """The splits of the full set, from the four published files."""
    images, labels = _read(folder, "train-images-idx3-ubyte"), _read(folder, "train-labels-idx1-ubyte")
    held = np.sort(np.concatenate([_of_class(labels, number)[-VALIDATION:] for number in range(CLASSES)]))
    rest = np.setdiff1d(np.arange(len(labels)), held)
    test = FashionSplit(_read(folder, "t10k-images-idx3-ubyte"), _read(folder, "t10k-labels-idx1-ubyte"))
    return FashionSplit(images[rest], labels[rest]), FashionSplit(images[held], labels[held]), test


def subset_of(parts: Parts) -> Parts:
    """The subset that is in the package, sorted by class, which compresses best."""
    train, validation, test = parts
    return _first(train, SUBSET_TRAIN), _first(validation, VALIDATION), _first(test, SUBSET_TEST)


def _first(part: FashionSplit, count: int) -> FashionSplit:
    indices = np.concatenate([_of_class(part.labels, number)[:count] for number in range(CLASSES)])
    return FashionSplit(part.images[indices], part.labels[indices])


def _of_class(labels: NDArray[uint8], number: int) -> NDArray[intp]:
    return np.flatnonzero(labels == number)


def require_full_set() -> Path:
    """The folder of the full set.

    Raises:
        MissingToolError: it is not installed, with the command that installs it.
    """
    folder = full_set()
    if folder is None:
        raise MissingToolError(
            "the full Fashion-MNIST is not installed; install it with: apt-get install dataset-fashion-mnist, or set "
            f"{VARIABLE} to the folder of its four files"
        )
    return folder


def _files(folder: Path) -> bool:
    return any((folder / f"train-images-idx3-ubyte{ending}").is_file() for ending in ("", ".gz"))


def _read(folder: Path, name: str) -> NDArray[uint8]:
    """An idx file: two zero bytes, the type (8: bytes), the number of axes, their lengths, then the data."""
    plain, packed = folder / name, folder / f"{name}.gz"
    try:
        content = (
            read_file(plain, LARGEST_DATA) if plain.is_file() else gzip.decompress(read_file(packed, LARGEST_DATA))
        )
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{packed}: cannot be read ({error})") from None
    axes = content[3] if content[:3] == b"\0\0\x08" else 0
    shape = [int.from_bytes(content[4 * axis + 4 : 4 * axis + 8], "big") for axis in range(axes)]
    data = np.frombuffer(content, np.uint8)[4 * axes + 4 :]
    if not axes or data.size != np.prod(shape):
        raise ConfigError(f"{plain}: not an idx file of bytes, or truncated")
    return data.reshape(shape)


def shift_and_flip(images: Tensor, generator: Generator, pixels: int = 2) -> Tensor:
    """Each image of (batch, channels, height, width) shifted by up to `pixels` both ways, and mirrored half the time.

    What a shift uncovers repeats the image's border.
    """
    from torch.nn import functional

    count, _, height, width = images.shape
    device = images.device
    down, right = torch.randint(0, 2 * pixels + 1, (2, count, 1), generator=generator, device=device)
    rows = down + torch.arange(height, device=device)
    columns = right + torch.arange(width, device=device)
    is_mirrored = torch.rand(count, 1, generator=generator, device=device) < 0.5
    columns = torch.where(is_mirrored, columns.flip(1), columns)
    padded = functional.pad(images, (pixels,) * 4, mode="replicate")
    numbers = torch.arange(count, device=device)
    # Indices on both sides of a slice put the sliced axis, the channels, at the end.
    return padded[numbers[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def _small(
    name: str, network: str, model: str, *, learning_rate: float, max_steps: int, image: bool = True, **sizes: Any
) -> Workload:
    """A workload for a CPU, on what is installed of the images."""
    full = full_set() is not None
    return Workload(
        name=name,
        description=f"{network} on {'the whole' if full else '16,000 pictures'} of Fashion-MNIST",
        model=partial(from_networks, model, **sizes),
        data=partial(load_fashion, image=image, full=full),
        # docs/workloads.md says how target and budget were chosen.
        target=0.85,
        optimizer=partial(sgd, learning_rate=learning_rate, momentum=0.9),
        schedule="constant(scale_from=64)",
        batch_size=64,
        evaluate_every=25,
        sustain=3,
        max_steps=max_steps,
    )


fashion_mlp = partial(
    _small, "fashion-mlp", "a multilayer perceptron", "perceptron.perceptron", image=False, learning_rate=0.02,
    max_steps=2500, widths=(784, 128, 128, 10),
)  # fmt: skip
"""A perceptron with two hidden layers of 128 units on Fashion-MNIST."""

fashion_cnn = partial(
    _small, "fashion-cnn", "a small convolutional network", "fashion.convolutional", learning_rate=0.05, max_steps=1500
)
"""A small convolutional network without normalization on Fashion-MNIST."""

fashion_alexnet = partial(
    _small, "fashion-alexnet", "an AlexNet for 32x32 images", "fashion.alexnet32", learning_rate=0.02, max_steps=4000
)
"""AlexNet for small images on Fashion-MNIST, padded to 32x32."""

fashion_resnet = partial(
    _small, "fashion-resnet", "a ResNet-8 with batch normalization", "fashion.residual", learning_rate=0.05,
    max_steps=1500,
)  # fmt: skip
"""A ResNet-8 with batch normalization on Fashion-MNIST."""


def _large(name: str, network: str, model: str, **rest: Any) -> Workload:
    """A workload for a GPU, on the full set with augmentation."""
    return Workload(
        name=name,
        description=f"{network} on the whole of Fashion-MNIST, with augmentation; for a GPU",
        model=partial(from_networks, model),
        data=partial(load_fashion, image=True, full=True),
        installed=require_full_set,
        example=partial(classified, shape=(1, 28, 28)),
        augment=partial(shift_and_flip, pixels=2),
        batch_size=128,
        evaluate_every=100,
        sustain=3,
        # Ten epochs. docs/workloads.md says how targets were chosen.
        max_steps=4530,
        **rest,
    )


FASHION_RESNET18 = _large(
    "fashion-resnet18",
    "a ResNet-18",
    "fashion.residual18",
    target=0.93,
    optimizer=partial(sgd, learning_rate=0.1, momentum=0.9, weight_decay=5e-4),
    schedule="cosine(warmup=200, scale_from=128)",
)

FASHION_VIT = _large(
    "fashion-vit",
    "a vision transformer of six layers",
    "vit.VisionTransformer",
    target=0.88,
    optimizer=partial(adamw, learning_rate=1e-3, weight_decay=0.05),
    schedule="cosine(warmup=400)",
    clip_norm=1.0,
)
