"""The co-design reproduction, on a small network."""

import pytest

from presilicon.designs import load_design
from presilicon.simulation import area
from presilicon_evidence.reproductions import co_design


def test_the_recommended_design_is_within_the_area_and_power_of_the_preset(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.setattr(co_design, "cache_directory", lambda name: tmp_path)
    monkeypatch.setattr(co_design, "VARY", {"machine": {"rows": [16, 32, 64], "cols": [64, 128]}, "numerics": ["bf16"]})
    events = []
    found = co_design.reproduce(
        events.append,
        jobs=1,
        workload="digits-mlp",
        points=5,
        best=1,
        train={"seeds": 1, "max_steps": 60, "target": 0.7},
    )
    assert [event.seed for event in events] == [0, 0]
    choice = found.study.recommendation
    own = load_design(co_design.DESIGN)
    assert choice.metrics["area_mm2"] <= area(own).mm2
    limits = dict(limit.split(" <= ") for limit in choice.limits)
    assert float(limits["area_mm2"]) == pytest.approx(area(own).mm2, rel=1e-5)
    reference, recommended = (
        next(result for result in choice.comparison.designs if result.name == name)
        for name in (choice.reference, choice.design)
    )
    ratio = reference.time_to_accuracy_s.median / recommended.time_to_accuracy_s.median
    assert found.rows[0].ours == pytest.approx(ratio)
    assert f"{ratio:.2f} times sooner" in found.verdict or choice.design == choice.reference
