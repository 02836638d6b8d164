"""Intervals over seeds, some of which may never have reached the target."""

import math
from collections.abc import Sequence
from statistics import fmean, median

from presilicon.records import Interval, Probability, finite

RESAMPLES = 2000
"""Resamples of the paired seeds for the probability that one median is lower."""
CONFIDENCE = 0.95
RESTARTS = (
    "mean of the arrivals + (1 - p) / p * mean of the misses: a seed that misses spends its budget, or what it spent "
    "before it was stopped as hopeless, then another is started"
)
REACH = f"share of seeds that arrived; low and high are Wilson's {CONFIDENCE:.0%} score interval"


def interval(values: Sequence[float | None]) -> Interval:
    """Median and interval of a sample in which None stands for infinity, a seed that never arrived.

    Low and high are the innermost values that hold the true median with 95%, whatever the distribution (the sign test
    inverted). With fewer than six values even the extremes hold it less often: see `interval_method`.

    >>> interval([3.0, 1.0])
    Interval(median=2.0, low=1.0, high=3.0)
    >>> interval([3.0, None])
    Interval(median=None, low=3.0, high=None)
    >>> interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    Interval(median=5.0, low=2.0, high=8.0)
    """
    if not values:
        raise ValueError("an interval needs at least one value")
    sample, outside = sorted(map(number, values)), _outside(len(values))
    return Interval(finite(median(sample)), finite(sample[outside]), finite(sample[-1 - outside]))


def interval_method(seeds: int) -> str:
    """The method by which `interval` treats that many seeds, in words.

    >>> interval_method(5)
    'median; low and high are the values of rank 1 and 5 of 5, which hold the true median with 93.75%'
    """
    outside = _outside(seeds)
    level = 1 - 2 * _tail(seeds, outside)
    ranks = f"rank {outside + 1} and {seeds - outside} of {seeds}"
    return f"median; low and high are the values of {ranks}, which hold the true median with {100 * level:.4g}%"


def _outside(seeds: int) -> int:
    """How many values of a sample lie outside its interval at each end."""
    outside = 0
    while _tail(seeds, outside + 1) <= (1 - CONFIDENCE) / 2:
        outside += 1
    return outside


def _tail(seeds: int, outside: int) -> float:
    """The probability that at most that many of the seeds lie below the true median, each with 1/2."""
    return math.ldexp(sum(math.comb(seeds, below) for below in range(outside + 1)), -seeds)


def reach_probability(arrived: int, seeds: int) -> Probability:
    """The share of seeds that arrived, with Wilson's score interval, which holds for few seeds and at 0 and 1 too.

    >>> reach_probability(5, 5)
    Probability(value=1.0, low=0.5655, high=1.0)
    """
    from scipy.stats import binomtest

    if not 0 <= arrived <= seeds or seeds == 0:
        raise ValueError(f"{arrived} of {seeds} seeds cannot have arrived")
    ends = binomtest(arrived, seeds).proportion_ci(CONFIDENCE, method="wilson")
    return Probability(arrived / seeds, round(float(ends.low), 4), round(float(ends.high), 4))


def expected_with_restarts(arrivals: Sequence[float], misses: Sequence[float]) -> float | None:
    """Mean cost of an arrival when a run that misses has cost something too, and another is started.

    With p the share of runs that arrive, (1 - p) / p misses are expected before an arrival, so the cost is
    (1 - p) / p * mean(misses) + mean(arrivals). None if nothing arrived.

    >>> expected_with_restarts([2.0, 4.0], misses=[10.0, 10.0])
    13.0
    """
    if not arrivals:
        return None
    return sum(misses) / len(arrivals) + fmean(arrivals)


def number(value: float | None) -> float:
    """A value, or infinity for None."""
    return math.inf if value is None else value
