"""The terminal's view: every tap with its curves, whatever is missing."""

from io import StringIO
from pathlib import Path

from rich.console import Console

from presilicon.instrument import AGGREGATIONS
from presilicon.instrument.host.watch_view import bars, render_watch, sparkline
from presilicon.records import (
    EvaluationEvent,
    InstrumentAggregation,
    InstrumentAnswer,
    InstrumentEnded,
    InstrumentLosses,
    InstrumentReading,
    InstrumentStarted,
    InstrumentWarning,
    PointMeasure,
)
from presilicon.runs import EventLog, watch_run


def shown(path: Path, width: int = 100, status: str = "running") -> str:
    file = StringIO()
    Console(file=file, width=width).print(render_watch(watch_run(path), name="run", status=status, width=width))
    return file.getvalue()


def test_a_tap_with_curves_a_histogram_and_losses(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    taps = [
        {"name": "in.a", "group": "in", "tap": 0, "layer": "a", "role": "activation"},
        {"name": "silent", "group": "silent", "tap": 1, "layer": "b", "role": "error"},
    ]
    log.append(InstrumentStarted(stream="s", design="d", seed=3, taps=taps, address="127.0.0.1:7"))
    for step in range(0, 80, 10):
        values = {"p15": -1.0, "p50": step / 10, "p85": None}
        edges, counts = [float("-inf"), 0.5, 2.0, float("inf")], [1, 5, 2]
        log.append(InstrumentReading(stream="s", step=step, tap="in.a", aggregation="norm_check", values=values,
                   histogram={"edges": edges, "counts": counts}))  # fmt: skip
    log.append(EvaluationEvent(design="d", seed=3, step=70, value=0.25, loss=1.0))
    account = {"delivered": 8, "dropped": 7, "missing": 63, "torn": 1}
    log.append(InstrumentLosses(stream="s", step=70, lost_packets=2, bad_packets=3, skipped_bytes=40,
               taps={"in.a": account}))  # fmt: skip
    why = {"busy": 2, "size": 5}
    log.append(InstrumentAnswer(stream="s", command="c", ok=False, step=42, message="no such thing"))
    log.append(InstrumentLosses(stream="s", step=70, lost_packets=2, bad_packets=3, skipped_bytes=40,
               taps={"in.a": account, "silent": account | {"delivered": 0, "torn": 0, "reasons": why}}))  # fmt: skip
    text = shown(tmp_path)
    assert "silent: dropped whenever it was their turn, for a frame's results are larger than the output" in text
    assert "d, seed 3 (live), step 70, stream at 127.0.0.1:7" in text
    assert "25.0%" in text
    assert "▁▂▃▄▅▆▇█" in text
    assert "0.5..2" in text, "the outermost edges that are numbers"
    assert "nothing yet" in text
    assert "8 frames; dropped on the chip: 14 (in.a 7, silent 7); on the link: 2 packets lost, 3 bad" in text
    assert "step 42: refused: no such thing" in text
    assert max(map(len, text.splitlines())) <= 100
    assert shown(tmp_path, 60)


def test_the_metric_is_shown_by_its_name(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.append(InstrumentStarted(stream="s", design="d", seed=3, taps=[]))
    log.append(EvaluationEvent(design="d", seed=3, step=70, value=12.345))
    file = StringIO()
    measure = PointMeasure("perplexity", "lower", False)
    Console(file=file).print(render_watch(watch_run(tmp_path), name="run", status="running", measure=measure))
    assert "perplexity  " in file.getvalue()
    assert "12.35\n" in file.getvalue()
    assert "%" not in file.getvalue()


def test_a_stream_that_was_broken_off_is_not_live(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    for stream in ("s", "t"):
        log.append(InstrumentStarted(stream=stream, design="d", seed=3, taps=[], address="127.0.0.1:7"))
    text = shown(tmp_path)
    assert text.count("d, seed 3 (broken off), step 0") == 1
    assert text.count("d, seed 3 (live), step 0, stream at") == 1
    assert shown(tmp_path, status="interrupted").count("(broken off)") == 2
    log.append(InstrumentEnded(stream="t"))
    assert "d, seed 3 (ended)" in shown(tmp_path)


def test_figures_of_an_aggregation_that_is_over_are_not_shown_as_now(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    taps = [{"name": "in", "group": "in", "tap": 0, "layer": "a", "role": "activation"}]
    log.append(InstrumentStarted(stream="s", design="d", seed=0, taps=taps))
    for name in ("sparsity", "gradient_norm"):
        log.append(InstrumentAggregation(stream="s", aggregation=name, figures=AGGREGATIONS.load(name).figures))
    for step, aggregation, values in ((10, "sparsity", {"sparsity": 0.125}), (20, "gradient_norm", {"norm": 7.5})):
        log.append(InstrumentReading(stream="s", step=step, tap="in", aggregation=aggregation, values=values,
                   notes=["zeros: too large"] if step == 20 else ["of before"]))  # fmt: skip
    text = shown(tmp_path)
    assert "till 10" in text
    assert "7.5" in text
    assert "0.125" not in text
    assert "in: zeros: too large" in text
    assert "of before" not in text


def test_what_was_warned_of_is_shown(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    taps = [{"name": "in", "group": "in", "tap": 0, "layer": "a", "role": "activation"}]
    log.append(InstrumentStarted(stream="s", design="d", seed=0, taps=taps))
    log.append(InstrumentWarning(stream="s", tap="in", aggregation="summary", message="counts may reach 9"))
    log.append(InstrumentReading(stream="s", step=0, tap="in", aggregation="summary", values={"zeros": None}))
    assert 'tap "in", summary: counts may reach 9' in shown(tmp_path)


def test_nothing_yet(tmp_path: Path) -> None:
    assert "no instrument has shown anything yet" in shown(tmp_path)


def test_lines_of_any_length() -> None:
    assert sparkline([], 5) == ""
    assert sparkline([None, None], 5) == ""
    assert len(sparkline(list(range(1000)), 40)) == 40
    assert sparkline([5.0], 3) == "▄"
    assert bars([], 4) == ""
    assert bars([0, 0], 4) == "  "
    assert len(bars(range(100), 10)) == 10
