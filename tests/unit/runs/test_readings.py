"""What instruments have shown, gathered from events as they come."""

from pathlib import Path
from typing import Any

from presilicon.records import (
    EvaluationEvent,
    InstrumentAggregation,
    InstrumentAnswer,
    InstrumentEnded,
    InstrumentLosses,
    InstrumentReading,
    InstrumentStarted,
    ReadingFigure,
)
from presilicon.runs import EventLog, watch_run
from presilicon.runs.readings import to_plain

TAPS = [{"name": "in.a", "group": "in", "tap": 0, "layer": "a", "role": "activation"}]


def read(log: EventLog, step: int, aggregation: str = "summary", **fields: Any) -> None:
    log.append(InstrumentReading(stream="s", step=step, tap="in.a", aggregation=aggregation, **fields))


def test_curves_histograms_and_losses(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.append(InstrumentStarted(stream="s", design="d", seed=0, taps=TAPS, address="127.0.0.1:7"))
    log.append(InstrumentAggregation(stream="s", aggregation="summary", figures=[ReadingFigure("mean", "Mean")]))
    read(log, 0, values={"mean": 1.0, "elements": 5})
    read(log, 10, values={"mean": float("nan"), "elements": 5})
    watcher = watch_run(tmp_path)
    view = watcher.streams["s"]
    tap = view.taps["in.a"]
    assert view.main_figures(tap) == [ReadingFigure("mean", "Mean")]
    assert (tap.steps["mean"], tap.curves["mean"]) == ([0, 10], [1.0, None])
    log.append(EvaluationEvent(design="d", seed=0, step=10, value=0.5, loss=1.0))
    log.append(EvaluationEvent(design="other", seed=0, step=10, value=0.9, loss=1.0))
    read(log, 20, "distribution", values={}, histogram={"edges": [0, 1, 2], "counts": [3, 4]})
    log.append(InstrumentAnswer(stream="s", command="c", ok=True, step=15, message="done"))
    log.append(InstrumentLosses(stream="s", step=20, lost_packets=2,
               taps={"in.a": {"delivered": 3, "dropped": 4, "missing": 5, "torn": 1}}))  # fmt: skip
    assert watcher.update()
    tap = view.taps["in.a"]
    assert tap.histogram == {"edges": [0, 1, 2], "counts": [3, 4], "step": 20}
    assert (tap.frames, tap.dropped, tap.missing, tap.torn) == (3, 4, 5, 1)
    assert tap.seen == ["summary", "distribution"]
    assert view.evaluations == [(10, 0.5)]
    assert view.losses["lost_packets"] == 2
    assert (view.step, view.ended, len(view.answers)) == (20, False, 1)
    log.append(InstrumentEnded(stream="s"))
    watcher.update()
    assert view.ended
    assert not watcher.update()
    assert to_plain(watcher)["streams"][0]["taps"]["in.a"]["dropped"] == 4


def test_a_log_that_does_not_say_which_figures_count_shows_them_all(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.append(InstrumentStarted(stream="s", design="d", seed=0, taps=TAPS))
    read(log, 0, values={"mean": 1.0, "elements": 5})
    read(log, 10, "gradient_norm", values={"norm": 2.0})
    view = watch_run(tmp_path).streams["s"]
    tap = view.taps["in.a"]
    assert view.main_figures(tap) == [ReadingFigure("mean"), ReadingFigure("elements"), ReadingFigure("norm")]
    assert [view.is_current(tap, figure) for figure in view.main_figures(tap)] == [False, False, True]


def test_half_lines_and_strangers_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    log = EventLog(file)
    log.append(InstrumentStarted(stream="s", design="d", seed=0, taps=TAPS))
    log.append(InstrumentReading(stream="unknown", step=1, tap="in.a", aggregation="summary", values={}))
    log.append(InstrumentReading(stream="s", step=1, tap="unknown", aggregation="summary", values={}))
    with file.open("ab") as end:
        end.write(b"nonsense\n" + b'{"event":"instrument","stream":"s","step":7,"tap":"in.a",')
    watcher = watch_run(tmp_path)
    assert watcher.streams["s"].step == 0
    with file.open("ab") as end:
        end.write(b'"aggregation":"summary","values":{"mean":2}}\n')
    watcher.update()
    assert watcher.streams["s"].taps["in.a"].curves == {"mean": [2]}


def test_no_events_at_all(tmp_path: Path) -> None:
    assert watch_run(tmp_path).streams == {}
