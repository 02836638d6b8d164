import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presilicon.records import Crossing, Evaluation, FactsRun, LayerFact, StepFacts, Trace


def trace_of(accuracies: list[float]) -> Trace:
    points = tuple(
        Evaluation(step=step, samples=32 * step, updates=step, accuracy=accuracy, loss=0.0)
        for step, accuracy in zip(range(10, 1000, 10), accuracies, strict=False)
    )
    runs = (FactsRun(StepFacts(), 2), FactsRun(StepFacts(update_skipped=True), 1))
    return Trace(seed=0, losses=(1.0,) * 3, runs=runs, evaluations=points, test_accuracy=0.9, ending="budget")


@pytest.mark.parametrize(
    ("accuracies", "sustain", "step"),
    [
        ([0.5, 0.97, 0.5, 0.97, 0.98], 1, 20),
        ([0.5, 0.97, 0.5, 0.97, 0.98], 2, 40),
        ([0.5, 0.97, 0.5, 0.97, 0.98], 3, None),
        ([0.97], 1, 10),
        ([1.0], 1, 10),
        ([0.94, 1.0], 1, 15),
        ([math.nan, 1.0], 1, 20),
        ([0.97, math.nan], 2, None),
        ([], 1, None),
        ([0.9, 0.9, 0.9], 1, None),
    ],
)
def test_a_crossing_must_be_sustained(accuracies: list[float], sustain: int, step: float | None) -> None:
    crossing = trace_of(accuracies).crossing(0.97, sustain)
    assert crossing == (
        step and Crossing(step=pytest.approx(step), samples=pytest.approx(32 * step), updates=pytest.approx(step))
    )


def slow_crossing(values: list[float], target: float, sustain: int, better: str) -> float | None:
    """The first of a million points on the line between evaluations from which on the target is held long enough."""
    held = [value >= target if better == "higher" else value <= target for value in values]
    for index in range(len(values) - sustain + 1):
        if all(held[index : index + sustain]) and (index == 0 or not held[index - 1]):
            if index == 0:
                return 10.0
            low, high = 0.0, 1.0
            for _ in range(60):  # bisection, in place of a formula
                middle = (low + high) / 2
                value = values[index - 1] + middle * (values[index] - values[index - 1])
                reached = value >= target if better == "higher" else value <= target
                low, high = (low, middle) if reached else (middle, high)
            return 10 * (index + high)
    return None


VALUES = st.lists(st.integers(0, 40).map(lambda number: number / 40), max_size=12)


@given(VALUES, st.integers(1, 40), st.integers(1, 3), st.sampled_from(["higher", "lower"]))
def test_a_crossing_is_where_the_line_first_has_the_target(values, target, sustain, better) -> None:
    crossing = trace_of(values).crossing(target / 40, sustain, better)
    slow = slow_crossing(values, target / 40, sustain, better)
    assert (None if crossing is None else crossing.step) == (slow if slow is None else pytest.approx(slow))


@given(VALUES, st.integers(0, 40), st.integers(0, 40), st.integers(1, 3))
def test_a_harder_target_is_never_reached_sooner(values, one, other, sustain) -> None:
    easy, hard = sorted((one / 40, other / 40))
    trace = trace_of(values)
    first, second = trace.crossing(easy, sustain), trace.crossing(hard, sustain)
    if second is not None:
        assert first is not None
        assert first.step <= second.step
        assert first.samples <= second.samples
    flipped = trace_of([1 - value for value in values])
    mirror = flipped.crossing(1 - hard, sustain, "lower")
    assert (mirror is None) == (second is None)


@given(VALUES, st.integers(1, 40), st.integers(1, 3))
def test_a_crossing_is_between_the_evaluations_around_it(values, target, sustain) -> None:
    trace = trace_of(values)
    crossing = trace.crossing(target / 40, sustain)
    if crossing is not None:
        first = next(p for p in trace.evaluations if p.step >= crossing.step)
        assert first.accuracy >= target / 40
        assert first.step - 10 < crossing.step <= first.step
        if first.accuracy == target / 40:
            assert crossing == Crossing(step=first.step, samples=first.samples, updates=first.updates)


def test_runs_that_train_alike_have_one_fingerprint() -> None:
    assert trace_of([0.5, 0.9]).fingerprint == trace_of([0.5, 0.9]).fingerprint != trace_of([0.5, 0.91]).fingerprint


def test_facts_are_run_length_encoded() -> None:
    facts = list(trace_of([]).facts())
    assert [fact.update_skipped for fact in facts] == [False, False, True]


def test_bucketing_never_lowers_a_density_and_keeps_the_rest() -> None:
    fact = LayerFact(layer="fc", role="activation", format="e5m2", density=0.401)
    facts = StepFacts(layers=(fact, LayerFact(layer="fc", role="weight")), backward_skipped=True)
    bucketed = facts.bucketed(10)
    assert bucketed.layers[0].density == 0.5
    assert bucketed.layers[0].format == "e5m2"
    assert bucketed.layers[1] == facts.layers[1]
    assert bucketed.backward_skipped
    for level in range(21):
        fact = LayerFact(layer="fc", role="activation", density=level / 20)
        assert StepFacts(layers=(fact,)).bucketed(20).layers[0].density == level / 20
    assert StepFacts(layers=(LayerFact(layer="a", role="error", density=1.0),)).bucketed().layers[0].density == 1.0
