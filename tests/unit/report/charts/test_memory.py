"""The memory of a step as text and figure."""

import sys

import pytest

from presilicon.base import ConfigError, MissingToolError
from presilicon.records import Lifetime, MemoryPoint, MemoryTimeline
from presilicon.report import render_memory, save_memory_plot

KIB = 1024.0
TIMELINE = MemoryTimeline(
    points=(
        MemoryPoint(name="fc.forward", phase="forward", start_s=0, end_s=1e-6, weights_bytes=KIB,
                    activations_bytes=KIB),
        MemoryPoint(name="fc.weight_grad", phase="weight_grad", start_s=1e-6, end_s=3e-6, weights_bytes=KIB,
                    activations_bytes=KIB, gradients_bytes=2 * KIB),
        MemoryPoint(name="fc.update", phase="update", start_s=3e-6, end_s=4e-6, weights_bytes=KIB, state_bytes=KIB),
    ),
    lifetimes=(
        Lifetime(tensor=1, role="activation", part="activations", size_bytes=KIB, write_s=0, last_read_s=3e-6),
        Lifetime(tensor=2, role="activation", part="activations", size_bytes=KIB, write_s=1e-6, last_read_s=2e-6),
    ),
)  # fmt: skip
EMPTY = MemoryTimeline(points=(), lifetimes=())


def test_the_text_names_the_peak_and_its_parts() -> None:
    assert render_memory(TIMELINE).splitlines() == [
        "peak memory  4 KiB while fc.weight_grad runs, at 1 us",
        "  weights             1 KiB",
        "  gradients           2 KiB",
        "  activations         1 KiB  kept up to 3 us",
    ]
    assert "no memory is used" in render_memory(EMPTY)


def test_the_figure_names_parts_peak_units_and_passes(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    text = save_memory_plot(TIMELINE, tmp_path / "memory.svg", title="a linear layer").read_text()
    for expected in (
        "a linear layer", "weights", "activations", "gradients", "state", "4 KiB at fc.weight_grad", "held (KiB)",
        "simulated time (µs)", "backward", "update",
    ):  # fmt: skip
        assert expected in text
    for absent in ("transients", "rounded weights"):
        assert absent not in text


def test_the_same_timeline_gives_the_same_bytes(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    one, other = (save_memory_plot(TIMELINE, tmp_path / f"{name}.png", title="t").read_bytes() for name in "ab")
    assert one.startswith(b"\x89PNG")
    assert one == other
    assert save_memory_plot(EMPTY, tmp_path / "empty.png", title="t").read_bytes() != one


def test_impossible_files_and_a_missing_library_are_named(tmp_path, monkeypatch) -> None:
    with pytest.raises(ConfigError, match='unknown figure format "pgn": did you mean "png"'):
        save_memory_plot(TIMELINE, tmp_path / "memory.pgn", title="t")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingToolError, match=r"pip install 'presilicon\[plot\]'"):
        save_memory_plot(TIMELINE, tmp_path / "memory.png", title="t")
