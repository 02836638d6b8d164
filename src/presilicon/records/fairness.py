"""How far a comparison can be trusted: designs seed by seed, and what was held equal between them."""

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
    """Of the first design."""
    losses: int
    ties: int
    probability_faster: float
    """That the first design's median is lower: the share of resamples of the seeds in which it is, equal ones half."""
    sign_test_p: float
    """How often chance alone would split the seeds without a tie as unevenly as this: two-sided exact sign test."""


class Fairness(Struct, frozen=True, kw_only=True):
    """What was the same for all designs, and what was not, in words."""

    held_equal: tuple[str, ...]
    differing: tuple[str, ...]
    strict: bool
    """Whether the comparison was checked for the usual ways to flatter a design, and passed."""
