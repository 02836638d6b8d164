"""The host's part of aggregations: percentiles from counts, bins that follow a distribution, a moving average."""

import math
from collections import deque
from collections.abc import Sequence
from itertools import accumulate

HEAVY_SHARE = 0.05
"""With more than this share of all elements in an outer bin, the distribution has moved there."""
EXTRA_SPANS = 3
"""Spans by which the bins then reach further."""


def percentiles(boundaries: Sequence[float], counts: Sequence[float], which: Sequence[float]) -> list[float | None]:
    """Percentiles of numbers from their counts in bins, as if they were spread evenly within each bin.

    Numbers in an unbounded bin are taken for its finite end. None if nothing was counted.

    >>> percentiles([0.0, 1.0, 3.0], [10, 10], [25, 50, 75])
    [0.5, 1.0, 2.0]
    """
    total = sum(counts)
    if not total > 0:
        return [None] * len(which)
    below = [0.0, *accumulate(counts)]
    return [_quantile(boundaries, counts, below, total * percentile / 100) for percentile in which]


def _quantile(boundaries: Sequence[float], counts: Sequence[float], below: Sequence[float], rank: float) -> float:
    """The number with `rank` numbers below it; `below` has the counts below each boundary."""
    filled = [index for index, count in enumerate(counts) if count]
    index = next((index for index in filled if below[index + 1] >= rank), filled[-1])
    low, high = boundaries[index], boundaries[index + 1]
    if math.isinf(low) or math.isinf(high):
        return low if math.isinf(high) and not math.isinf(low) else high if not math.isinf(high) else 0.0
    return low + (high - low) * min(max((rank - below[index]) / counts[index], 0.0), 1.0)


def tracking_boundaries(boundaries: Sequence[float], counts: Sequence[float], least: float = 0.0) -> list[float]:
    """As many bins as before, placed where the numbers are now: half of equal weight, half of equal width.

    They reach from the lowest to the highest bin that is not empty, and a few spans further on a side whose outer bin
    is heavy; everything else stays in the outer bins, which are unbounded. The span is at least `least`, so that
    numbers that were all equal for a while are found again when they differ.
    """
    bins = len(counts)
    finite = [value for value in boundaries if math.isfinite(value)]
    filled = [index for index in range(bins) if counts[index] > 0]
    if bins < 3 or len(finite) < 2 or not filled:
        return list(boundaries)
    low = min(max(boundaries[filled[0]], finite[0]), finite[-1])
    high = max(min(boundaries[filled[-1] + 1], finite[-1]), low)
    span = max(high - low or finite[-1] - finite[0], least) or 1.0
    middle = (low + high) / 2
    low, high = min(low, middle - span / 2), max(high, middle + span / 2)
    heavy = HEAVY_SHARE * sum(counts)
    if math.isinf(boundaries[0]) and counts[0] > heavy:
        low -= EXTRA_SPANS * span
    if math.isinf(boundaries[-1]) and counts[-1] > heavy:
        high += EXTRA_SPANS * span
    weighted = (bins - 1) // 2
    even = bins - 1 - weighted
    edges = [low + (high - low) * index / max(even - 1, 1) for index in range(even)]
    ranks = [100 * (index + 0.5) / weighted for index in range(weighted)]
    edges += [value for value in percentiles(boundaries, counts, ranks) if value is not None]
    return [-math.inf, *sorted(edges), math.inf]


def bins_moved(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether new boundaries differ from the old ones by more than 2% of their span."""
    inner = [edge for edge in after if math.isfinite(edge)]
    if len(inner) < 2:
        return False
    pairs = zip(before, after, strict=True)
    moved = max((abs(old - new) for old, new in pairs if math.isfinite(old) and math.isfinite(new)), default=0.0)
    return moved > 0.02 * (inner[-1] - inner[0])


class MovingAverage:
    """The average of the last `window` numbers, or of all while there are fewer.

    >>> average = MovingAverage(2)
    >>> [average.add(value) for value in (1.0, 3.0, 5.0)]
    [1.0, 2.0, 4.0]
    """

    def __init__(self, window: int) -> None:
        self._values: deque[float] = deque(maxlen=window)

    @property
    def values(self) -> list[float]:
        """The numbers in the window."""
        return list(self._values)

    def extend(self, values: Sequence[float]) -> None:
        """Add several numbers."""
        self._values.extend(values)

    def add(self, value: float) -> float:
        """Add a number and return the average."""
        self._values.append(value)
        return math.fsum(self._values) / len(self._values)
