"""Reproductions of training methods: what they compare, and the gains over paired seeds."""

from dataclasses import replace
from importlib import import_module
from itertools import product
from math import inf

import pytest

from presilicon.designs import load_design
from presilicon.records import Comparison, EvaluationEvent, Event, Interval, Result, SeedResult
from presilicon.simulation import area
from presilicon.study import compare_all
from presilicon.workloads import load_workload
from presilicon_evidence.reproductions import methods
from presilicon_evidence.reproductions.fast import designs
from presilicon_evidence.reproductions.methods import Trial, named
from presilicon_evidence.reproductions.tensordash import random_speedup


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


def arrivals(name: str, times_s: list[float | None]) -> Result:
    """A result whose seeds reach the target at these times."""
    seeds = tuple(
        SeedResult(
            seed=number, steps_to_accuracy=time_s, samples_to_accuracy=time_s, updates_to_accuracy=time_s,
            time_to_accuracy_s=time_s, energy_to_accuracy_j=time_s, value=0.9, steps=100, ending="budget", curve=(),
        )
        for number, time_s in enumerate(times_s)
    )  # fmt: skip
    ends = Interval(None, None, None)
    return Result(
        name=name, workload="digits-mlp", target=0.9, steps_to_accuracy=ends, time_to_accuracy_s=ends,
        energy_to_accuracy_j=ends, reached=f"{len(times_s) - times_s.count(None)}/{len(times_s)}", value=0.9,
        time_per_step_s=1.0, energy_per_step_j=1.0, memory_bytes=0, area_mm2=None, seeds=seeds, provenance={},
    )  # fmt: skip


def trial_of(own: list[float | None], other: list[float | None]) -> Trial:
    """A trial of two designs with these times-to-accuracy."""
    trial = Trial.__new__(Trial)
    results = arrivals("own", own), arrivals("other", other)
    trial.comparison = Comparison(designs=results, pairs=compare_all(results))
    trial._results = {result.name: result for result in results}
    return trial


def test_a_gain_is_the_median_over_all_seeds_with_misses_as_infinite_times():
    """Every pattern of arrivals of two designs over three seeds, with `own` twice as fast where it arrives."""
    for hits in product([True, False], repeat=3):
        for others in product([True, False], repeat=3):
            own, other = ([cost if hit else None for hit in found] for cost, found in ((1.0, hits), (2.0, others)))
            trial = trial_of(own, other)
            costs = {(True, True): 2.0, (True, False): inf, (False, True): 0.0, (False, False): 1.0}
            expected = sorted(costs[pair] for pair in zip(hits, others, strict=True))[1]
            arrives = any(hits) or any(others)
            assert trial.gain("own", "other") == (expected if arrives else None)
            assert trial.gain("other", "own") == ((1 / expected if expected else inf) if arrives else None)


def test_a_row_of_a_gain_names_the_seeds_that_arrived():
    never, some = [None, None, None], [1.0, None, 1.0]
    for own, other, ours in ((some, [2.0] * 3, 2.0), (some, never, None), (never, never, None), (never, some, 0.0)):
        row = trial_of(own, other).row("time", "own", "other", energy=True)
        assert row.ours == ours
        assert f"own {3 - own.count(None)}/3, other {3 - other.count(None)}/3" in row.note


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
    module = import_module(f"presilicon_evidence.reproductions.{name.replace('-', '_')}")
    monkeypatch.setattr(module, "Trial", lambda *arguments: methods.Trial(*arguments, seeds=1))
    result = module.reproduce()
    assert result.name == name
    assert any(row.ours is not None for row in result.rows)
    assert len(result.panels) == 2
    assert "eproduced: " in result.verdict
