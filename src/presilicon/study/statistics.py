"""Intervals over seeds, some of which may never have reached the target.

The bootstraps are our own because a seed that misses counts as infinity, which SciPy's cannot resample.
"""

import math
import random
from collections.abc import Sequence
from statistics import fmean, median

from presilicon.records import Interval, Probability, finite

RESAMPLES = 2000
CONFIDENCE = 0.95
RESTARTS = (
    "mean of the arrivals + (1 - p) / p * mean of the misses: a seed that misses spends its budget, or what it spent "
    "before it was stopped as hopeless, then another is started"
)
REACH = f"share of seeds that arrived; low and high are Wilson's {CONFIDENCE:.0%} score interval"
EXTREMES = "median; low and high are the extremes (fewer than three seeds)"
BOOTSTRAP = f"median; low and high are a {CONFIDENCE:.0%} percentile bootstrap of the median, {RESAMPLES} resamples"


def interval(values: Sequence[float | None]) -> Interval:
    """Median and interval of a sample in which None stands for infinity, a seed that never arrived.

    With fewer than three values low and high are the extremes; otherwise they are a percentile bootstrap of the median,
    drawn from a fixed generator so that the same sample gives the same interval.

    >>> interval([3.0, 1.0])
    Interval(median=2.0, low=1.0, high=3.0)
    >>> interval([3.0, None])
    Interval(median=None, low=3.0, high=None)
    """
    if not values:
        raise ValueError("an interval needs at least one value")
    sample = sorted(map(number, values))
    if len(sample) < 3:
        low, high = sample[0], sample[-1]
    else:
        draw = random.Random(0)
        medians = sorted(median(draw.choices(sample, k=len(sample))) for _ in range(RESAMPLES))
        tail = round((1 - CONFIDENCE) / 2 * RESAMPLES)
        low, high = medians[tail], medians[RESAMPLES - 1 - tail]
    return Interval(finite(median(sample)), finite(low), finite(high))


def interval_method(seeds: int) -> str:
    """The method by which `interval` treats that many seeds, in words."""
    return EXTREMES if seeds < 3 else BOOTSTRAP


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
