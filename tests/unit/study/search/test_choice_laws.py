"""Laws of a choice: what is tried, and every figure of the technology table that breaks a limit, by exhaustion."""

from math import inf

import pytest

import presilicon as ps
from presilicon.designs import figure_name
from presilicon.records import DecisionEvent
from presilicon.runs import list_runs
from presilicon.simulation import area, simulate
from presilicon.workloads import capture_workload, load_workload

STUDY = {
    "designs": "edge-bf16",
    "workloads": "digits-mlp",
    "vary": {"machine.rows": [8, 32], "numerics": ["bf16", "fp8-hybrid"]},
    "train": {"seeds": 1, "max_steps": 40, "target": 0.3},
}


def metrics_of(design, technology=None) -> dict[str, float]:
    cost = simulate(capture_workload(load_workload("digits-mlp")), design, technology=technology)
    mm2 = area(design, technology).mm2
    return {
        "area_mm2": inf if mm2 is None else mm2,
        "power_w": cost.energy_j / cost.time_s,
        "energy_per_step_j": cost.energy_j,
    }


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    """A choice without limits, and its folder, in which others find the trainings."""
    folder = tmp_path_factory.mktemp("runs")
    return ps.sweep({**STUDY, "choose": {"best": 2}}, out=folder, jobs=1), folder


def decisions(result, folder) -> list[tuple[str, int]]:
    [run] = [run for run in list_runs(folder) if run.path == result.path]
    return [(event.decision, event.number) for event in run.events(DecisionEvent)]


def test_designs_are_tried_where_there_are_more_than_are_trained(chosen, tmp_path) -> None:
    """Two formats train apart, so two designs are left of the four points: both are trained without a try."""
    result, folder = chosen
    made = decisions(result, folder)
    assert sorted(kind for kind, _ in made) == ["outdone", "outdone", "recommended", "trained", "trained"]
    one = ps.sweep({**STUDY, "choose": {"best": 1, "few_steps": 30}}, out=tmp_path, jobs=1)
    made = decisions(one, tmp_path)
    assert sorted(kind for kind, _ in made) == ["left out", "outdone", "outdone", "recommended", "trained", "tried"]
    by_kind = {kind: {number for other, number in made if other == kind} for kind, _ in made}
    assert by_kind["tried"] <= by_kind["trained"] | by_kind["recommended"]
    assert not by_kind["left out"] & (by_kind["trained"] | by_kind["recommended"])


def test_breaches_are_all_figures_that_break_a_limit(chosen, tmp_path) -> None:
    result, _ = chosen
    design = ps.load_design(str(result.path / "recommended.toml"))
    base, table = metrics_of(design), design.technology
    limits = [
        *((name, "<=", share * base[name]) for name, share in (("area_mm2", 1.2), ("power_w", 1.3))),
        *(("energy_per_step_j", "<=", 1.1 * base["energy_per_step_j"]), ("power_w", ">=", 0.9 * base["power_w"])),
        ("time_per_step_s", "<=", 1.0),  # no figure of the table decides it
    ]
    expected = []
    for path in table.entries():
        for factor in (2.0, 0.5):
            metrics = metrics_of(design, table.scaled(path, factor))
            for name, comparison, number in limits[:-1]:
                value = metrics[name]
                if value > number if comparison == "<=" else value < number:
                    expected.append((table.name, figure_name(table, path), factor, f"{name} {comparison}", value))
    assert {(factor, broken) for _, _, factor, broken, _ in expected} >= {
        *((2.0, f"{name} <=") for name in base),
        (0.5, "power_w >="),
    }
    conditions = [f"{name} {comparison} {number!r}" for name, comparison, number in limits]
    study = {**STUDY, "subject_to": conditions, "choose": {"best": 2, "sensitivity": True}}
    recommendation = ps.sweep(study, out=tmp_path, jobs=1).recommendation
    assert recommendation.number == result.recommendation.number
    found = [
        (breach.technology, breach.entry, breach.factor, breach.condition.rpartition(" ")[0], breach.value)
        for breach in recommendation.breaches
    ]
    assert found == [(*rest, pytest.approx(value)) for *rest, value in expected]
