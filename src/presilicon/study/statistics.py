"""Intervals over seeds, some of which may never have arrived."""

import math
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import comb

from presilicon.records import Interval, Pair, Probability

RESAMPLES = 2000
CONFIDENCE = 0.95
NORMAL_QUANTILE = 1.959963984540054
"""Of 0.975: the half width of a 95% interval in standard deviations."""
RESTARTS = "mean of the arrivals + (1 - p) / p * budget: a seed that misses spends its budget, then another is started"
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
    sample = sorted(math.inf if value is None else value for value in values)
    if len(sample) < 3:
        low, high = sample[0], sample[-1]
    else:
        draw = random.Random(0)
        medians = sorted(_median(sorted(draw.choices(sample, k=len(sample)))) for _ in range(RESAMPLES))
        tail = round((1 - CONFIDENCE) / 2 * RESAMPLES)
        low, high = medians[tail], medians[RESAMPLES - 1 - tail]
    return Interval(_finite(_median(sample)), _finite(low), _finite(high))


def interval_method(seeds: int) -> str:
    """How the interval of so many seeds is made, in words."""
    return EXTREMES if seeds < 3 else BOOTSTRAP


def reach_probability(arrived: int, seeds: int) -> Probability:
    """The share of seeds that arrived, with Wilson's score interval, which holds for few seeds and at 0 and 1 too.

    >>> reach_probability(5, 5)
    Probability(value=1.0, low=0.5655, high=1.0)
    """
    if not 0 <= arrived <= seeds or seeds == 0:
        raise ValueError(f"{arrived} of {seeds} seeds cannot have arrived")
    share, square = arrived / seeds, NORMAL_QUANTILE**2
    centre = (share + square / (2 * seeds)) / (1 + square / seeds)
    half = math.sqrt(share * (1 - share) / seeds + square / (4 * seeds**2)) * NORMAL_QUANTILE / (1 + square / seeds)
    # At the ends the formula gives 0 and 1 but for rounding.
    low = 0.0 if arrived == 0 else centre - half
    high = 1.0 if arrived == seeds else centre + half
    return Probability(share, round(low, 4), round(high, 4))


def expected_with_restarts(arrivals: Sequence[float], misses: int, budget: float) -> float | None:
    """What it costs on average to arrive when a run that misses spends its whole `budget` and another is started.

    With p the share of runs that arrive, (1 - p) / p misses are to be expected before an arrival, so it is
    (1 - p) / p * budget + mean(arrivals). None when nothing arrived.

    >>> expected_with_restarts([2.0, 4.0], misses=2, budget=10.0)
    13.0
    """
    if not arrivals:
        return None
    return misses / len(arrivals) * budget + math.fsum(arrivals) / len(arrivals)


def compare_seeds(first: str, one: Mapping[int, float | None], second: str, other: Mapping[int, float | None]) -> Pair:
    """Two designs by the time of each seed, where None is a miss; seeds that only one of them has are left out.

    >>> compare_seeds("a", {0: 1.0, 1: 2.0, 2: None}, "b", {0: 2.0, 1: None, 2: None}).wins
    2
    """
    shared = sorted(one.keys() & other.keys())
    times = [(_number(one[seed]), _number(other[seed])) for seed in shared]
    wins, losses = sum(a < b for a, b in times), sum(a > b for a, b in times)
    return Pair(
        first=first,
        second=second,
        seeds=len(times),
        wins=wins,
        losses=losses,
        ties=len(times) - wins - losses,
        probability_faster=_probability_faster(times),
        sign_test_p=_sign_test(wins, losses),
    )


def _probability_faster(times: Sequence[tuple[float, float]]) -> float:
    """The share of paired resamples in which the first median is the lower one; equal medians count half."""
    if not times:
        return 0.5
    draw = random.Random(0)
    halves = 0
    for _ in range(RESAMPLES):
        chosen = draw.choices(times, k=len(times))
        one, other = (_median(sorted(column)) for column in zip(*chosen, strict=True))
        halves += 2 if one < other else 1 if one == other else 0
    return halves / (2 * RESAMPLES)


def _sign_test(wins: int, losses: int) -> float:
    """Twice the chance of at most as many heads as the fewer of both, in that many throws of a coin; at most 1."""
    throws = wins + losses
    tail = sum(comb(throws, heads) for heads in range(min(wins, losses) + 1))
    return float(min(Fraction(2 * tail, 2**throws), Fraction(1)))


def _number(value: float | None) -> float:
    return math.inf if value is None else value


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
