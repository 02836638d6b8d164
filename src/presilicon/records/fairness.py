"""Trust in a comparison: designs seed by seed, and the settings that were equal between them."""

from msgspec import Struct


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


class Fairness(Struct, frozen=True, kw_only=True):
    """Settings that were equal for all designs, and those that were not, in words."""

    held_equal: tuple[str, ...]
    differing: tuple[str, ...]
    strict: bool
    """Whether the comparison was checked for the usual ways to flatter a design, and passed."""
