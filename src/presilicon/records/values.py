"""Values of a metric, among which one that is no finite number counts as the worst."""

from collections.abc import Sequence
from math import inf, isfinite
from statistics import median

from presilicon.records.trace import Direction


def finite(value: float) -> float | None:
    """The value, or None if it is infinite or no number."""
    return value if isfinite(value) else None


def ranked(value: float | None, better: Direction) -> float:
    """The value as it compares with others: infinitely bad if it is no finite number.

    >>> ranked(0.5, "higher"), ranked(None, "higher"), ranked(float("nan"), "lower")
    (0.5, -inf, inf)
    """
    worst = inf if better == "lower" else -inf
    return worst if value is None or not isfinite(value) else value


def metric_median(values: Sequence[float | None], better: Direction) -> float | None:
    """The median; None if it is no finite number.

    >>> metric_median([0.2, None, 0.1], "lower"), metric_median([0.9, None, None], "higher")
    (0.2, None)
    """
    return finite(median(ranked(value, better) for value in values))
