"""The circuits that the instrument is measured against compute what they say."""

import subprocess
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from presilicon.rtl.sources import module_files
from presilicon.rtl.verilator import build_program

N, WIDTH, BINS, VECTORS, FRAME = 4, 16, 16, 64, 16
BENCH = Path(__file__).with_name("measured_bench.sv")


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    rng = np.random.default_rng(0)
    found = rng.integers(-200, 250, (VECTORS, N))
    found[rng.random((VECTORS, N)) < 0.3] = 0
    return found


@pytest.fixture(scope="module")
def blocks() -> list[tuple[bool, int, list[int]]]:
    rng = np.random.default_rng(1)
    return [
        (place % FRAME == 0, int(rng.integers(-6, 6)), [int(each) for each in rng.integers(-128, 128, N)])
        for place in range(VECTORS)
    ]


@pytest.fixture(scope="module")
def printed(vectors, blocks, tmp_path_factory) -> dict[str, list[tuple[int, int]]]:
    folder = tmp_path_factory.mktemp("bench")

    def word(values, width: int) -> int:
        return sum((int(value) & (1 << width) - 1) << width * lane for lane, value in enumerate(values))

    lines = [f"{(place % FRAME == FRAME - 1) << N * WIDTH | word(each, WIDTH):x}" for place, each in enumerate(vectors)]
    (folder / "vectors.hex").write_text("\n".join(lines))
    lines = [
        f"{first << N * 8 + 8 | (exponent & 255) << N * 8 | word(mantissas, 8):x}"
        for first, exponent, mantissas in blocks
    ]
    (folder / "blocks.hex").write_text("\n".join(lines))
    tops = ("presilicon_baseline_instrument", "presilicon_block_accumulate")
    program = build_program("measured_bench", [BENCH, *module_files(*tops)], [])
    done = subprocess.run([program], cwd=folder, capture_output=True, text=True, check=True)
    found = defaultdict(list)
    for line in done.stdout.splitlines():
        parts = line.split()
        if len(parts) == 3:
            found[parts[0]].append((int(parts[1]), int(parts[2], 16)))
    return found


def words(blocks, width: int = WIDTH) -> list[int]:
    return [block >> width * lane & (1 << width) - 1 for block in blocks for lane in range(N)]


def frames(vectors) -> np.ndarray:
    return vectors.reshape(-1, FRAME * N)


def test_the_baseline_counts_into_bins(vectors, printed) -> None:
    bins = np.clip((frames(vectors) + 100) >> 4, 0, BINS - 1)
    wanted = [int(count) for frame in bins for count in np.bincount(frame, minlength=BINS)]
    assert words(block for mode, block in printed["baseline"] if mode == 0) == wanted


def test_the_baseline_marks_zeros(vectors, printed) -> None:
    bits = [block >> place & 1 for mode, block in printed["baseline"] if mode == 1 for place in range(N * WIDTH)]
    assert bits == (vectors == 0).ravel().astype(int).tolist()


def test_the_baseline_sums_up(vectors, printed) -> None:
    wanted = [each for frame in frames(vectors) for each in (int(frame.sum()) & 0xFFFF, int((frame == 0).sum()))]
    assert words(block for mode, block in printed["baseline"] if mode == 2) == wanted


def test_blocks_are_summed_with_one_exponent(blocks, printed) -> None:
    exponent, sums = 0, [0] * N
    for (first, other, mantissas), (made, block) in zip(blocks, printed["block"], strict=True):
        if first:
            exponent, sums = other, [0] * N
        together = max(exponent, other)
        sums = [
            (ours >> min(together - exponent, 8)) + (theirs >> min(together - other, 8))
            for ours, theirs in zip(sums, mantissas, strict=True)
        ]
        exponent = together
        if any(not -128 <= each <= 127 for each in sums):
            exponent, sums = exponent + 1, [each >> 1 for each in sums]
        assert made == exponent
        assert words([block], 8) == [each & 255 for each in sums]
