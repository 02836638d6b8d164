"""Reproductions of training methods: what they compare, and the gains over paired seeds."""

from dataclasses import replace
from importlib import import_module

import pytest

from presilicon.designs import load_design
from presilicon.records import EvaluationEvent, Event
from presilicon.reproductions import methods
from presilicon.reproductions.fast import designs
from presilicon.reproductions.methods import Trial, named
from presilicon.reproductions.tensordash import random_speedup
from presilicon.simulation import area
from presilicon.workloads import load_workload


def test_gains_are_medians_over_paired_seeds():
    events: list[Event] = []
    fast, slow = named("fast", "bf16-systolic", ["machine.clock_ghz=1.0"]), named("slow", "bf16-systolic")
    trial = Trial([fast, slow], "digits-mlp", events.append, seeds=2)
    ratios = sorted(
        slow.time_to_accuracy_s / fast.time_to_accuracy_s
        for fast, slow in zip(trial["fast"].seeds, trial["slow"].seeds, strict=True)
    )
    assert trial.gain("fast", "slow") == pytest.approx(sum(ratios) / 2)
    assert trial.gain("fast", "slow") > 1 > trial.gain("slow", "fast")
    assert trial.gain("fast", "slow", energy=True) == pytest.approx(1, abs=0.2)
    assert trial.reached("fast", "slow") == "fast 2/2, slow 2/2"
    assert trial.curve("fast").x[-1] < trial.curve("slow").x[-1]
    assert any(isinstance(event, EvaluationEvent) for event in events)


def test_a_design_that_never_arrives_has_no_gain():
    hopeless = replace(load_workload("digits-mlp"), max_steps=30, evaluate_every=10, target=0.999)
    trial = Trial([named("a", "bf16-systolic"), named("b", "fp32-systolic")], hopeless, None, seeds=1)
    assert trial.gain("a", "b") is None


def test_the_machines_of_fast_have_equal_areas():
    sizes = {design.name: area(design).mm2 for design in designs()}
    goal = area(load_design("edge-bf16", ["machine.technology=horowitz-45nm-synthesized"])).mm2
    assert len(sizes) == 10
    for name, size in sizes.items():
        assert size == pytest.approx(goal, rel=0.02), name


def test_random_zeros_follow_the_curve():
    assert [random_speedup(share) for share in (0.0, 0.5, 0.9)] == pytest.approx([1.0, 1.77, 2.98], abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ada-gp", "camel", "fast", "procrustes", "tensordash"])
def test_a_reproduction_states_its_figures(name: str, monkeypatch: pytest.MonkeyPatch):
    module = import_module(f"presilicon.reproductions.{name.replace('-', '_')}")
    monkeypatch.setattr(module, "Trial", lambda *arguments: methods.Trial(*arguments, seeds=1))
    result = module.reproduce()
    assert result.name == name
    assert any(row.ours is not None for row in result.rows)
    assert len(result.panels) == 2
    assert result.verdict.endswith(".")
