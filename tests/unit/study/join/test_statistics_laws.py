"""Laws of intervals and of decisions, through the calls that studies make."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from msgspec import structs

import presilicon as ps
from presilicon.records import Evaluation, FactsRun, SeedResult, StepFacts, Trace
from presilicon.study import EvaluationPlan, interval
from presilicon.study.join.evaluation import Study
from presilicon.study.join.pairs import compare_seeds, ratio_interval
from presilicon.study.join.statistics import interval_method
from presilicon.study.pool import LocalPool
from presilicon.study.runner import Runner

WORKLOAD = replace(ps.load_workload("digits-mlp"), target=0.5, sustain=1, max_steps=400)


def seed_results(
    times: Sequence[float | None], prints: Sequence[str] | str = "", joules: float = 10
) -> list[SeedResult]:
    return [
        SeedResult(
            seed=seed, steps_to_accuracy=time, time_to_accuracy_s=time,
            energy_to_accuracy_j=None if time is None else 10 * time, value=1.0, steps=1, ending="target",
            curve=(), fingerprint=prints if isinstance(prints, str) else prints[seed],
        )
        for seed, time in enumerate(times)
    ]  # fmt: skip


def arriving(seed: int, step: float, *, mark: float = 0.0, until: int = 400) -> Trace:
    """A training whose accuracy crosses the target at a step; `mark` tells two trainings of one step apart."""
    before, after = math.floor(step), math.floor(step) + 1
    share = step - before
    # The line from (before, low) to (after, high) is at 0.5 at `step`.
    low, high = 0.5 - 0.4 * share, 0.5 + 0.4 * (1 - share)
    points = [(before, low), (after, high)] if share else [(before, 0.5)]
    return Trace(
        seed=seed, losses=(mark,) * until, runs=(FactsRun(StepFacts(), until),), test_value=0.9, ending="target",
        evaluations=tuple(
            Evaluation(step=at, samples=32 * at, updates=at, value=accuracy, loss=mark) for at, accuracy in points
        ),
    )  # fmt: skip


def seed_of(task) -> int:
    """The seed of a task that is handed to the trainer."""
    return getattr(task, "record", task).seed


@pytest.mark.parametrize("seeds", range(3, 41))
def test_an_interval_holds_the_true_median_as_often_as_it_says(seeds: int) -> None:
    """By all ways in which the seeds can fall on both sides of the true median, each value alike."""
    found = interval([float(rank) for rank in range(1, seeds + 1)])
    low, high = int(found.low), int(found.high)
    covered = sum(math.comb(seeds, below) for below in range(low, high)) / 2**seeds
    inner = sum(math.comb(seeds, below) for below in range(low + 1, high - 1)) / 2**seeds
    assert low + high == seeds + 1
    assert found.low <= found.median <= found.high
    if seeds >= 6:
        assert inner < 0.95 <= covered  # no narrower one would
    else:
        assert (low, high, covered) == (1, seeds, 1 - 2.0 ** (1 - seeds))
    assert f"rank {low} and {high} of {seeds}, which hold the true median with {100 * covered:.4g}%" in (
        interval_method(seeds)
    )


def test_the_level_of_few_seeds_is_that_of_every_way_they_can_fall() -> None:
    for seeds in (3, 5, 8):
        found = interval(list(map(float, range(seeds))))
        held = 0
        for sides in product([False, True], repeat=seeds):  # the seeds that lie below the true median
            below = sum(sides)
            held += found.low <= below - 0.5 <= found.high
        assert f"{100 * held / 2**seeds:.4g}%" in interval_method(seeds)


@pytest.mark.parametrize(("confidence", "least", "most"), [(0.95, 0.935, 0.985), (0.99375, 0.985, 1.0)])
def test_the_interval_of_a_ratio_covers_at_its_level_for_every_number_of_seeds(
    confidence: float, least: float, most: float
) -> None:
    draw, covered, rounds = random.Random(7), 0, 0
    for seeds in range(6, 41):
        for _ in range(40):
            logs = [draw.gauss(0.3, 0.5) for _ in range(seeds)]
            ratio = ratio_interval(logs, confidence)
            rounds += 1
            covered += ratio.low <= math.exp(0.3) <= (math.inf if ratio.high is None else ratio.high)
            assert ratio.low <= ratio.median
            assert ratio.high is None or ratio.median <= ratio.high
    # Three standard errors of 1400 rounds are 0.017 and 0.006; few seeds have few levels, all on the safe side.
    assert least <= covered / rounds <= most


@pytest.fixture(scope="module")
def twins() -> Study:
    """Two designs that differ in their names only, so that their steps cost the same."""
    design = ps.load_design("bf16-systolic")
    designs = (design, structs.replace(design, name="twin"))
    return Study(EvaluationPlan(designs=designs, workload=WORKLOAD, seeds="auto"))


def test_equal_designs_are_told_apart_in_at_most_one_study_of_twenty(twins, monkeypatch) -> None:
    draw, rounds, wrong = random.Random(11), 180, 0

    def simulated(runner, tasks, **_):
        return [arriving(seed_of(task), 40 * math.exp(draw.gauss(0.0, 0.5)), mark=draw.random()) for task in tasks]

    monkeypatch.setattr(Runner, "train", simulated)
    for _ in range(rounds):
        twins.traces = ()
        twins.train(Runner(LocalPool(1)))
        wrong += not twins.undecided()
        assert len(twins.traces[0]) in twins.plan.looks
    # With 95% at each of the eight looks it is about 12%; 5% and two standard errors of 180 rounds are 8.3%.
    assert wrong / rounds <= 0.083


def test_a_true_difference_is_found_and_ends_the_study(twins, monkeypatch) -> None:
    draw = random.Random(3)

    def simulated(runner, tasks, **_):
        slower = {"bf16-systolic": 1.0, "twin": 1.6}
        return [
            arriving(seed_of(task), slower[task.design] * 40 * math.exp(draw.gauss(0, 0.1)), mark=draw.random())
            for task in tasks
        ]

    monkeypatch.setattr(Runner, "train", simulated)
    twins.traces = ()
    twins.train(Runner(LocalPool(1)))
    assert twins.undecided() == ()
    assert len(twins.traces[0]) == 10  # five seeds decide nothing at the confidence of eight looks, ten do
    [pair] = twins.comparison().pairs
    assert pair.confidence == 1 - 0.05 / 8
    assert pair.time_ratio.low <= 1.6 <= pair.time_ratio.high


def test_one_seed_that_trained_alike_does_not_make_designs_alike() -> None:
    one, other = [1.0] * 5, [1.1, 1.2, 1.3, 1.4, 1.5]
    for alike in range(6):
        prints = ["same"] * alike + ["own"] * (5 - alike)
        theirs = ["same"] * alike + ["other"] * (5 - alike)
        pair = compare_seeds("a", seed_results(one, prints), "b", seed_results(other, theirs))
        assert pair.same_training is (alike == 5)
        assert pair.is_decided is (alike == 5)
    nameless = compare_seeds("a", seed_results(one, ""), "b", seed_results(other, ""))
    assert not nameless.same_training


@pytest.mark.parametrize("prints", ["", "same"])
def test_a_seed_that_both_miss_counts_alike_in_time_and_in_energy(prints: str) -> None:
    """Energies are ten times the times, so that both ratios tell one story."""
    one, other = [1.0, 1.0, 2.0, None, None, 3.0, 1.0], [2.0, 1.5, 3.0, None, None, 5.0, 1.8]
    for misses in range(4):
        first, second = (seed_results([*times, *[None] * misses], prints) for times in (one, other))
        for pair in (compare_seeds("a", first, "b", second), compare_seeds("b", second, "a", first)):
            assert structs.astuple(pair.energy_ratio) == pytest.approx(structs.astuple(pair.time_ratio))
            assert pair.ties == 2 + misses
        pair = compare_seeds("a", first, "b", second)
        if prints:  # of designs that train alike, a seed that both miss says nothing about prices
            assert (pair.time_ratio.low, pair.time_ratio.high) == (pytest.approx(1.5), pytest.approx(2.0))
        else:
            assert pair.time_ratio.low == pytest.approx(1.0)


def test_a_budget_is_that_of_all_chips() -> None:
    """Twice the chips on twice the batch: a step, and a budget of steps, cost twice the energy in the same time."""
    study_of = {}
    for chips in (1, 2):
        design = ps.load_design("dgx-1")
        machine = structs.replace(design.machine, chips=chips)
        design = structs.replace(design, machine=machine)
        workload = replace(WORKLOAD, batch_size=64 * chips)
        study = Study(EvaluationPlan(designs=(design,), workload=workload, seeds=2))
        missed = structs.replace(arriving(0, 10, until=50), evaluations=(), ending="diverged")
        study.traces = ((missed, arriving(1, 20, until=50)),)
        study_of[chips] = study
    one, two = (study_of[chips].comparison().designs[0] for chips in (1, 2))
    for result in (one, two):
        [miss, hit] = result.seeds
        # A run that diverged is charged the whole budget.
        assert result.expected_energy_to_accuracy_j == pytest.approx(
            400 * result.energy_per_step_j + hit.energy_to_accuracy_j
        )
        assert result.expected_time_to_accuracy_s == pytest.approx(
            400 * result.time_per_step_s + hit.time_to_accuracy_s
        )
        assert miss.time_to_accuracy_s is None
    assert two.energy_per_step_j > 1.9 * one.energy_per_step_j
