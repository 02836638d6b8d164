"""Percentiles, from counts in bins that follow the distribution."""

from collections.abc import Sequence
from typing import Any

from presilicon.designs import Hardware
from presilicon.instrument.aggregations import distribution
from presilicon.instrument.aggregations.aggregation import Aggregation
from presilicon.instrument.aggregations.histograms import percentiles
from presilicon.instrument.aggregations.parts import AggregationCode, FrameContents, Values
from presilicon.records import ReadingFigure

PERCENTILES = (15, 50, 85)
NAMES = tuple(f"p{percentile}" for percentile in PERCENTILES)


def build(
    hardware: Hardware, bins: int = 64, low: float = -1.0, high: float = 1.0, boundaries: Sequence[Any] | None = None
) -> AggregationCode:
    """Counts in bins, from which the host computes percentiles."""
    code = distribution.build(hardware, bins, low, high, boundaries)

    def decode(values: Values, contents: FrameContents) -> dict[str, Any]:
        result = code.decoder(values, contents)
        counts = result["counts"]
        if counts is None:
            return result | dict.fromkeys(NAMES)
        return result | dict(zip(NAMES, percentiles(code.boundaries, counts, PERCENTILES), strict=True))

    return AggregationCode(code.firmware, decode, code.boundaries, code.counts)


NORM_CHECK = Aggregation(
    gives="the 15th, 50th and 85th percentiles, by bins that follow",
    build=build,
    options=distribution.BIN_OPTIONS,
    follows=True,
    figures=tuple(ReadingFigure(name, panel="percentiles") for name in NAMES),
)
