import math
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

import presilicon as ps
from presilicon.emulation import Checkpoint, train
from presilicon.emulation.training.hopeless import hopeless_reason
from presilicon.records import Evaluation
from presilicon.workloads.workload import sgd

FLAT = [0.1, 0.3, 0.5, 0.58, 0.6, 0.61, 0.6, 0.61, 0.605]


def test_a_flat_curve_far_below_the_target_is_hopeless() -> None:
    reason = hopeless_reason(FLAT, 0.97, in_budget=18)
    # Nine evaluations are left: three spans of three, each of which may gain 0.01 at most.
    assert (
        reason
        == "after 9 of 18 evaluations the best value is 0.61; at the pace of the last 3 it can reach 0.64 at most"
    )
    assert hopeless_reason(FLAT, 0.64, in_budget=18) is None


@pytest.mark.parametrize(
    ("values", "in_budget"),
    [
        (FLAT[:-1], 16),  # too few evaluations
        (FLAT, 19),  # less than half of the budget
        (FLAT, 9),  # the budget is spent anyway
        ([*FLAT[:-1], math.nan], 18),
        ([*FLAT[:-1], 0.9], 18),  # it jumped
    ],
)
def test_a_run_that_may_still_arrive_is_left_alone(values: list[float], in_budget: int) -> None:
    assert hopeless_reason(values, 0.97, in_budget) is None


@given(st.lists(st.integers(0, 100), min_size=9, max_size=40), st.integers(0, 100), st.integers(10, 80))
def test_the_direction_only_mirrors_the_rule(values: list[int], target: int, in_budget: int) -> None:
    rising = hopeless_reason(values, target, in_budget)
    falling = hopeless_reason([-value for value in values], -target, in_budget, "lower")
    assert (rising is None) == (falling is None)


@given(st.floats(0.05, 2.0), st.floats(0.3, 1.0), st.integers(18, 60))
def test_a_curve_that_flattens_and_arrives_is_never_given_up(pace: float, top: float, in_budget: int) -> None:
    # Exponential approach: the target is what it has at the end of the budget.
    values = [top * (1 - math.exp(-pace * step / 10)) for step in range(1, in_budget + 1)]
    for seen in range(1, in_budget):
        assert hopeless_reason(values[:seen], values[-1], in_budget) is None


def test_a_hopeless_run_ends_early_with_its_reason_and_the_same_bits_when_resumed(tmp_path) -> None:
    workload = replace(
        ps.load_workload("digits-mlp"), optimizer=partial(sgd, learning_rate=1e-9), max_steps=60, evaluate_every=2,
        stop_hopeless=True,
    )  # fmt: skip
    numerics = ps.load_design("fp32-systolic").numerics
    trace = train(workload, numerics)
    assert (trace.ending, trace.steps) == ("hopeless", 30)
    assert trace.reason.startswith("after 15 of 30 evaluations the best value is 0.")
    assert train(replace(workload, stop_hopeless=False), numerics).ending == "budget"

    class StopError(Exception):
        pass

    def stop(point: Evaluation) -> None:
        if point.step == 20:
            raise StopError

    checkpoint = Checkpoint(tmp_path / "run.safetensors", 3)
    with pytest.raises(StopError):
        train(workload, numerics, checkpoint=checkpoint, on_evaluation=stop)
    assert train(workload, numerics, checkpoint=checkpoint) == trace


def test_a_hopeless_seed_is_a_miss_that_costs_what_it_spent() -> None:
    workload = replace(
        ps.load_workload("digits-mlp"), optimizer=partial(sgd, learning_rate=1e-9), max_steps=60, evaluate_every=2,
        stop_hopeless=True,
    )  # fmt: skip
    result = ps.evaluate("fp32-systolic", workload, seeds=1)
    assert result.reached == "0/1"
    assert result.seeds[0].ending == "hopeless"
    assert result.seeds[0].time_s == pytest.approx(30 * result.time_per_step_s)
    assert "after half of the budget" in result.provenance["hopeless"]
    assert result.provenance["workload"]["stop_hopeless"] is True
