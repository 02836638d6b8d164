"""Negating a metric and turning its direction changes no study: neither what is searched nor what is chosen."""

from math import isnan
from pathlib import Path
from typing import Any

import pytest

import presilicon as ps
from presilicon.study.search import optimizing

SOURCE = """
from dataclasses import replace

from presilicon.workloads import Metric, load_metric, load_workload

accuracy = load_metric("accuracy")


def negative(outputs, targets):
    return -accuracy.compute(outputs, targets)


metrics = {"plain": accuracy, "turned": Metric(name="turned", compute=negative, better="lower", low=-1, high=0)}
workload = replace(load_workload("digits-mlp"), target=SIGN * 0.7, metric=metrics["WHICH"])
"""
STUDY = {"designs": "edge-bf16", "train": {"seeds": 1, "max_steps": 60, "evaluate_every": 10}}
SEARCH = {
    "name": "search",
    "objectives": ["accuracy", "time_per_step_s"],
    "vary": {"machine": {"rows": [8, 16, 32]}, "learning_rate": {"from": 1e-4, "to": 1.0, "log": True}},
    "search": {"sampler": "tpe", "points": 20, "seed": 0},
}
CHOICE = {
    "name": "choice",
    "vary": {"machine": {"rows": [8, 32]}, "learning_rate": [1e-4, 0.01, 0.1]},
    "choose": {"best": 2, "promising": 8},
}


def outcome(folder: Path, which: str, limit: str, settings: dict[str, Any]) -> tuple[Any, ...]:
    """What a study found, with its metric as an accuracy."""
    path = folder / f"{which}.py"
    path.write_text(SOURCE.replace("WHICH", which).replace("SIGN", "-1" if which == "turned" else "1"))
    study = STUDY | settings | {"workloads": str(path), "subject_to": [limit]}
    result = ps.sweep(study, out=folder / which, jobs=1)
    points = [(tuple(record.values.values()), _positive(record.metric("accuracy"))) for record in result.records]
    choice = result.recommendation
    chosen = None if choice is None else (choice.number, {name: abs(value) for name, value in choice.metrics.items()})
    places = [
        [record.number for record in result.records if record.key in keys] for keys in (result.feasible, result.front)
    ]
    return points, places, chosen


def _positive(value: float) -> float | None:
    return None if isnan(value) else abs(value)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SEARCH, CHOICE], ids=lambda settings: settings["name"])
def test_a_turned_metric_changes_no_study(settings: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    plain = outcome(tmp_path, "plain", "accuracy >= 0.72", settings)
    assert plain == outcome(tmp_path, "turned", "accuracy <= -0.72", settings)


@pytest.mark.slow
def test_a_search_that_always_maximizes_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    monkeypatch.setattr(optimizing, "shared_direction", lambda study: "higher")
    plain = outcome(tmp_path, "plain", "accuracy >= 0.72", SEARCH)
    assert plain != outcome(tmp_path, "turned", "accuracy <= -0.72", SEARCH)
