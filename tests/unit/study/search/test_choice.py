"""A choice equals exhaustion: what is left when every point is trained, priced and held to the limits."""

from itertools import permutations
from math import inf, isfinite, nan

import pytest

import presilicon as ps
from presilicon.base import RunFailedError
from presilicon.records import POINT_METRICS, SIMULATED, Evaluation, Trace, direction_of
from presilicon.study.search.choosing import _final
from presilicon.workloads import load_workload

STUDIES = {
    "digits-mlp": {
        "designs": "edge-bf16",
        "workloads": "digits-mlp",
        "vary": {"machine": {"rows": [8, 16, 32], "sram_kib": [64, 1024]}, "numerics": ["bf16", "fp8-hybrid"]},
        "train": {"seeds": 1, "max_steps": 80, "evaluate_every": 10, "target": 0.7},
    },
    "diabetes-mlp": {  # its metric, RMSE, is to be low, and seeds of the slower rates miss the target
        "designs": "edge-bf16",
        "workloads": "diabetes-mlp",
        "vary": {"machine.rows": [8, 32], "learning_rate": [1e-4, 1e-3, 5e-3]},
        "train": {"seeds": 2, "max_steps": 60, "evaluate_every": 10, "target": 0.85},
    },
}


@pytest.fixture(scope="module", params=["digits-mlp", pytest.param("diabetes-mlp", marks=pytest.mark.slow)])
def study(request):
    return STUDIES[request.param]


@pytest.fixture(scope="module")
def exhausted(study, tmp_path_factory):
    """All points trained and priced."""
    return ps.sweep(study, out=tmp_path_factory.mktemp("runs"), jobs=1).records


def limits_of(records, workload: str) -> list[tuple[str, str, float]]:
    """A limit on each metric that some points meet and some do not."""
    found = []
    for name in POINT_METRICS:
        values = sorted({record.metric(name) for record in records if isfinite(record.metric(name))})
        if len(values) > 1:
            is_high = direction_of(name, load_workload(workload).measure.direction) == "higher"
            low, high = values[-2:] if is_high else values[:2]
            found.append((name, ">=" if is_high else "<=", (low + high) / 2))
    return found


@pytest.mark.parametrize("by", ["time", "energy"])
def test_the_recommendation_is_the_best_that_meets_the_limits(by, study, exhausted, tmp_path):
    cost = {"time": "time_s", "energy": "energy_j"}[by]
    limits = limits_of(exhausted, study["workloads"])
    assert len(limits) > len(SIMULATED) - 2
    for name, comparison, number in limits:
        limit = f"{name} {comparison} {number!r}"
        allowed = [
            record
            for record in exhausted
            if record.metric(cost) < inf
            and (record.metric(name) >= number if comparison == ">=" else record.metric(name) <= number)
        ]
        chooses = {**study, "subject_to": limit, "choose": {"by": by, "best": 99, "promising": 99}}
        try:
            choice = ps.sweep(chooses, out=tmp_path, jobs=1).recommendation
        except RunFailedError:
            assert not allowed, limit
            continue
        best = min(record.metric(cost) for record in allowed)
        assert choice.metrics[cost] == pytest.approx(best), limit


@pytest.mark.parametrize(("better", "worst"), [("higher", -inf), ("lower", inf)])
def test_a_value_that_is_no_number_is_the_worst_wherever_it_stands(better, worst):
    def final(accuracies):
        points = [Evaluation(step=1, samples=1, updates=1, value=value, loss=0.0) for value in accuracies]
        trace = Trace(seed=0, losses=(), runs=(), evaluations=tuple(points), test_value=0.0, ending="budget")
        return _final(trace, len(points), better)

    assert {final(order) for order in permutations((nan, 0.5, 0.7))} == {0.5 if better == "higher" else 0.7}
    assert {final(order) for order in permutations((nan, nan, 0.7))} == {worst}
