"""Trust in a comparison: intervals, designs seed by seed, and the settings that were equal between them."""

from msgspec import Struct
from msgspec.structs import replace


class Interval(Struct, frozen=True):
    """A median with a low and a high end; None stands for infinity (a seed that never arrived)."""

    median: float | None
    low: float | None
    high: float | None

    @property
    def inverse(self) -> "Interval":
        """The interval of the inverse ratio; that of infinity is 0.

        >>> Interval(2.0, 0.0, None).inverse
        Interval(median=0.5, low=0.0, high=None)
        """
        ends = (self.median, self.high, self.low)
        return Interval(*(0.0 if end is None else 1 / end if end else None for end in ends))


class Probability(Struct, frozen=True):
    """A probability estimated from a few trials, with the ends of its interval."""

    value: float
    low: float
    high: float


class Pair(Struct, frozen=True, kw_only=True):
    """Two designs on the same seeds: the same initial weights and batches, so that luck is shared.

    On a seed the sooner arrival wins. A seed that one design misses is won by the other; one that both miss, or on
    which they take the same time, is a tie.
    """

    first: str
    second: str
    seeds: int
    """That both designs were trained with; the rest is left out."""
    wins: int
    """Seeds that the first design won."""
    losses: int
    ties: int
    probability_faster: float
    """That the first design's median is lower: the share of resamples of the seeds in which it is, equal ones half."""
    sign_test_p: float
    """p-value of the two-sided exact sign test over the seeds without a tie."""
    time_ratio: Interval | None = None
    """Time-to-accuracy of the second design over that of the first, seed by seed: above 1 if the first is faster. None
    in older records, and without shared seeds."""
    energy_ratio: Interval | None = None
    """The same for energy-to-accuracy."""
    confidence: float | None = None
    """Confidence of the two intervals: 0.95, or more where seeds were added until the ranking was decided."""
    same_training: bool = False
    """Both designs trained bit-identically on every seed and differ in price only; the intervals are the extremes."""
    seeds_needed: int | None = None
    """Paired seeds that would separate the times at 95% with a power of 80%, by the spread of these seeds; None if no
    number of seeds would, or there are fewer than two."""

    @property
    def swapped(self) -> "Pair":
        """The same with the designs swapped."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            wins=self.losses,
            losses=self.wins,
            probability_faster=1 - self.probability_faster,
            time_ratio=None if self.time_ratio is None else self.time_ratio.inverse,
            energy_ratio=None if self.energy_ratio is None else self.energy_ratio.inverse,
        )

    @property
    def is_decided(self) -> bool:
        """Whether the interval of the ratio of times excludes 1."""
        return self.time_ratio is not None and excludes_one(self.time_ratio)


def excludes_one(ratio: Interval) -> bool:
    """Whether an interval of a ratio lies entirely above or below 1.

    >>> excludes_one(Interval(1.3, 1.1, None)), excludes_one(Interval(1.3, 1.0, 1.5))
    (True, False)
    """
    return (ratio.low is None or ratio.low > 1) or (ratio.high is not None and ratio.high < 1)


class Fairness(Struct, frozen=True, kw_only=True):
    """Settings that were equal for all designs, and those that were not, in words."""

    held_equal: tuple[str, ...]
    differing: tuple[str, ...]
    strict: bool
    """Whether the comparison was checked for the usual ways to flatter a design, and passed."""
    unequal_hardware: tuple[str, ...] = ()
    """Area, memory and bandwidth where the designs have different ones."""
