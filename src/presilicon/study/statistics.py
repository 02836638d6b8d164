"""Intervals over seeds, some of which may never have arrived."""

import math
import random
from collections.abc import Sequence

from presilicon.records import Interval

RESAMPLES = 2000
CONFIDENCE = 0.95
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
    sample = sorted(math.inf if value is None else value for value in values)
    if len(sample) < 3:
        low, high = sample[0], sample[-1]
    else:
        draw = random.Random(0)
        medians = sorted(_median(sorted(draw.choices(sample, k=len(sample)))) for _ in range(RESAMPLES))
        tail = round((1 - CONFIDENCE) / 2 * RESAMPLES)
        low, high = medians[tail], medians[RESAMPLES - 1 - tail]
    return Interval(_finite(_median(sample)), _finite(low), _finite(high))


def method(seeds: int) -> str:
    """How the interval of so many seeds is made, in words."""
    return EXTREMES if seeds < 3 else BOOTSTRAP


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
