import math
import random
from itertools import product
from statistics import median

import pytest

from presilicon.study.statistics import compare_seeds, expected_with_restarts, interval, reach_probability


def test_extremes_below_three_values() -> None:
    assert interval([5.0]).low == interval([5.0]).high == interval([5.0]).median == 5.0
    assert (interval([5.0, 9.0]).low, interval([5.0, 9.0]).high) == (5.0, 9.0)


def test_infinite_ends_are_none() -> None:
    found = interval([1.0, 2.0, 3.0, None, None])
    assert found.median == 3.0
    assert found.high is None
    assert interval([None, None, 1.0]).median is None
    assert interval([None]).low is None


def test_the_bootstrap_covers_the_exact_distribution_of_resampled_medians() -> None:
    values = [3.0, 1.0, 4.0, 1.5, 9.0]
    exact = sorted(median(sample) for sample in product(values, repeat=5))
    found = interval(values)
    assert found.median == 3.0
    # The exact 2.5% and 97.5% points of all 5^5 resamples.
    assert found.low == exact[round(0.025 * len(exact))]
    assert found.high == exact[round(0.975 * len(exact)) - 1]


def test_the_interval_does_not_depend_on_order_and_holds_the_median() -> None:
    draw = random.Random(1)
    for _ in range(20):
        values = [draw.random() for _ in range(draw.randint(3, 9))]
        found = interval(values)
        assert found == interval(sorted(values))
        assert found.low <= found.median <= found.high
        assert math.isclose(found.median, median(values))


def test_nothing_has_no_interval() -> None:
    with pytest.raises(ValueError, match="at least one"):
        interval([])


@pytest.mark.parametrize(
    ("arrived", "seeds", "low", "high"), [(0, 5, 0.0, 0.4345), (5, 5, 0.5655, 1.0), (4, 5, 0.3755, 0.9638)]
)
def test_the_interval_of_a_probability_is_wilsons(arrived: int, seeds: int, low: float, high: float) -> None:
    # Its ends are the probabilities from which the share seen is 1.96 standard deviations away.
    found = reach_probability(arrived, seeds)
    assert (found.value, found.low, found.high) == (arrived / seeds, low, high)
    for end in (low, high):
        if 0 < end < 1:
            deviations = abs(arrived / seeds - end) / math.sqrt(end * (1 - end) / seeds)
            assert deviations == pytest.approx(1.96, abs=0.01)


def test_a_probability_needs_seeds() -> None:
    with pytest.raises(ValueError, match="3 of 2 seeds"):
        reach_probability(3, 2)


def test_restarts_cost_what_a_simulation_of_them_costs() -> None:
    draw, arrivals, misses, budget = random.Random(1), [3.0, 5.0, 4.0], 2, 20.0

    def until_arrival() -> float:
        spent = 0.0
        while draw.random() >= len(arrivals) / (len(arrivals) + misses):
            spent += budget
        return spent + draw.choice(arrivals)

    simulated = sum(until_arrival() for _ in range(100_000)) / 100_000
    assert expected_with_restarts(arrivals, misses, budget) == pytest.approx(simulated, rel=0.02)
    assert expected_with_restarts(arrivals, 0, budget) == 4.0
    assert expected_with_restarts([], 5, budget) is None


def test_seeds_are_compared_in_pairs_with_misses_and_ties() -> None:
    one: dict[int, float | None] = {0: 1.0, 1: 2.0, 2: None, 3: None, 4: 3.0, 9: 0.1}
    other: dict[int, float | None] = {0: 2.0, 1: None, 2: 5.0, 3: None, 4: 3.0}
    pair = compare_seeds("a", one, "b", other)
    assert (pair.seeds, pair.wins, pair.losses, pair.ties) == (5, 2, 1, 2)
    back = compare_seeds("b", other, "a", one)
    assert (back.wins, back.losses) == (pair.losses, pair.wins)
    assert back.probability_faster == pytest.approx(1 - pair.probability_faster)
    assert compare_seeds("a", {0: 1.0}, "b", {1: 1.0}).probability_faster == 0.5


@pytest.mark.parametrize(("wins", "losses", "p"), [(5, 0, 0.0625), (10, 0, 2 / 1024), (3, 2, 1.0), (0, 0, 1.0)])
def test_the_sign_test_is_exact(wins: int, losses: int, p: float) -> None:
    times = {seed: (1.0, 2.0) if seed < wins else (2.0, 1.0) for seed in range(wins + losses)}
    pair = compare_seeds("a", {s: t[0] for s, t in times.items()}, "b", {s: t[1] for s, t in times.items()})
    # Judged by every way in which that many coins can fall.
    falls = [sum(fall) for fall in product([0, 1], repeat=wins + losses)]
    as_uneven = sum(abs(heads - (wins + losses) / 2) >= abs(wins - losses) / 2 for heads in falls) / len(falls)
    assert pair.sign_test_p == pytest.approx(p) == pytest.approx(as_uneven)


def test_the_probability_is_that_of_all_resamples() -> None:
    one: list[float | None] = [1.0, 4.0, None]
    other = [2.0, 3.0, 5.0]
    pair = compare_seeds("a", dict(enumerate(one)), "b", dict(enumerate(other)))
    whole = 0.0
    for chosen in product(range(3), repeat=3):
        a = median(math.inf if one[place] is None else one[place] for place in chosen)
        b = median(other[place] for place in chosen)
        whole += 1.0 if a < b else 0.5 if a == b else 0.0
    assert pair.probability_faster == pytest.approx(whole / 27, abs=0.03)
