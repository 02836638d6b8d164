import csv
import io
import json

import msgspec
import pytest

from presilicon.base import ConfigError
from presilicon.records import (
    Comparison,
    CurvePoint,
    DesignEvent,
    EvaluationEvent,
    Interval,
    Result,
    ResultEvent,
    SeedResult,
)
from presilicon.runs import create_run, export_run, load_run


def comparison():
    none = Interval(None, None, None)
    curve = tuple(CurvePoint(step=s, value=0.5 + s / 100, time_s=s * 1e-3, energy_j=s * 1e-6) for s in (10, 20))
    seed = SeedResult(
        seed=7,
        steps_to_accuracy=None,
        time_to_accuracy_s=None,
        energy_to_accuracy_j=None,
        value=0.7,
        steps=20,
        ending="budget",
        curve=curve,
    )
    result = Result(
        name="a, b",
        workload="w",
        target=0.9,
        steps_to_accuracy=none,
        time_to_accuracy_s=none,
        energy_to_accuracy_j=none,
        reached="0/1",
        value=0.7,
        time_per_step_s=1e-3,
        energy_per_step_j=1e-6,
        memory_bytes=1,
        area_mm2=None,
        seeds=(seed,),
        provenance={},
    )
    return Comparison(designs=(result,))


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def run(tmp_path):
    run = create_run(tmp_path, "evaluate", {"x": 1}, seed=7)
    run.record(DesignEvent(design="a, b", config={}))
    for step in (10, 20):
        run.record(EvaluationEvent(design="a, b", seed=7, step=step, value=0.5 + step / 100, loss=1.0))
    return run


def test_csv_before_the_result_has_no_costs(run):
    text = export_run(load_run(run.path.parent, run.name), "csv")
    assert text.splitlines()[0] == "design,seed,step,metric,value,time_s,energy_j"
    assert rows(text)[0] == {
        "design": "a, b", "seed": "7", "step": "10", "metric": "accuracy", "value": "0.6", "time_s": "", "energy_j": "",
    }  # fmt: skip


def test_csv_after_the_result_joins_what_each_evaluation_had_cost(run):
    run.record(ResultEvent(comparison=msgspec.to_builtins(comparison())))
    found = rows(export_run(load_run(run.path.parent, run.name), "csv"))
    assert [(row["step"], float(row["time_s"]), float(row["energy_j"])) for row in found] == [
        ("10", 0.01, pytest.approx(1e-5)),
        ("20", 0.02, pytest.approx(2e-5)),
    ]


def test_json_holds_the_record_and_the_events(run):
    run.record(ResultEvent(comparison=msgspec.to_builtins(comparison())))
    run.end("finished")
    document = json.loads(export_run(load_run(run.path.parent, run.name), "json"))
    assert document["schema"] == 2
    assert document["run"]["name"] == run.name
    assert document["run"]["status"] == "finished"
    assert document["run"]["config"] == {"x": 1}
    assert [event["event"] for event in document["events"]] == ["design", "evaluation", "evaluation", "result"]
    assert document["events"][-1]["comparison"]["designs"][0]["reached"] == "0/1"


def test_an_unknown_format_is_an_error(run):
    with pytest.raises(ConfigError, match=r'unknown export format "cvs": did you mean "csv"\?'):
        export_run(load_run(run.path.parent, run.name), "cvs")


def test_an_unreadable_run_is_an_error(run):
    (run.path / "run.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be exported"):
        export_run(load_run(run.path.parent, run.name), "json")
