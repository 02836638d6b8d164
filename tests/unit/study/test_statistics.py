import math
import random
from itertools import product
from statistics import median

import pytest

from presilicon.study.statistics import interval


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
