"""Estimates from a few seeds, with the ends of their intervals."""

from msgspec import Struct


class Interval(Struct, frozen=True):
    """A median with a low and a high end; None stands for infinity (a seed that never arrived)."""

    median: float | None
    low: float | None
    high: float | None


class Probability(Struct, frozen=True):
    """A probability estimated from a few trials, with the ends of its interval."""

    value: float
    low: float
    high: float
