"""A result is what its traces and the prices of their steps say, computed again step by step."""

import math
import random
from dataclasses import replace
from statistics import mean, median

import pytest
from msgspec import structs

import presilicon as ps
from presilicon.records import Evaluation, FactsRun, StepFacts, Trace
from presilicon.simulation import simulate
from presilicon.study import EvaluationPlan, StepGraphs, StepPrices, interval
from presilicon.study.join.evaluation import Study

DESIGN = ps.load_design("bf16-systolic")
KINDS = (StepFacts(), StepFacts(update_skipped=True), StepFacts(samples=32), StepFacts(samples=128, numerics_step=3))
STEPS = 24


def random_trace(draw: random.Random, seed: int, every: int) -> Trace:
    """A training of many kinds of steps whose accuracy wanders upwards, with values that are no numbers."""
    count = draw.randint(2, STEPS // every) * every
    kinds = [draw.choice(KINDS) for _ in range(count)]
    runs = [FactsRun(kind, 1) for kind in kinds]
    while draw.random() < 0.8 and len(runs) > 1:  # some of them run-length encoded
        place = draw.randrange(len(runs) - 1)
        if runs[place].facts == runs[place + 1].facts:
            runs[place : place + 2] = [FactsRun(runs[place].facts, runs[place].count + runs[place + 1].count)]
    samples = 0
    evaluations = []
    for step in range(1, count + 1):
        samples += kinds[step - 1].samples or 64
        if step % every == 0:
            accuracy = min(1.0, step / STEPS + draw.uniform(-0.3, 0.3)) if draw.random() < 0.95 else math.nan
            evaluations.append(Evaluation(step=step, samples=samples, updates=step, value=accuracy, loss=1.0))
    return Trace(
        seed=seed, losses=tuple(draw.random() for _ in range(count)), runs=tuple(runs), evaluations=tuple(evaluations),
        test_value=draw.random(), ending=draw.choice(("target", "budget", "hopeless", "diverged")),
    )  # fmt: skip


def arrival(trace: Trace, target: float, sustain: int, higher: bool) -> tuple[float, float] | None:
    """Step and samples at which the target was reached and then held, on the line from the evaluation before."""
    points = trace.evaluations
    good = [p.value >= target if higher else p.value <= target for p in points]
    for first in range(len(points) - sustain + 1):
        if all(good[first : first + sustain]):
            now = points[first]
            if first == 0 or math.isnan(points[first - 1].value):
                return float(now.step), float(now.samples)
            before = points[first - 1]
            share = (target - before.value) / (now.value - before.value)
            return (
                before.step + share * (now.step - before.step),
                before.samples + share * (now.samples - before.samples),
            )
    return None


@pytest.fixture(scope="module")
def costs() -> dict[StepFacts, tuple[float, float, int]]:
    prices = StepPrices(StepGraphs(ps.load_workload("digits-mlp")), DESIGN)
    found = {facts: simulate(prices.graph(facts), DESIGN, facts) for facts in KINDS}
    return {facts: (cost.time_s, cost.energy_j, cost.memory_bytes) for facts, cost in found.items()}


def spent(trace: Trace, costs: dict, which: int, until: float = math.inf) -> float:
    """Time or energy of a trace's steps up to one that may end early."""
    total, left = 0.0, until
    for facts in trace.facts():
        total += costs[facts][which] * min(max(left, 0.0), 1.0)
        left -= 1
    return total


@pytest.mark.parametrize("seed", range(30))
def test_a_result_is_the_sum_of_its_steps(seed: int, costs) -> None:
    draw = random.Random(seed)
    higher, sustain, every = draw.random() < 0.7, draw.randint(1, 3), draw.choice((1, 2, 4))
    target = draw.uniform(0.3, 0.9)
    milestones = (target - 0.1,) if higher else (min(target + 0.1, 0.95),)
    metric = replace(ps.load_workload("digits-mlp").measure, better="higher" if higher else "lower")
    workload = replace(
        ps.load_workload("digits-mlp"), metric=metric, target=target, sustain=sustain, evaluate_every=every,
        max_steps=3 * STEPS, milestones=milestones,
    )  # fmt: skip
    traces = tuple(random_trace(draw, number, every) for number in range(draw.randint(1, 8)))
    study = Study(EvaluationPlan(designs=(DESIGN,), workload=workload, seeds=len(traces)))
    study.traces = (traces,)
    result = study.comparison().designs[0]

    arrivals = [arrival(trace, target, sustain, higher) for trace in traces]
    times = [None if at is None else spent(t, costs, 0, at[0]) for t, at in zip(traces, arrivals, strict=True)]
    joules = [None if at is None else spent(t, costs, 1, at[0]) for t, at in zip(traces, arrivals, strict=True)]
    for found, trace, at, time_s, energy_j in zip(result.seeds, traces, arrivals, times, joules, strict=True):
        assert found.steps_to_accuracy == (None if at is None else pytest.approx(at[0]))
        assert found.samples_to_accuracy == (None if at is None else pytest.approx(at[1]))
        assert found.time_to_accuracy_s == (None if time_s is None else pytest.approx(time_s))
        assert found.energy_to_accuracy_j == (None if energy_j is None else pytest.approx(energy_j))
        assert (found.time_s, found.energy_j) == (
            pytest.approx(spent(trace, costs, 0)), pytest.approx(spent(trace, costs, 1)),
        )  # fmt: skip
        assert (found.steps, found.value, found.ending) == (trace.steps, trace.test_value, trace.ending)
        [milestone] = found.milestones
        passed = arrival(trace, milestones[0], sustain, higher)
        assert milestone.steps == (None if passed is None else pytest.approx(passed[0]))
        for point, evaluation in zip(found.curve, trace.evaluations, strict=True):
            assert point.time_s == pytest.approx(spent(trace, costs, 0, evaluation.step))
            assert point.energy_j == pytest.approx(spent(trace, costs, 1, evaluation.step))

    for stated, values in ((result.time_to_accuracy_s, times), (result.energy_to_accuracy_j, joules)):
        expected = interval(values)
        for name in ("median", "low", "high"):
            end = getattr(expected, name)
            assert getattr(stated, name) == (None if end is None else pytest.approx(end))
    reached = [at is not None for at in arrivals]
    assert result.reached == f"{sum(reached)}/{len(traces)}"
    assert result.reach_probability.value == mean(reached)
    assert result.value == median(trace.test_value for trace in traces)
    assert result.memory_bytes == max(costs[facts][2] for trace in traces for facts in {*trace.facts(), StepFacts()})
    steps = sum(trace.steps for trace in traces)
    varies = any(kind.samples or kind.numerics_step for trace in traces for kind in trace.facts())
    for stated, which in ((result.time_per_step_s, 0), (result.energy_per_step_j, 1)):
        average = sum(spent(trace, costs, which) for trace in traces) / steps
        assert stated == pytest.approx(average if varies else costs[StepFacts()][which])

    for stated, which, to_target in (
        (result.expected_time_to_accuracy_s, 0, times), (result.expected_energy_to_accuracy_j, 1, joules),
    ):  # fmt: skip
        hits = [value for value in to_target if value is not None]
        budgets = [spent(trace, costs, which) for trace in traces if trace.ending == "budget"]
        budget = mean(budgets) if budgets else 3 * STEPS * costs[StepFacts()][which]
        lost = sum(
            spent(trace, costs, which) if trace.ending in ("budget", "hopeless") else budget
            for trace, value in zip(traces, to_target, strict=True) if value is None
        )  # fmt: skip
        assert stated == (None if not hits else pytest.approx(lost / len(hits) + mean(hits)))


def test_seeds_and_steps_that_differ_in_nothing_but_their_order_give_one_result(costs) -> None:
    draw = random.Random(3)
    workload = replace(ps.load_workload("digits-mlp"), target=0.5, sustain=1, evaluate_every=2, max_steps=STEPS)
    traces = tuple(random_trace(draw, number, 2) for number in range(7))
    results = []
    for order in (range(7), [6, 2, 4, 0, 1, 5, 3]):
        study = Study(EvaluationPlan(designs=(DESIGN,), workload=workload, seeds=7))
        study.traces = (tuple(structs.replace(traces[old], seed=new) for new, old in enumerate(order)),)
        results.append(study.comparison().designs[0])
    for name in ("time_to_accuracy_s", "energy_to_accuracy_j", "steps_to_accuracy", "reached", "value"):
        assert getattr(results[0], name) == getattr(results[1], name)
