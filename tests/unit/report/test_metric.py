"""A metric other than accuracy in every view."""

import io
import json
import re

import pytest
from msgspec.structs import replace

from presilicon.records import Comparison, SeedFinished
from presilicon.report import print_run, render_page, render_table
from presilicon.report.charts.figure import render_figure
from presilicon.runs import create_run, load_run


@pytest.fixture
def falling(comparison):
    """A comparison by perplexity, which falls."""
    designs = []
    for result in comparison.designs:
        seeds = tuple(
            replace(seed, curve=tuple(replace(point, value=1 / point.value) for point in seed.curve))
            for seed in result.seeds
        )
        changes = {"metric": "perplexity", "direction": "lower", "metric_is_fraction": False}
        designs.append(replace(result, seeds=seeds, target=1 / result.target, value=1.0254, **changes))
    return Comparison(designs=tuple(designs))


def test_the_table_names_the_metric_and_shows_plain_numbers(falling):
    text = render_table(falling)
    assert "test perplexity" in text
    assert "steps to 1.03093" in text
    assert " 1.025 " in text
    assert "accuracy on" not in text
    assert "%" not in text.splitlines()[1]


def test_the_page_names_it_too(falling):
    page = render_page(falling)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert (data["metric"], data["fraction"], data["rising"], data["counted"]) == ("perplexity", False, False, False)
    for text in ("validation perplexity 1.03093", "Validation perplexity", "Test perplexity"):
        assert text in page.replace("\xa0", " ")


def test_the_figure_has_no_percentages(falling):
    figure = render_figure(falling, "svg").decode()
    assert "Validation perplexity on digits-cnn" in figure
    assert "1.03093" in figure
    assert "%<" not in figure


def test_samples_are_the_axis_where_they_were_recorded(comparison):
    designs = tuple(
        replace(
            result,
            seeds=tuple(
                replace(seed, curve=tuple(replace(point, samples=32 * point.step) for point in seed.curve))
                for seed in result.seeds
            ),
        )
        for result in comparison.designs
    )
    data = json.loads(re.search(r'id="data">(.*?)</script>', render_page(Comparison(designs=designs)), re.DOTALL)[1])
    assert data["counted"]
    assert data["axes"][0]["label"] == "training samples"
    first = data["designs"][0]["seeds"][0]["points"][0]
    assert first[0] == 32 * designs[0].seeds[0].curve[0].step


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ({"name": "perplexity", "low": 1, "high": "inf"}, 12.345, "target, perplexity 12.35\n"),
        ({"name": "error rate", "low": 0, "high": 1}, 0.123, "target, error rate 12.3%\n"),
        ({"name": "loss", "low": "-inf", "high": "inf"}, None, "target, unknown loss\n"),
        (None, 0.97, "target, accuracy 97%\n"),
    ],
)
def test_a_recorded_run_shows_it(tmp_path, metric, value, text):
    config = {"workload": {"name": "mine"} | ({} if metric is None else {"metric": metric})}
    run = create_run(tmp_path, "evaluate", config, seed=0)
    run.record(SeedFinished(design="a", seed=0, steps=10, ending="target", test_value=value))
    run.end("finished")
    shown = io.StringIO()
    print_run(load_run(tmp_path, run.name), shown)
    assert f"a seed 0: 10 steps, {text}" in shown.getvalue()
