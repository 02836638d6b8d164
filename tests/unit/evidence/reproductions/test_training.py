"""The stories of the instrument: short ones that have nothing to tell, and, among the long tests, the whole ones."""

from typing import Any

import pytest

from presilicon.records import (
    Evaluation,
    EvaluationEvent,
    Event,
    InstrumentEnded,
    InstrumentReading,
    InstrumentStarted,
    Reproduction,
    Trace,
)
from presilicon.study import reproduce
from presilicon_evidence.reproductions import dead_relu, normcheck, predictiveness
from presilicon_evidence.reproductions.watched import Watched


def ours(found: Reproduction) -> dict[str, Any]:
    return {row.quantity: row.ours for row in found.rows}


@pytest.mark.parametrize(
    ("name", "module", "panels"),
    [("dead-relu", dead_relu, 4), ("normcheck", normcheck, 4), ("predictiveness", predictiveness, 2)],
)
def test_too_short_to_have_a_story(name: str, module: Any, panels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEPS", 60)
    monkeypatch.setattr(module, "SEEDS", range(1))
    events: list[Event] = []
    found = reproduce(name, events.append)
    assert found.name == name
    assert len(found.panels) == panels
    assert all(curve.y for panel in found.panels for curve in panel.curves)
    assert {InstrumentStarted, InstrumentReading, InstrumentEnded, EvaluationEvent} <= {type(event) for event in events}
    if name != "normcheck":
        assert "Reproduced: " not in found.verdict


def made(sparsity: dict[int, list[float]]) -> Watched:
    readings = {
        f"into.layer{number + 1}": [
            InstrumentReading(
                stream="s", step=10 * index, tap="into", aggregation="summary", values={"sparsity": value}
            )
            for index, value in enumerate(sparsity.get(number, [0.5] * 4))
        ]
        for number in range(1, dead_relu.DEPTH)
    }
    end = Evaluation(step=1, samples=1, updates=1, value=1, loss=0)
    trace = Trace(seed=0, losses=(), runs=(), evaluations=(end,), test_value=1.0, ending="budget")
    return Watched(trace, readings, 0, [])


def test_the_layer_that_died_first_is_named() -> None:
    assert dead_relu.died(made({})) is None
    assert dead_relu.died(made({4: [0.5, 0.9, 1.0, 1.0], 5: [0.5, 0.5, 0.5, 1.0]})) == (4, 20)
    assert dead_relu.died(made({4: [0.5, 1.0, 0.4, 0.6]})) is None, "it came back"


@pytest.mark.slow
def test_a_layer_dies() -> None:
    found = ours(reproduce("dead-relu"))
    assert found["best accuracy while it learns"] > 90
    assert found["accuracy at the end"] < 50
    assert 1 <= found["layer whose outputs are all zero"] < dead_relu.DEPTH
    assert found["layers whose weight gradient is zero at the end"] >= 1


@pytest.mark.slow
def test_normalization_keeps_a_distribution_where_it_is() -> None:
    found = ours(reproduce("normcheck"))
    wide = "without normalization: from the 15th to the 85th percentile"
    assert found[wide] > 2 * found["normalized in all layers: from the 15th to the 85th percentile"]


@pytest.mark.slow
def test_predictiveness_falls_with_accuracy_and_a_slower_pace_mends_it() -> None:
    found = ours(reproduce("predictiveness"))
    assert found["left alone: accuracy at the end"] < 60
    assert found["correlation of accuracy and predictiveness"] > 0.3
    mended = next(value for name, value in found.items() if name.startswith("learning rate"))
    assert mended > 90
