import os
import subprocess
import sys
from pathlib import Path

import pytest

from presilicon import report
from presilicon.base import ConfigError, MissingToolError
from presilicon.records import Comparison
from presilicon.report.charts.figure import render_figure, save_drawing

SIGNATURES = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def save_figure(comparison: Comparison, path: Path) -> Path:
    return save_drawing(path, lambda format: render_figure(comparison, format))


@pytest.mark.parametrize("ending", SIGNATURES)
def test_each_format_is_written_and_reproducible(comparison, tmp_path, ending):
    pytest.importorskip("matplotlib")
    one, other = (save_figure(comparison, tmp_path / f"{name}.{ending}").read_bytes() for name in "ab")
    assert one.startswith(SIGNATURES[ending])
    assert one == other


def test_the_figure_names_designs_target_and_units(mixed, tmp_path):
    pytest.importorskip("matplotlib")
    text = save_figure(mixed, tmp_path / "figure.svg").read_text()
    for expected in ("fp8-systolic", "log8-systolic", "97%", "simulated time (ms)", "simulated energy (mJ)", "never"):
        assert expected in text


@pytest.mark.parametrize("case", ["ten", "nobody", "single seed"])
def test_odd_comparisons_can_be_drawn(build, tmp_path, case):
    pytest.importorskip("matplotlib")
    comparison = {
        "ten": lambda: build["comparison"](10),
        "nobody": lambda: build["comparison"](2, ceiling=0.9),
        "single seed": lambda: build["comparison"](1, seeds=1),
    }[case]()
    assert save_figure(comparison, tmp_path / "figure.svg").stat().st_size > 10_000


def test_unknown_endings_are_refused(comparison, tmp_path):
    with pytest.raises(ConfigError, match=r'unknown figure format "pgn": did you mean "png"\?'):
        save_figure(comparison, tmp_path / "figure.pgn")
    with pytest.raises(ConfigError, match="unknown figure format"):
        save_figure(comparison, tmp_path / "figure")


def test_nothing_to_draw_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="at least one design"):
        save_figure(Comparison(designs=()), tmp_path / "figure.png")


def test_a_place_that_cannot_be_written_is_an_error(comparison, tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(ConfigError, match="cannot write"):
        save_figure(comparison, tmp_path / "none" / "figure.svg")


def test_without_matplotlib_the_extra_is_named(comparison, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingToolError, match=r"pip install 'presilicon\[plot\]'"):
        save_figure(comparison, tmp_path / "figure.png")


def test_importing_the_room_is_light():
    heavy = ["torch", "numpy", "rich", "matplotlib", "numba"]
    program = f"import sys, presilicon.report; print([name for name in {heavy} if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(Path(report.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
