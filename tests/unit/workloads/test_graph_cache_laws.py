"""A kept step is the step that is captured, whatever one field of a workload is changed to."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from types import MethodType
from typing import Any

import pytest

from presilicon.ops import enter, function, withdraw
from presilicon.workloads import adamw, capture_workload, graphs, load_workload, sgd, step_graph, workload_names
from presilicon.workloads.networks.perceptron import perceptron

DIGITS = load_workload("digits-mlp")
CNN = load_workload("digits-cnn")
CHANGES: tuple[tuple[dict[str, Any], int | None], ...] = (
    ({}, None),
    ({}, 16),
    ({"batch_size": 16}, None),
    ({"batch_size": 16}, 32),
    ({"accumulate": 2}, 32),
    ({"optimizer": adamw}, None),
    ({"optimizer": partial(adamw, learning_rate=0.5)}, None),
    ({"optimizer": partial(sgd, momentum=0.0)}, None),
    ({"model": CNN.model, "data": CNN.data, "example": CNN.example}, None),
    ({"name": "another"}, None),
    ({"max_steps": 7}, None),
)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PRESILICON_CACHE", str(tmp_path))
    return tmp_path / "graphs"


def test_kept_steps_are_those_that_are_captured_one_change_after_another(kept: Path) -> None:
    captured = [capture_workload(replace(DIGITS, **change), batch_size) for change, batch_size in CHANGES]
    for _ in range(2):  # first each is kept, then each is read
        for (change, batch_size), graph in zip(CHANGES, captured, strict=True):
            assert step_graph(replace(DIGITS, **change), batch_size) == graph
    differing = {id(graph): graph for graph in captured}.values()
    assert len(list(kept.iterdir())) >= len({str(graph) for graph in differing})


def test_what_is_bound_to_an_object_is_not_taken_for_what_is_bound_to_another(kept: Path) -> None:
    """The name of a method says nothing of its object."""
    for widths in ((64, 32, 10), (64, 16, 10)):
        workload = replace(DIGITS, model=MethodType(perceptron, widths))
        assert step_graph(workload, 16) == capture_workload(workload, 16)


def test_the_steps_of_every_workload_of_the_package_can_be_kept(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from presilicon.workloads.capturing import step_capture

    graph = capture_workload(DIGITS, 16)
    monkeypatch.setattr(step_capture, "capture_workload", lambda workload, batch_size: graph)
    names = workload_names()
    for name in names:
        step_graph(load_workload(name), 4)
    assert len(list(kept.iterdir())) == len(names)


@pytest.fixture
def own_entry() -> Iterator[None]:
    yield
    withdraw("relu")


def test_a_kept_step_is_what_the_op_table_says_now(kept: Path, own_entry: None) -> None:
    plain = step_graph(DIGITS, 16)
    enter(function("relu", results=50))
    for _ in range(2):
        assert step_graph(DIGITS, 16) == capture_workload(DIGITS, 16) != plain
    withdraw("relu")
    assert step_graph(DIGITS, 16) == plain


def test_packages_that_change_the_op_table_are_part_of_a_name(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = graphs._name(DIGITS, 16)
    monkeypatch.setattr(graphs, "extensions_named_in", lambda text: {"presilicon.ops:relu": "a package 1.0"})
    assert before != graphs._name(DIGITS, 16)


@pytest.mark.parametrize(
    "changed", ["workloads/capturing/recorder.py", "ops/entries/activations.py", "records/graph.py"]
)
def test_sources_that_decide_what_is_captured_are_part_of_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    package = tmp_path / "presilicon"
    for room in graphs._ROOMS:
        shutil.copytree(Path(str(files("presilicon") / room)), package / room)
    monkeypatch.setattr(graphs, "files", lambda name: package)
    before = graphs._origins.__wrapped__()
    with (package / changed).open("a") as file:
        file.write("# changed")
    assert graphs._origins.__wrapped__() != before
