"""Counts in bins."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from presilicon.base import ConfigError
from presilicon.designs import Hardware
from presilicon.instrument.aggregations.aggregation import Aggregation
from presilicon.instrument.aggregations.parts import AggregationCode, FrameContents, Values, accumulate, expect_words
from presilicon.instrument.firmware.language import Firmware
from presilicon.instrument.firmware.ranges import RangeRow

BIN_OPTIONS = ("bins", "low", "high", "boundaries")


def build(
    hardware: Hardware, bins: int = 64, low: float = -1.0, high: float = 1.0, boundaries: Sequence[Any] | None = None
) -> AggregationCode:
    """Counts in bins, M of them in each chain."""
    edges = _bin_edges(bins, low, high, boundaries)
    fw = Firmware()
    fw.rows |= bin_rows(edges, hardware)
    for row in fw.rows:
        with fw.chain():
            fw.filter(row)
            fw.reduce("M")
            accumulate(fw, row, "M")

    def decode(values: Values, contents: FrameContents) -> dict[str, Any]:
        counts = decode_counts(values, contents, edges, len(fw.rows))
        return {"counts": None if None in counts else counts, "boundaries": edges}

    return AggregationCode(fw, decode, tuple(edges), "elements")


def bin_rows(boundaries: Sequence[float], hardware: Hardware) -> dict[int, RangeRow]:
    """Bins in rows of M; a last row that is not full is filled with empty ranges."""
    size = hardware.ranges
    rows = {}
    for row, begin in enumerate(range(0, len(boundaries) - 1, size)):
        part = list(boundaries[begin : begin + size + 1])
        rows[row] = RangeRow.of_boundaries(part + [part[-1]] * (size + 1 - len(part)))
    return rows


def decode_counts(values: Values, contents: FrameContents, edges: Sequence[float], rows: int) -> list[float | None]:
    """The count in each bin, without the zeros of padding; None where the words could not hold it."""
    expect_words(values, rows * contents.hardware.ranges)
    bins = zip(pairwise(edges), values, strict=False)
    return [
        contents.check_count("counts", float(value), contents.padding if low < 0 <= high else 0.0)
        for (low, high), value in bins
    ]


def _bin_edges(bins: int, low: float, high: float, boundaries: Sequence[Any] | None) -> list[float]:
    """The user's boundaries, or even ones between low and high with everything else in the outer bins."""
    if boundaries is not None:
        edges = list(RangeRow.of_boundaries(boundaries).boundaries)
        if len(edges) < 2 or any(math.isnan(edge) for edge in edges) or edges != sorted(edges):
            raise ConfigError("boundaries must be at least two numbers that never decrease")
        return edges
    if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= 4096:
        raise ConfigError(f"bins is {bins!r}, expected 1 to 4096")
    if not (isinstance(low, int | float) and isinstance(high, int | float) and low < high):
        raise ConfigError(f"low is {low!r} and high {high!r}, expected two numbers, the smaller first")
    inner = [low + (high - low) * index / bins for index in range(1, bins)]
    return [-math.inf, *inner, math.inf]


DISTRIBUTION = Aggregation(
    gives="how many elements lie in each bin; the outer ones take what lies beyond", build=build, options=BIN_OPTIONS
)
