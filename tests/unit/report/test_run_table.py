import io
import json
import math

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.records import Comparison, ResultEvent
from presilicon.report.run_table import METRICS, RunQuery, print_rows, rows_to_json, select_rows
from presilicon.runs import create_run, label_run, list_runs


@pytest.fixture
def runs(tmp_path, comparison):
    """Three runs: one with all designs of the comparison, one with the first only, one that failed early."""
    names = [result.name for result in comparison.designs]
    for count in (len(names), 1, 0):
        config = {"designs": [{"name": name} for name in names[: count or 2]], "workload": {"name": "digits-cnn"}}
        run = create_run(tmp_path, "evaluate", config, seed=0)
        if count:
            run.record(ResultEvent(comparison=to_builtins(Comparison(designs=comparison.designs[:count]))))
        run.end("finished" if count else "failed", None if count else "no")
    first, second, _ = list_runs(tmp_path)
    label_run(tmp_path, first.name, label="night-1", add=["sweep", "old"])
    label_run(tmp_path, second.name, add=["sweep"])
    return list_runs(tmp_path)


def selected(runs, **options):
    return [(row.run.name, row.design) for row in select_rows(runs, RunQuery(**options))]


def test_every_design_of_every_run_is_a_row(runs, comparison):
    names = [result.name for result in comparison.designs]
    expected = [*((runs[0].name, name) for name in names), (runs[1].name, names[0])]
    expected += [(runs[2].name, name) for name in names[:2]]
    assert selected(runs) == expected
    assert selected(runs, reverse=True) == expected[::-1]


def test_filters_select_runs_and_designs(runs, comparison):
    names = [result.name for result in comparison.designs]
    assert selected(runs, design=names[0]) == [(run.name, names[0]) for run in runs]
    assert {name for name, _ in selected(runs, name="night-*")} == {runs[0].name}
    assert {name for name, _ in selected(runs, name=runs[1].name)} == {runs[1].name}
    assert {name for name, _ in selected(runs, tags=("sweep",))} == {runs[0].name, runs[1].name}
    assert {name for name, _ in selected(runs, tags=("sweep", "old"))} == {runs[0].name}
    assert selected(runs, workload="digits-*") == selected(runs)
    assert selected(runs, workload="mnist") == []


def test_a_design_whose_name_has_brackets_is_found_by_it(tmp_path):
    name = "a[machine.rows=32]"
    create_run(tmp_path, "evaluate", {"designs": [{"name": name}], "workload": {"name": "w"}}, seed=0).end("finished")
    assert [design for _, design in selected(list_runs(tmp_path), design=name)] == [name]


def test_since_counts_in_utc_unless_told_otherwise(tmp_path, runs):
    record = json.loads((runs[0].path / "run.json").read_text())
    (runs[0].path / "run.json").write_text(json.dumps(record | {"created": "2020-05-05T12:00:00.000000Z"}))
    runs = list_runs(tmp_path)
    early = lambda since: runs[0].name in {name for name, _ in selected(runs, since=since)}  # noqa: E731
    assert early("2020-05-05")
    assert early("2020-05-05T12:00")
    assert not early("2020-05-05T12:01")
    assert early("2020-05-05T12:01+02:00")
    assert not early("2020-05-06")


@pytest.mark.parametrize("sign", [">=", "<=", ">", "<", "=", "==", "!="])
def test_conditions_hold_as_python_says(runs, sign):
    results = [row.result for row in select_rows(runs, RunQuery()) if row.result is not None]
    bound = results[0].time_per_step_s
    found = select_rows(runs, RunQuery(where=(f" time_per_step_s {sign} {bound!r}",)))
    python = {"=": "=="}.get(sign, sign)
    assert [row.result for row in found] == [
        result for result in results if eval(f"{result.time_per_step_s!r} {python} {bound!r}")
    ]


def test_a_target_that_is_never_held_is_infinitely_far_and_a_missing_result_nowhere(tmp_path, comparison):
    never = replace(
        comparison.designs[0], time_to_accuracy_s=type(comparison.designs[0].time_to_accuracy_s)(None, 1, None)
    )
    run = create_run(tmp_path, "evaluate", {}, seed=0)
    run.record(ResultEvent(comparison=to_builtins(Comparison(designs=(never, comparison.designs[1])))))
    run.end("finished")
    create_run(tmp_path, "reproduce-x", {}, seed=None).end("finished")
    runs = list_runs(tmp_path)
    assert [design for _, design in selected(runs, where=("time_s>1e9",))] == [never.name]
    assert [design for _, design in selected(runs, where=("time_s<1e9",))] == [comparison.designs[1].name]
    assert [row.design for row in select_rows(runs, RunQuery(sort="time_s"))] == [
        comparison.designs[1].name,
        never.name,
        "",
    ]
    assert [row.design for row in select_rows(runs, RunQuery(sort="time_s", reverse=True))][-1] == ""
    text = io.StringIO()
    print_rows(select_rows(runs, RunQuery()), text)
    assert "never" in text.getvalue().splitlines()[1]
    assert text.getvalue().splitlines()[3].split()[2:] == ["reproduce-x", *["-"] * 5]


@pytest.mark.parametrize("metric", METRICS)
def test_rows_are_sorted_by_any_metric(runs, metric):
    values = [row.metric(metric) for row in select_rows(runs, RunQuery(sort=metric))]
    known = [value for value in values if not math.isnan(value)]
    assert known == sorted(known)
    assert all(map(math.isnan, values[len(known) :]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": ("acuracy>0.9",)}, 'unknown metric of --where "acuracy": did you mean "accuracy"'),
        ({"where": ("accuracy>high",)}, "must be a metric, one of >= <= != == > < = and a number"),
        ({"where": ("accuracy>nan",)}, "must be a metric"),
        ({"where": ("accuracy",)}, "must be a metric"),
        ({"where": ("0.9<accuracy",)}, "must be a metric"),
        ({"where": ("",)}, "must be a metric"),
        ({"since": "yesterday"}, "--since must be a date such as 2026-11-15"),
        ({"sort": "tme_s"}, 'unknown metric of --sort "tme_s": did you mean "time_s"'),
    ],
)
def test_a_bad_query_is_explained_even_without_runs(options, message):
    with pytest.raises(ConfigError, match=message):
        select_rows((), RunQuery(**options))


def test_the_document_has_each_run_once_with_its_designs(runs, comparison):
    documents = json.loads(rows_to_json(select_rows(runs, RunQuery(sort="time_s"))))["runs"]
    assert sorted(document["name"] for document in documents) == sorted(run.name for run in runs)
    first = next(document for document in documents if document["label"] == "night-1")
    assert first["tags"] == ["sweep", "old"]
    by_name = {result.name: result for result in comparison.designs}
    for result in first["results"]:
        assert result["energy_j"] == by_name[result["design"]].energy_to_accuracy_j.median
        assert result["value"] == by_name[result["design"]].value
