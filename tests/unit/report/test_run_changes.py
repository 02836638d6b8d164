import json

import pytest
from msgspec.structs import replace

from presilicon.records import DesignChange, Interval, Pair
from presilicon.report import changes_to_json, render_changes
from presilicon.runs import create_run, list_runs


@pytest.fixture
def runs(tmp_path):
    for _ in range(2):
        create_run(tmp_path, "evaluate", {}, seed=0).end("finished")
    return list_runs(tmp_path)


def lines_of(runs, change):
    text = render_changes(*runs, [], [change])
    return {line.strip().split("  ")[0]: line.split() for line in text.splitlines() if line.startswith("  ")}, text


def test_each_metric_has_its_difference(runs, comparison):
    first = comparison.designs[0]
    second = replace(
        first,
        value=first.value - 0.02,
        energy_to_accuracy_j=Interval(2 * first.energy_to_accuracy_j.median, None, None),
        time_to_accuracy_s=Interval(None, None, None),
        area_mm2=None,
    )
    lines, text = lines_of(runs, DesignChange(first=first, second=second, unpaired="no seed in common"))
    assert lines["accuracy (higher is better)"][-2:] == ["-2.00", "points"]
    assert lines["energy to acc."][-1] == "+100.0%"
    assert lines["time to acc."][-2:] == ["never", "-"]
    assert lines["memory"][-1] == "same"
    assert lines["area"][-2:] == ["-", "-"]
    assert text.endswith("seeds are not paired: no seed in common\n")
    (design,) = json.loads(changes_to_json(*runs, [], [DesignChange(first=first, second=second)]))["designs"]
    assert design["metrics"]["time_s"]["b"] is None
    assert design["metrics"]["energy_j"]["difference"] == pytest.approx(first.energy_to_accuracy_j.median)


def test_a_metric_that_is_no_fraction_differs_in_percent(runs, comparison):
    first = replace(comparison.designs[0], metric="loss", metric_is_fraction=False, value=2.0)
    lines, _ = lines_of(runs, DesignChange(first=first, second=replace(first, value=1.5)))
    assert lines["loss (higher is better)"][-1] == "-25.0%"


@pytest.mark.parametrize(("low", "verdict"), [(1.1, "separated"), (0.9, "not separated")])
def test_paired_seeds_separate_runs_if_the_interval_excludes_one(runs, comparison, low, verdict):
    pair = Pair(
        first="A (a)", second="B (b)", seeds=6, wins=5, losses=0, ties=1, probability_faster=0.9, sign_test_p=0.1,
        time_ratio=Interval(1.3, low, 1.5), seeds_needed=20,
    )  # fmt: skip
    result = comparison.designs[0]
    change = DesignChange(first=result, second=result, pair=pair, steps_ratio=Interval(1.3, low, 1.5))
    text = render_changes(*runs, [], [change])
    rows = [line for line in text.splitlines() if line.startswith(("  steps", "  time to"))]
    assert all(line.endswith(f"1.3 ({low}-1.5), {verdict}") for line in rows)
    assert len(rows) == 2
    assert f"{pair.first} is faster than {pair.second} on 5 of" in text
    behind = replace(change, pair=replace(pair, wins=0, losses=5))
    assert f"{pair.second} is faster than {pair.first} on 5 of" in render_changes(*runs, [], [behind])
