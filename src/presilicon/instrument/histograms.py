"""The host's part of NormCheck: percentiles from counts, bins that follow a distribution, and a moving average."""

import math
from collections import deque
from collections.abc import Sequence
from itertools import accumulate

OUTER = 0.05
"""More than this part of all elements in an outer bin: the distribution has moved there."""
FURTHER = 3
"""How many spans further the bins then reach."""


def percentiles(boundaries: Sequence[float], counts: Sequence[float], which: Sequence[float]) -> list[float | None]:
    """Percentiles of numbers of which only the counts in bins are known, as if they were even within each bin.

    What lies in a bin without end is taken for its end that is a number. None where nothing was counted.

    >>> percentiles([0.0, 1.0, 3.0], [10, 10], [25, 50, 75])
    [0.5, 1.0, 2.0]
    """
    total = sum(counts)
    if not total > 0:
        return [None] * len(which)
    below = [0.0, *accumulate(counts)]
    return [_quantile(boundaries, counts, below, total * part / 100) for part in which]


def _quantile(boundaries: Sequence[float], counts: Sequence[float], below: Sequence[float], wanted: float) -> float:
    place = next((place for place in range(len(counts)) if counts[place] and below[place + 1] >= wanted), None)
    if place is None:
        place = max(place for place in range(len(counts)) if counts[place])
    low, high = boundaries[place], boundaries[place + 1]
    if math.isinf(low) or math.isinf(high):
        return low if math.isinf(high) and not math.isinf(low) else high if not math.isinf(high) else 0.0
    return low + (high - low) * min(max((wanted - below[place]) / counts[place], 0.0), 1.0)


def tracking_boundaries(boundaries: Sequence[float], counts: Sequence[float], least: float = 0.0) -> list[float]:
    """As many bins as before, uneven, where the numbers are now: half of them of equal weight, half of equal width.

    They reach from the lowest to the highest bin that held something, and a few spans further on a side whose outer
    bin is heavy; everything else stays in the outer bins, which have no end. A span of at least `least` is kept, so
    that numbers that were all alike for a while are found again when they differ.
    """
    bins = len(counts)
    finite = [value for value in boundaries if math.isfinite(value)]
    filled = [place for place in range(bins) if counts[place] > 0]
    if bins < 3 or len(finite) < 2 or not filled:
        return list(boundaries)
    low = min(max(boundaries[filled[0]], finite[0]), finite[-1])
    high = max(min(boundaries[filled[-1] + 1], finite[-1]), low)
    span = max(high - low, least) or finite[-1] - finite[0] or 1.0
    middle = (low + high) / 2
    low, high = min(low, middle - span / 2), max(high, middle + span / 2)
    heavy = OUTER * sum(counts)
    if math.isinf(boundaries[0]) and counts[0] > heavy:
        low -= FURTHER * span
    if math.isinf(boundaries[-1]) and counts[-1] > heavy:
        high += FURTHER * span
    weighted = (bins - 1) // 2
    even = bins - 1 - weighted
    edges = [low + (high - low) * place / max(even - 1, 1) for place in range(even)]
    parts = [100 * (place + 0.5) / weighted for place in range(weighted)]
    edges += [value for value in percentiles(boundaries, counts, parts) if value is not None]
    return [-math.inf, *sorted(edges), math.inf]


class MovingAverage:
    """The average of the last `window` numbers, of fewer until so many have come.

    >>> average = MovingAverage(2)
    >>> [average.add(value) for value in (1.0, 3.0, 5.0)]
    [1.0, 2.0, 4.0]
    """

    def __init__(self, window: int) -> None:
        self._values: deque[float] = deque(maxlen=window)

    @property
    def values(self) -> list[float]:
        """What it is the average of."""
        return list(self._values)

    def extend(self, values: Sequence[float]) -> None:
        """Take several numbers in."""
        self._values.extend(values)

    def add(self, value: float) -> float:
        """Take a number in, and give the average."""
        self._values.append(value)
        return math.fsum(self._values) / len(self._values)
