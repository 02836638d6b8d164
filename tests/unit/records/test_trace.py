import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presilicon.records import EXACT_KINDS, Crossing, Evaluation, FactsRun, LayerFact, StepFacts, Trace


def trace_of(accuracies: list[float]) -> Trace:
    points = tuple(
        Evaluation(step=step, samples=32 * step, updates=step, value=accuracy, loss=0.0)
        for step, accuracy in zip(range(10, 1000, 10), accuracies, strict=False)
    )
    runs = (FactsRun(StepFacts(), 2), FactsRun(StepFacts(update_skipped=True), 1))
    return Trace(seed=0, losses=(1.0,) * 3, runs=runs, evaluations=points, test_value=0.9, ending="budget")


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
        assert first.value >= target / 40
        assert first.step - 10 < crossing.step <= first.step
        if first.value == target / 40:
            assert crossing == Crossing(step=first.step, samples=first.samples, updates=first.updates)


def test_fingerprints_of_older_runs_still_compare() -> None:
    """As a version computed it whose values were called `accuracy`."""
    assert trace_of([0.5, 0.9]).fingerprint == "e286509b7fd52c8c"


def test_runs_that_train_alike_have_one_fingerprint() -> None:
    assert trace_of([0.5, 0.9]).fingerprint == trace_of([0.5, 0.9]).fingerprint != trace_of([0.5, 0.91]).fingerprint


def test_facts_are_run_length_encoded() -> None:
    facts = list(trace_of([]).facts())
    assert [fact.update_skipped for fact in facts] == [False, False, True]


def trace_of_densities(densities: list[float]) -> Trace:
    """A trace of one step for each density of a layer."""
    facts = [
        StepFacts(layers=(LayerFact(layer="fc", role="weight", format="e5m2", density=density),), backward_skipped=True)
        for density in densities
    ]
    runs = tuple(FactsRun(step, 1) for step in facts)
    return Trace(seed=0, losses=(1.0,) * len(runs), runs=runs, evaluations=(), test_value=0.9, ending="budget")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=EXACT_KINDS))
def test_steps_of_few_kinds_are_priced_as_they_were(densities: list[float]) -> None:
    trace = trace_of_densities(densities)
    assert trace.priced_runs() == trace.runs
    assert not trace.is_rounded


@pytest.mark.parametrize("decade", [-4, -1, 0])
def test_steps_of_many_kinds_have_densities_near_their_own_and_no_bias(decade: int) -> None:
    random = Random(decade)
    own = [10.0**decade * random.random() for _ in range(4000)]
    trace = trace_of_densities([*own, 0.0, 1.0, 0.05])
    assert trace.is_rounded
    *priced, none, all_of_them, level = (run.facts.layers[0].density for run in trace.priced_runs())
    assert (none, all_of_them, level) == (0.0, 1.0, 0.05)
    assert max(abs(ours / exact - 1) for ours, exact in zip(priced, own, strict=True)) <= 0.005001
    assert sum(priced) == pytest.approx(sum(own), rel=2e-4)
    assert len({run.facts for run in trace.priced_runs()}) < 2000
    [first, *_] = trace.priced_runs()
    assert first.facts.layers[0].format == "e5m2"
    assert first.facts.backward_skipped
