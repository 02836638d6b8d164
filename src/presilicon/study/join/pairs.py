"""Two designs compared seed by seed: ratios with intervals, and the number of seeds that would separate them.

A seed gives both designs the same weights and batches, so the ratio of their times on one seed has less luck in it than
the times have. Ratios are compared by their logarithms, in which a seed that one design misses is infinite and a seed
that both miss is a tie.
"""

import math
import random
from collections.abc import Mapping, Sequence
from itertools import combinations, combinations_with_replacement
from statistics import NormalDist, median, stdev

from presilicon.records import Interval, Pair, SeedResult, excludes_one
from presilicon.study.join.statistics import CONFIDENCE, RESAMPLES, number

POWER = 0.8
PAIRED = (
    "second design over first: the median over seeds; low and high invert the exact Wilcoxon signed-rank test on log "
    "ratios (Hodges-Lehmann), widened to contain the median; a seed missed by one design is infinite, by both a tie; "
    "for designs that train bit-identically low and high are the extremes"
)
NEEDED = (
    f"to separate the times at {CONFIDENCE:.0%} with a power of {POWER:.0%}: ((z + z')^2 / d^2 + z^2 / 2) pi / 3, "
    "where z = 1.96, z' = 0.84 and d is mean over standard deviation of the log ratios (Guenther 1981, with the "
    "efficiency of the signed-rank test); with missed seeds 6 if one design wins them "
    "all, else (z + z')^2 / (3 (p - 1/2)^2), where p is the share of "
    "positive sums of two log ratios (Noether 1987)"
)


def compare_seeds(
    first: str, one: Sequence[SeedResult], second: str, other: Sequence[SeedResult], *, confidence: float = CONFIDENCE
) -> Pair:
    """Two designs compared on the seeds that both of them have."""
    from scipy.stats import binomtest

    shared = shared_seeds(one, other)
    times = [(number(a.time_to_accuracy_s), number(b.time_to_accuracy_s)) for a, b in shared]
    wins, losses = sum(a < b for a, b in times), sum(a > b for a, b in times)
    same = trained_alike(shared)
    ratios = time_log_ratios(shared)
    return Pair(
        first=first,
        second=second,
        seeds=len(times),
        wins=wins,
        losses=losses,
        ties=len(times) - wins - losses,
        probability_faster=_probability_faster(times),
        sign_test_p=float(binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0,
        time_ratio=ratio_interval(ratios, confidence, extremes=same),
        energy_ratio=ratio_interval(
            [log_ratio(a.energy_to_accuracy_j, b.energy_to_accuracy_j) for a, b in _priced(shared)],
            confidence,
            extremes=same,
        ),
        confidence=confidence,
        same_training=same,
        seeds_needed=1 if same and any(ratios) else seeds_needed(ratios),
    )


SharedSeeds = Sequence[tuple[SeedResult, SeedResult]]


def shared_seeds(one: Sequence[SeedResult], other: Sequence[SeedResult]) -> list[tuple[SeedResult, SeedResult]]:
    """The results of both designs on the seeds that both have, in the order of the seeds."""
    firsts, seconds = ({seed.seed: seed for seed in seeds} for seeds in (one, other))
    return [(firsts[seed], seconds[seed]) for seed in sorted(firsts.keys() & seconds.keys())]


def trained_alike(shared: SharedSeeds) -> bool:
    """Whether both designs trained bit-identically on every seed, so that only prices differ."""
    return bool(shared) and all(a.fingerprint and a.fingerprint == b.fingerprint for a, b in shared)


def time_log_ratios(shared: SharedSeeds) -> list[float]:
    """Logarithms of the second design's time-to-accuracy over the first's, seed by seed."""
    return [log_ratio(a.time_to_accuracy_s, b.time_to_accuracy_s) for a, b in _priced(shared)]


def _priced(shared: SharedSeeds) -> SharedSeeds:
    """The seeds that say something about prices: of designs that train alike, those that reach the target."""
    reached = [(a, b) for a, b in shared if a.time_to_accuracy_s is not None]
    return reached if reached and trained_alike(shared) else shared


def log_ratio(first: float | None, second: float | None) -> float:
    """The logarithm of second / first, where None is infinite; 0 if both are.

    >>> log_ratio(2.0, 2.0), log_ratio(2.0, None), log_ratio(None, None)
    (0.0, inf, 0.0)
    """
    if first == second:
        return 0.0
    return math.log(number(second)) - math.log(number(first))


def undecided(
    designs: Mapping[str, Sequence[SeedResult]], confidence: float = CONFIDENCE
) -> tuple[tuple[str, str], ...]:
    """The pairs of designs whose times-to-accuracy the seeds do not separate."""
    pairs = []
    for (first, one), (second, other) in combinations(designs.items(), 2):
        shared = shared_seeds(one, other)
        ratio = ratio_interval(time_log_ratios(shared), confidence, extremes=trained_alike(shared))
        if ratio is None or not excludes_one(ratio):
            pairs.append((first, second))
    return tuple(pairs)


def ratio_interval(logs: Sequence[float], confidence: float, *, extremes: bool = False) -> Interval | None:
    """Median and interval of a ratio from paired logarithms; with `extremes` its ends are the smallest and the largest.

    The interval of the signed-rank test is one of means of pairs; it is widened to contain the median where the
    logarithms are so skewed that it does not.

    >>> ratio_interval([0.0, 0.0, math.inf], 0.95, extremes=True)
    Interval(median=1.0, low=1.0, high=None)
    """
    if not logs:
        return None
    middle, low, high = _median(sorted(logs)), -math.inf, math.inf
    beyond = signed_rank_tail(len(logs), (1 - confidence) / 2)
    if extremes:
        low, high = min(logs), max(logs)
    elif beyond is not None:
        means = sorted(map(_mean, combinations_with_replacement(logs, 2)))
        low, high = min(means[beyond], middle), max(means[-1 - beyond], middle)
    return Interval(_ratio(middle), _ratio(low), _ratio(high))


def signed_rank_tail(seeds: int, tail: float) -> int | None:
    """The largest value that the signed-rank statistic of that many seeds is at or below with at most that probability.

    The sums of pairs (Walsh averages) beyond that rank at both ends are outside the interval. None if the seeds are too
    few to exclude anything.

    >>> signed_rank_tail(5, 0.025), signed_rank_tail(6, 0.025), signed_rank_tail(10, 0.025)
    (None, 0, 8)
    """
    import numpy as np

    # Under the null hypothesis every rank is positive with probability 1/2, independently of the others.
    chances = np.zeros(seeds * (seeds + 1) // 2 + 1)
    chances[0] = 1.0
    for rank in range(1, seeds + 1):
        chances[rank:] += chances[:-rank].copy()
        chances /= 2
    within = int(np.searchsorted(np.cumsum(chances), tail * (1 + 1e-9), side="right"))
    return within - 1 if within else None


FEWEST = 6
"""With fewer seeds no outcome of the signed-rank test has a p-value below 0.05."""


def seeds_needed(logs: Sequence[float]) -> int | None:
    """Paired seeds that would separate two designs at 95% with a power of 80%, if more seeds were like these.

    With finite ratios, that of the t-test, (z + z')^2 / d^2 + z^2 / 2 with d the mean over the standard deviation
    (Guenther, American Statistician 35, 1981), divided by the efficiency 3/pi of the signed-rank test for normal data.
    Where a seed was missed there is no mean, and Noether's formula for the signed-rank test takes its place, unless one
    design wins every seed, which the fewest seeds of the test then show:
    (z + z')^2 / (3 (p - 1/2)^2), with p the probability that the sum of two log ratios is positive (JASA 82, 1987).

    >>> seeds_needed([0.1, 0.3, 0.2, -0.1, 0.2]), seeds_needed([0.1, -0.1])
    (12, None)
    """
    if len(logs) < 2:
        return None
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    quantiles = (z + NormalDist().inv_cdf(POWER)) ** 2
    if not all(map(math.isfinite, logs)) and (min(logs) > 0 or max(logs) < 0):
        return FEWEST  # the same design wins every seed, however many there are
    if all(map(math.isfinite, logs)):
        mean, deviation = math.fsum(logs) / len(logs), stdev(logs)
        if abs(mean) <= 1e-9 * max(deviation, 1.0):
            return None
        needed = (quantiles * (deviation / mean) ** 2 + z**2 / 2) * math.pi / 3
    else:
        means = [_mean(pair) for pair in combinations(logs, 2)]
        share = sum(1.0 if value > 0 else 0.5 if value == 0 else 0.0 for value in means) / len(means)
        if share == 0.5:
            return None
        needed = quantiles / (3 * (share - 0.5) ** 2)
    return max(FEWEST, math.ceil(needed))


def _probability_faster(times: Sequence[tuple[float, float]]) -> float:
    """The share of paired resamples in which the first median is lower; equal medians count half."""
    if not times:
        return 0.5
    draw = random.Random(0)
    halves = 0
    for _ in range(RESAMPLES):
        resample = draw.choices(times, k=len(times))
        one, other = (median(column) for column in zip(*resample, strict=True))
        halves += 2 if one < other else 1 if one == other else 0
    return halves / (2 * RESAMPLES)


def _mean(pair: tuple[float, float]) -> float:
    """Mean of two numbers; opposite infinities cancel, since the misses that they stand for have equal ranks."""
    total = pair[0] + pair[1]
    return 0.0 if math.isnan(total) else total / 2


def _median(ordered: Sequence[float]) -> float:
    return _mean((ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]))


def _ratio(log: float) -> float | None:
    """A ratio from its logarithm; None if it is infinite."""
    return None if log == math.inf else math.exp(log)
