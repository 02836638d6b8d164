"""Curves and histograms of instruments, and stories, as parts of pages."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from presilicon.instrument import AGGREGATIONS
from presilicon.records import (
    Curve,
    InstrumentAggregation,
    InstrumentAnswer,
    InstrumentReading,
    InstrumentStarted,
    Panel,
    Reproduced,
    Reproduction,
)
from presilicon.report import render_page, render_panels, render_story
from presilicon.report.charts.lines import render_bars, render_panel
from presilicon.report.page.instrument import panels_of, render_instrument
from presilicon.runs import EventLog, watch_run


def drawings(html: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", html, re.S)]


def panel(**options: object) -> Panel:
    curves = (
        Curve(name="a <b>", x=(0.0, 10.0, 20.0, 30.0), y=(1.0, None, 3.0, 4.0)),
        Curve(name="c", x=(0.0, 30.0), y=(0.0, 100.0)),
    )
    return Panel(title="Norm & more", curves=curves, marks=((10.0, "asked"),), **options)


def test_a_panel_has_a_line_for_each_curve_and_a_gap_where_a_value_is_missing() -> None:
    html = render_panel(panel())
    (svg, *keys) = drawings(html)
    paths = [path.get("d") for path in svg.iter("path")]
    assert [path.count("M") for path in paths] == [2, 1]
    assert len(keys) == 2
    assert "a &lt;b&gt;" in html
    assert "Norm &amp; more" in html
    assert "asked" in html


def test_logarithms_percentages_and_limits() -> None:
    (svg, *_) = drawings(render_panel(panel(log=True)))
    assert [path.get("d").count("L") for path in svg.iter("path")] == [1, 0], "a zero has no logarithm"
    texts = [text.text for text in drawings(render_panel(panel(percent=True)))[0].iter("text")]
    assert "100%" in texts
    wide = [text.text for text in drawings(render_panel(panel(limits=(0.0, 1000.0))))[0].iter("text")]
    assert "1000" in wide


def test_nothing_to_draw() -> None:
    empty = Panel(title="t", curves=(Curve(name="a", x=(1.0,), y=(None,)),))
    assert "Nothing to draw" in render_panel(empty)
    flat = Panel(title="t", curves=(Curve(name="a", x=(1.0,), y=(2.0,)),))
    assert drawings(render_panel(flat))


def test_long_curves_are_thinned() -> None:
    long = Curve(name="a", x=tuple(map(float, range(10_000))), y=tuple(map(float, range(10_000))))
    (svg, *_) = drawings(render_panel(Panel(title="t", curves=(long,))))
    assert next(svg.iter("path")).get("d").count("L") <= 400


def test_histograms() -> None:
    (svg,) = drawings(render_bars([None, 0.0, 1.0, None], [1, 4, 2], "h"))
    heights = [float(bar.get("height")) for bar in svg.iter("rect")]
    assert heights == [22.5, 90.0, 45.0]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    log = EventLog(tmp_path / "events.jsonl")
    taps = [{"name": f"in.{layer}", "group": "in", "tap": 0, "layer": layer, "role": "activation"} for layer in "ab"]
    log.append(InstrumentStarted(stream="s", design="d <1>", seed=0, taps=taps))
    for name in ("summary", "norm_check"):
        log.append(InstrumentAggregation(stream="s", aggregation=name, figures=AGGREGATIONS.load(name).figures))
    for step in (0, 10):
        for layer in "ab":
            values = {"mean": 1.0, "sparsity": 0.5} if layer == "a" else {"p15": -1.0, "p50": 0.0, "p85": 1.0}
            name = "summary" if layer == "a" else "norm_check"
            more = {} if layer == "a" else {"histogram": {"edges": [0, 1, 2], "counts": [1, 2]}}
            log.append(
                InstrumentReading(stream="s", step=step, tap=f"in.{layer}", aggregation=name, values=values, **more)
            )
    log.append(InstrumentAnswer(stream="s", command="c", ok=False, step=3, message="no <way>"))
    return tmp_path


def test_a_section_of_the_page(run: Path, comparison) -> None:
    watcher = watch_run(run)
    titles = [each.title for each in panels_of(watcher.streams["s"])]
    assert titles == [
        "in.b: percentiles of the activation",
        "Mean of the activation",
        "Share of zeros of the activation",
    ]
    html = render_page(comparison, watcher)
    assert "Instrument readings" in html
    assert "d &lt;1&gt;, seed 0: 4 frames of 2 taps" in html
    assert "no &lt;way&gt; (refused)" in html
    assert "in.b: distribution at step 10" in html
    assert "Instrument readings" not in render_page(comparison)
    assert render_instrument(watch_run(run / "none")) == ""


def test_a_story_as_a_page_and_as_a_picture() -> None:
    story = Reproduction(
        name="s",
        title="A < B",
        source="Somebody (2020)",
        rows=(Reproduced(quantity="q", unit="%", published=None, ours=12.5, note="n"),),
        assumptions=("One thing.",),
        verdict="It does.",
        panels=(panel(), panel(log=True), panel(percent=True, note="look")),
    )
    html = render_story(story)
    for text in ("A &lt; B", "After Somebody (2020)", "It does.", "12.5 %", "One thing.", "look"):
        assert text in html
    assert "http" not in re.sub(r"http-equiv", "", html), "it needs no network"
    assert render_panels(story.panels, "png").startswith(b"\x89PNG")
