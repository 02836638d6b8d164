import math
import random
from statistics import median

import pytest

from presilicon.study.join.statistics import expected_with_restarts, interval, reach_probability


def test_extremes_below_three_values() -> None:
    assert interval([5.0]).low == interval([5.0]).high == interval([5.0]).median == 5.0
    assert (interval([5.0, 9.0]).low, interval([5.0, 9.0]).high) == (5.0, 9.0)


def test_infinite_ends_are_none() -> None:
    found = interval([1.0, 2.0, 3.0, None, None])
    assert found.median == 3.0
    assert found.high is None
    assert interval([None, None, 1.0]).median is None
    assert interval([None]).low is None


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
    draw, arrivals, misses = random.Random(1), [3.0, 5.0, 4.0], [20.0, 12.0]

    def until_arrival() -> float:
        spent = 0.0
        while draw.random() >= len(arrivals) / (len(arrivals) + len(misses)):
            spent += draw.choice(misses)
        return spent + draw.choice(arrivals)

    simulated = sum(until_arrival() for _ in range(100_000)) / 100_000
    assert expected_with_restarts(arrivals, misses) == pytest.approx(simulated, rel=0.02)
    assert expected_with_restarts(arrivals, []) == 4.0
    assert expected_with_restarts([], [20.0]) is None
