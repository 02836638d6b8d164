"""A choice equals exhaustion: what is left when every point is trained, priced and held to the limits."""

from math import inf

import pytest

import presilicon as ps
from presilicon.base import RunFailedError

STUDY = {
    "designs": "edge-bf16",
    "workloads": "digits-mlp",
    "vary": {"machine": {"rows": [8, 16, 32], "sram_kib": [64, 1024]}, "numerics": ["bf16", "fp8-hybrid"]},
    "train": {"seeds": 1, "max_steps": 80, "evaluate_every": 10, "target": 0.7},
}


@pytest.fixture(scope="module")
def exhausted(tmp_path_factory):
    """All points trained and priced."""
    return ps.sweep(STUDY, out=tmp_path_factory.mktemp("runs"), jobs=1).records


def limits_of(records) -> list[str]:
    """A limit on each metric that some points meet and some do not."""
    found = []
    for name in ("energy_j", "time_s", "accuracy", "area_mm2", "power_w", "memory_bytes", "steps"):
        values = sorted({record.metric(name) for record in records if record.metric(name) < inf})
        if len(values) > 1:
            middle = (values[0] + values[1]) / 2
            found.append(f"{name} >= {middle}" if name == "accuracy" else f"{name} <= {middle}")
    return found


@pytest.mark.parametrize("by", ["time", "energy"])
def test_the_recommendation_is_the_best_that_meets_the_limits(by, exhausted, tmp_path):
    cost = {"time": "time_s", "energy": "energy_j"}[by]
    for limit in limits_of(exhausted):
        name, comparison, number = limit.split()
        allowed = [
            record
            for record in exhausted
            if record.metric(cost) < inf
            and (record.metric(name) >= float(number) if comparison == ">=" else record.metric(name) <= float(number))
        ]
        study = {**STUDY, "subject_to": limit, "choose": {"by": by, "best": 99, "promising": 99}}
        try:
            choice = ps.sweep(study, out=tmp_path, jobs=1).recommendation
        except RunFailedError:
            assert not allowed, limit
            continue
        best = min(record.metric(cost) for record in allowed)
        assert choice.metrics[cost] == pytest.approx(best), limit
