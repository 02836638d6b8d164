import math
import random
from itertools import product
from statistics import median

import pytest
from scipy.stats import wilcoxon

from presilicon.records import Interval, SeedResult, excludes_one
from presilicon.study.join.pairs import compare_seeds, ratio_interval, seeds_needed, signed_rank_tail, undecided


def seeds_of(times: dict[int, float | None] | list[float | None], prints: str = "") -> list[SeedResult]:
    """Results with these times; energy is ten times the time."""
    items = times.items() if isinstance(times, dict) else enumerate(times)
    return [
        SeedResult(
            seed=seed, steps_to_accuracy=time, time_to_accuracy_s=time,
            energy_to_accuracy_j=None if time is None else 10 * time, value=1.0, steps=1, ending="target", curve=(),
            fingerprint=prints,
        )
        for seed, time in items
    ]  # fmt: skip


def test_seeds_are_compared_in_pairs_with_misses_and_ties() -> None:
    one = seeds_of({0: 1.0, 1: 2.0, 2: None, 3: None, 4: 3.0, 9: 0.1})
    other = seeds_of({0: 2.0, 1: None, 2: 5.0, 3: None, 4: 3.0})
    pair = compare_seeds("a", one, "b", other)
    assert (pair.seeds, pair.wins, pair.losses, pair.ties) == (5, 2, 1, 2)
    back = compare_seeds("b", other, "a", one)
    assert (back.wins, back.losses) == (pair.losses, pair.wins)
    assert back.probability_faster == pytest.approx(1 - pair.probability_faster)
    alone = compare_seeds("a", seeds_of({0: 1.0}), "b", seeds_of({1: 1.0}))
    assert (alone.probability_faster, alone.time_ratio, alone.seeds_needed) == (0.5, None, None)


@pytest.mark.parametrize(("wins", "losses", "p"), [(5, 0, 0.0625), (10, 0, 2 / 1024), (3, 2, 1.0), (0, 0, 1.0)])
def test_the_sign_test_is_exact(wins: int, losses: int, p: float) -> None:
    times = [(1.0, 2.0) if seed < wins else (2.0, 1.0) for seed in range(wins + losses)]
    pair = compare_seeds("a", seeds_of([one for one, _ in times]), "b", seeds_of([other for _, other in times]))
    # Judged by every way in which that many coins can fall.
    falls = [sum(fall) for fall in product([0, 1], repeat=wins + losses)]
    as_uneven = sum(abs(heads - (wins + losses) / 2) >= abs(wins - losses) / 2 for heads in falls) / len(falls)
    assert pair.sign_test_p == pytest.approx(p) == pytest.approx(as_uneven)


def test_the_probability_is_that_of_all_resamples() -> None:
    one: list[float | None] = [1.0, 4.0, None]
    other: list[float | None] = [2.0, 3.0, 5.0]
    pair = compare_seeds("a", seeds_of(one), "b", seeds_of(other))
    whole = 0.0
    for chosen in product(range(3), repeat=3):
        a, b = (median(math.inf if times[i] is None else times[i] for i in chosen) for times in (one, other))
        whole += 1.0 if a < b else 0.5 if a == b else 0.0
    assert pair.probability_faster == pytest.approx(whole / 27, abs=0.03)


@pytest.mark.parametrize("seeds", [6, 9, 14, 25])
@pytest.mark.parametrize("confidence", [0.95, 0.99375])
def test_the_interval_is_what_scipys_exact_test_does_not_reject(seeds: int, confidence: float) -> None:
    draw = random.Random(seeds)
    logs = [draw.gauss(0.1, 0.3) for _ in range(seeds)]
    ratio = ratio_interval(logs, confidence)
    assert ratio is not None
    assert ratio.median == pytest.approx(math.exp(median(logs)))
    if signed_rank_tail(seeds, (1 - confidence) / 2) is None:
        assert (ratio.low, ratio.high) == (0.0, None)
        return
    for end, outward in ((math.log(ratio.low), -1), (math.log(ratio.high), 1)):
        for shift, is_inside in ((1e-6, False), (-1e-6, True)):
            centre = end + outward * shift
            p = wilcoxon([log - centre for log in logs], method="exact").pvalue
            assert bool(p > 1 - confidence) is is_inside


@pytest.mark.parametrize("seeds", [1, 2, 5, 8, 11])
def test_the_tail_of_the_signed_rank_statistic_is_that_of_all_signs(seeds: int) -> None:
    totals = sorted(sum(rank for rank, sign in enumerate(signs, 1) if sign) for signs in product([0, 1], repeat=seeds))
    for tail in (0.025, 0.003125, 0.2):
        largest = signed_rank_tail(seeds, tail)
        below = [total for total in range(totals[-1] + 1) if sum(t <= total for t in totals) <= tail * len(totals)]
        assert largest == (below[-1] if below else None)


def test_the_interval_covers_the_true_ratio_as_often_as_it_says() -> None:
    draw, covered, rounds = random.Random(3), 0, 400
    for _ in range(rounds):
        logs = [draw.gauss(0.2, 0.4) for _ in range(10)]
        ratio = ratio_interval(logs, 0.95)
        covered += ratio.low <= math.exp(0.2) <= ratio.high
    # The exact level at ten seeds is 0.951; three standard errors of 400 rounds are 0.033.
    assert covered / rounds == pytest.approx(0.951, abs=0.033)


def test_misses_are_infinite_ratios_and_double_misses_ties() -> None:
    one = seeds_of([1.0] * 8)
    other = seeds_of([2.0] * 7 + [None])
    ratio = compare_seeds("a", one, "b", other).time_ratio
    assert ratio == Interval(pytest.approx(2.0), pytest.approx(2.0), None)
    back = compare_seeds("b", other, "a", one).time_ratio
    assert back == Interval(pytest.approx(0.5), 0.0, pytest.approx(0.5))
    lost = seeds_of([None] * 8)
    assert compare_seeds("a", lost, "b", lost).time_ratio == Interval(1.0, 1.0, 1.0)
    assert not compare_seeds("a", lost, "b", lost).is_decided
    sure = compare_seeds("a", one, "b", lost)
    assert sure.time_ratio == Interval(None, None, None)
    assert sure.is_decided
    mixed = compare_seeds("a", seeds_of([1.0, None] * 4), "b", seeds_of([None, 1.0] * 4))
    assert mixed.time_ratio == Interval(1.0, 0.0, None)
    assert mixed.seeds_needed is None


def test_energy_has_a_ratio_of_its_own() -> None:
    pair = compare_seeds("a", seeds_of([1.0, 1.0]), "b", seeds_of([3.0, 3.0]))
    assert pair.energy_ratio.median == pytest.approx(3.0)


def test_five_seeds_decide_nothing_unless_designs_train_alike() -> None:
    one, other = [1.0] * 5, [2.0, 2.1, 2.2, 2.3, 2.4]
    assert not compare_seeds("a", seeds_of(one), "b", seeds_of(other)).is_decided
    pair = compare_seeds("a", seeds_of(one[:1], "same"), "b", seeds_of(other[:1], "same"))
    assert pair.is_decided
    assert pair.same_training
    assert pair.seeds_needed == 1
    twins = compare_seeds("a", seeds_of(one, "same"), "b", seeds_of(one, "same"))
    assert not twins.is_decided
    assert twins.seeds_needed is None
    missed = compare_seeds("a", seeds_of([1.0, None], "same"), "b", seeds_of([2.0, None], "same"))
    assert missed.is_decided  # the seed that both miss says nothing about their prices
    designs = {"a": seeds_of(one, "same"), "b": seeds_of(other, "same"), "c": seeds_of(other, "other")}
    assert undecided(designs) == (("a", "c"), ("b", "c"))


@pytest.mark.parametrize("effect", [0.5, 0.8, 1.1])
def test_that_many_seeds_decide_in_about_four_of_five_studies(effect: float) -> None:
    draw = random.Random(1)
    sample = [draw.gauss(0, 1) for _ in range(4000)]
    mean, spread = sum(sample) / 4000, (sum(x * x for x in sample) / 4000) ** 0.5
    needed = seeds_needed([effect + (x - mean) / spread for x in sample])
    assert needed is not None
    rounds = 300
    decided = sum(
        bool(wilcoxon([draw.gauss(effect, 1) for _ in range(needed)], method="exact").pvalue <= 0.05)
        for _ in range(rounds)
    )
    # Three standard errors of 300 rounds are 0.07.
    assert decided / rounds == pytest.approx(0.8, abs=0.07)


def test_no_number_of_seeds_separates_equal_medians() -> None:
    assert seeds_needed([0.1, -0.1, 0.2, -0.2]) is None
    assert seeds_needed([0.0, 0.0]) is None
    assert seeds_needed([0.3]) is None
    assert seeds_needed([0.3, 0.3]) == 6


def test_missed_seeds_need_noethers_number() -> None:
    # All sums positive, though one seed is lost: (1.96 + 0.84)^2 / (3 / 4) = 10.5.
    assert seeds_needed([-0.1, 0.2, math.inf, math.inf]) == 11
    # Two of six sums negative, one opposite pair of infinities: p = (3 + 0.5) / 6.
    logs = [math.inf, -math.inf, 0.2, 0.1]
    assert seeds_needed(logs) == math.ceil(7.849 / (3 * (3.5 / 6 - 0.5) ** 2))


def test_as_many_seeds_as_are_said_to_separate_designs_of_which_one_wins_every_seed_do() -> None:
    for logs in ([math.inf] * 3, [0.1, 0.2, math.inf], [-math.inf, -0.5], [math.inf, math.inf, 0.01, 0.02]):
        needed = seeds_needed(logs)
        assert needed is not None
        decided = [
            excludes_one(ratio)
            for count in (needed - 1, needed)
            if (ratio := ratio_interval((logs * needed)[:count], 0.95)) is not None
        ]
        assert decided == [False, True]
