"""Captured steps are kept by everything that they depend on."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from presilicon.records import StepGraph
from presilicon.workloads import adamw, capture_workload, graphs, load_workload, step_graph

DIGITS = load_workload("digits-mlp")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PRESILICON_CACHE", str(tmp_path))
    return tmp_path / "graphs"


def test_a_kept_step_is_the_captured_one(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = step_graph(DIGITS, 16)
    monkeypatch.setitem(sys.modules, "presilicon.workloads.capturing.step_capture", None)  # cannot be imported again
    assert step_graph(DIGITS, 16) == first
    monkeypatch.undo()
    assert first == capture_workload(DIGITS, 16)


def test_other_steps_have_other_names(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        graphs._name(DIGITS, 16),
        graphs._name(DIGITS, 32),
        graphs._name(replace(DIGITS, accumulate=2), 16),
        graphs._name(replace(DIGITS, optimizer=adamw), 16),
        graphs._name(replace(DIGITS, optimizer=partial(adamw, learning_rate=0.5)), 16),
        graphs._name(load_workload("digits-cnn"), 16),
    }
    monkeypatch.setattr(graphs, "_origins", lambda: ("other sources",))
    names.add(graphs._name(DIGITS, 16))
    assert None not in names
    assert len(names) == 7


@pytest.mark.parametrize("change", [{"model": lambda: DIGITS.model()}, {"loss": lambda output, target: output.sum()}])
def test_code_outside_of_the_package_is_captured_each_time(kept: Path, change: dict) -> None:
    workload = replace(DIGITS, **change)
    assert graphs._name(workload, 16) is None
    if "model" in change:
        assert isinstance(step_graph(workload, 16), StepGraph)
        assert not kept.exists()


def test_a_damaged_file_is_captured_again(kept: Path) -> None:
    graph = step_graph(DIGITS, 16)
    (path,) = kept.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert step_graph(DIGITS, 16) == graph
    assert len(path.read_bytes()) > 100


def test_a_directory_that_cannot_be_written_to_only_costs_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PRESILICON_CACHE", str(tmp_path / "file"))
    assert step_graph(DIGITS, 16).batch_size == 16
