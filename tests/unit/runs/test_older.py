"""Runs from before schema 2: shown under the present names, never resumed."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from presilicon.base import ConfigError
from presilicon.records import (
    Comparison,
    CurvePoint,
    EvaluationEvent,
    Interval,
    Recommendation,
    Result,
    ResultEvent,
    SeedFinished,
    SeedRestored,
    SeedResult,
)
from presilicon.report import comparison_of, print_run
from presilicon.runs import StoredRun, create_run, export_run, load_run, resume_run
from presilicon.runs.older import present_comparison
from presilicon.study.search.sweep import read_recommendation

THEN = {"value": "accuracy", "direction": "better", "test_value": "test_accuracy"}
"""Names of schema 1 by those of schema 2."""


def comparison() -> Comparison:
    some, steps = Interval(10.0, 10.0, 20.0), (10, 20)
    seed = SeedResult(
        seed=7, steps_to_accuracy=10, time_to_accuracy_s=0.1, energy_to_accuracy_j=1.0, value=11.8, steps=20,
        ending="target", curve=tuple(CurvePoint(step=s, value=12 - s / 20, time_s=s / 100, energy_j=s) for s in steps),
    )  # fmt: skip
    result = Result(
        name="a", workload="w", target=11.5, metric="perplexity", value=11.8, direction="lower",
        metric_is_fraction=False, steps_to_accuracy=some, time_to_accuracy_s=some, energy_to_accuracy_j=some,
        reached="1/1", time_per_step_s=0.01, energy_per_step_j=0.1, memory_bytes=1, area_mm2=None, seeds=(seed,),
        provenance={"accuracy": "test split at the end of training"},
    )  # fmt: skip
    return Comparison(designs=(result,))


EVENTS = (
    EvaluationEvent(design="a", seed=7, step=10, value=11.5, loss=2.0),
    EvaluationEvent(design="a", seed=7, step=20, value=None),
    SeedFinished(design="a", seed=7, steps=20, ending="target", test_value=11.8),
    SeedRestored(design="a", seed=8, steps=20, ending="budget", test_value=None),
    ResultEvent(comparison=msgspec.json.decode(msgspec.json.encode(comparison()))),
)


def as_then(plain: Any) -> Any:
    """Plain data with the names and numbers of schema 1; what a result says of its provenance never had others."""
    if isinstance(plain, list | tuple):
        return [as_then(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    renamed = {THEN.get(name, name): value if name == "provenance" else as_then(value) for name, value in plain.items()}
    return renamed | {"schema": 1} if "schema" in renamed else renamed


@pytest.fixture
def old(tmp_path: Path) -> StoredRun:
    """A run as a version of schema 1 recorded it."""
    metric = {"name": "perplexity", "better": "lower", "low": 1, "high": "inf"}
    with create_run(tmp_path, "evaluate", {"workload": {"name": "w", "metric": metric}}, seed=7) as run:
        for event in EVENTS:
            run.record(event)
    for name in ("run.json", "events.jsonl"):
        lines = (run.path / name).read_text()
        plain = [json.loads(lines)] if name == "run.json" else [json.loads(line) for line in lines.splitlines()]
        written = [record | {"schema": 1} if "schema" in record else as_then(record) for record in plain]
        (run.path / name).write_text("".join(json.dumps(record) + "\n" for record in written))
    text = (run.path / "events.jsonl").read_text()
    assert all(f'"{name}"' in text for name in THEN.values())
    assert not any(f'"{name}"' in text for name in THEN)
    return load_run(tmp_path, run.name)


def test_its_events_and_result_are_those_of_today(old: StoredRun) -> None:
    events = [msgspec.structs.replace(event, time="") for event in old.events()]
    assert events == list(EVENTS)
    assert comparison_of(old) == comparison()


def test_it_is_shown_with_a_note(old: StoredRun, capsys: pytest.CaptureFixture[str]) -> None:
    print_run(old)
    shown = capsys.readouterr().out
    assert "note: recorded by an earlier version (schema 1): shown, not resumed" in shown
    assert "a seed 7: 20 steps, target, perplexity 11.8" in shown
    rows = export_run(old, "csv").splitlines()
    assert rows[1:] == ["a,7,10,perplexity,11.5,0.1,10", "a,7,20,perplexity,11.0,0.2,20"]


def test_it_is_exported_as_it_was_recorded(old: StoredRun) -> None:
    document = json.loads(export_run(old, "json"))
    assert document["schema"] == 1
    assert document["events"][0]["accuracy"] == 11.5


def test_it_is_not_resumed(old: StoredRun) -> None:
    assert old.record is not None
    with pytest.raises(ConfigError, match=r"cannot be resumed: .*records of schema 1, now 2; start a new run"):
        resume_run(old.path, old.record, old.record.config)


@pytest.mark.parametrize(
    "damaged",
    [{"designs": 3}, {"designs": [3, {"seeds": {}}]}, {"schema": 1, "designs": [{"seeds": [None, {"curve": "x"}]}]}],
)
def test_damaged_results_are_kept_as_they_are(damaged: dict[str, Any]) -> None:
    assert present_comparison(damaged) == damaged | {"schema": 2}


def test_a_result_of_today_is_not_touched() -> None:
    plain = msgspec.to_builtins(comparison())
    plain["designs"][0]["accuracy"] = "a field of a later version"
    assert present_comparison(plain) is plain


def test_the_recommendation_of_a_study_from_then_is_read(tmp_path: Path) -> None:
    now = Recommendation(design="a", number=1, by="time", reference="a", comparison=comparison())
    plain = as_then(json.loads(msgspec.json.encode(now)))
    assert plain["comparison"]["designs"][0]["better"] == "lower"
    (tmp_path / "recommendation.json").write_text(json.dumps(plain))
    assert read_recommendation(tmp_path) == now
