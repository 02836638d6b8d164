"""Aggregations that count: distributions, percentiles by bins that follow, and what is no proper number."""

import math
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from presilicon.base.errors import ConfigError
from presilicon.designs import Hardware
from presilicon.formats import Fixed, Integer
from presilicon.instrument.aggregation_parts import Cut, Made, accumulate, expect
from presilicon.instrument.firmware import Firmware
from presilicon.instrument.histograms import percentiles
from presilicon.instrument.ranges import RangeRow
from presilicon.instrument.words import CLASSES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PERCENTILES = (15, 50, 85)


def bin_rows(boundaries: Sequence[float], hardware: Hardware) -> dict[int, RangeRow]:
    """Bins in rows of M; a last row that is not full is filled with empty ranges."""
    size = hardware.ranges
    rows = {}
    for number, begin in enumerate(range(0, len(boundaries) - 1, size)):
        part = list(boundaries[begin : begin + size + 1])
        rows[number] = RangeRow.of_boundaries(part + [part[-1]] * (size + 1 - len(part)))
    return rows


def _bins(hardware: Hardware, bins: int, low: float, high: float, boundaries: Sequence[Any] | None) -> list[float]:
    """Boundaries as they were given, or even ones between low and high with everything else in the outer bins."""
    if boundaries is not None:
        given = list(RangeRow.of_boundaries(boundaries).boundaries)
        if len(given) < 2 or any(math.isnan(value) for value in given) or given != sorted(given):
            raise ConfigError("boundaries are at least two numbers that never decrease")
        return given
    if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= 4096:
        raise ConfigError(f"bins is {bins!r}, expected 1 to 4096")
    if not (isinstance(low, int | float) and isinstance(high, int | float) and low < high):
        raise ConfigError(f"low is {low!r} and high {high!r}, expected two numbers, the smaller first")
    inner = [low + (high - low) * place / bins for place in range(1, bins)]
    return [-math.inf, *inner, math.inf]


def distribution(
    hardware: Hardware, bins: int = 64, low: float = -1.0, high: float = 1.0, boundaries: Sequence[Any] | None = None
) -> Made:
    """Counts in bins, M of them in each chain."""
    edges = _bins(hardware, bins, low, high, boundaries)
    fw = Firmware()
    fw.rows |= bin_rows(edges, hardware)
    for row in fw.rows:
        with fw.chain():
            fw.filter(row)
            fw.reduce("M")
            accumulate(fw, row, "M")

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        counts = _counts(values, cut, edges, len(fw.rows))
        return {"counts": None if None in counts else counts, "boundaries": edges}

    return Made(fw, decode, tuple(edges), "elements")


def _counts(values: "NDArray[np.float64]", cut: Cut, edges: Sequence[float], rows: int) -> list[float | None]:
    """What was counted in each bin, without the zeros of padding; None where the words could not hold it."""
    expect(values, rows * cut.hardware.ranges)
    pairs = zip(pairwise(edges), values, strict=False)
    return [
        cut.counted("counts", float(value), cut.padding if low < 0 <= high else 0.0) for (low, high), value in pairs
    ]


def norm_check(
    hardware: Hardware, bins: int = 64, low: float = -1.0, high: float = 1.0, boundaries: Sequence[Any] | None = None
) -> Made:
    """Counts in bins, of which the host makes percentiles."""
    made = distribution(hardware, bins, low, high, boundaries)

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        result = made.decoder(values, cut)
        counts = result["counts"]
        found = [None] * len(PERCENTILES) if counts is None else percentiles(made.boundaries, counts, PERCENTILES)
        return result | {f"p{which}": value for which, value in zip(PERCENTILES, found, strict=True)}

    return Made(made.firmware, decode, made.boundaries, made.counts)


def invalidity(hardware: Hardware) -> Made:
    """Counts of NaN, infinities and subnormals; in fixed point, of elements at the ends."""
    if not hardware.is_float:
        return _saturation(hardware)
    names = CLASSES[:4]
    fw = Firmware()
    for row, begin in enumerate(range(0, len(names), hardware.ranges)):
        fw.class_row(row, names[begin : begin + hardware.ranges])
        with fw.chain():
            fw.filter(row)
            fw.reduce("M")
            accumulate(fw, row, "M")

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        expect(values, len(fw.rows) * hardware.ranges)
        result = {name: cut.counted(name, float(value)) for name, value in zip(names, values, strict=False)}
        return result | {"total": _total(result.values())}

    return Made(fw, decode, counts="elements")


def _saturation(hardware: Hardware) -> Made:
    """Fixed point has no NaN and no infinities: elements at the ends of its range are what has gone wrong."""
    element = hardware.element
    assert isinstance(element, Fixed | Integer)
    step = 2.0**-hardware.fraction_bits
    largest = ((1 << hardware.element_bits - 1) - 1) * step
    made = distribution(hardware, boundaries=[-math.inf, -largest - step, largest - step, math.inf])

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        low, _, high = _counts(values, cut, made.boundaries, len(made.firmware.rows))
        return {"saturated_low": low, "saturated_high": high, "total": _total([low, high])}

    return Made(made.firmware, decode, counts=made.counts)


def _total(counts: Collection[float | None]) -> float | None:
    """Of counts that are all known."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
