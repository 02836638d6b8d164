"""Counts of numbers that are not proper: NaN, infinities, subnormals; in fixed point, saturated elements."""

import math
from collections.abc import Collection
from typing import Any

from presilicon.designs import Hardware
from presilicon.instrument.aggregations import distribution
from presilicon.instrument.aggregations.aggregation import Aggregation
from presilicon.instrument.aggregations.parts import AggregationCode, FrameContents, Values, accumulate, expect_words
from presilicon.instrument.firmware.language import Firmware
from presilicon.instrument.model.words import CLASSES
from presilicon.records import ReadingFigure

INVALID_CLASSES = CLASSES[:4]


def build(hardware: Hardware) -> AggregationCode:
    """Counts of NaN, infinities and subnormals, M classes in each chain."""
    if not hardware.is_float:
        return _saturation(hardware)
    fw = Firmware()
    for row, begin in enumerate(range(0, len(INVALID_CLASSES), hardware.ranges)):
        fw.class_row(row, INVALID_CLASSES[begin : begin + hardware.ranges])
        with fw.chain():
            fw.filter(row)
            fw.reduce("M")
            accumulate(fw, row, "M")

    def decode(values: Values, contents: FrameContents) -> dict[str, Any]:
        expect_words(values, len(fw.rows) * hardware.ranges)
        pairs = zip(INVALID_CLASSES, values, strict=False)
        result = {name: contents.check_count(name, float(value)) for name, value in pairs}
        return result | {"total": _total(result.values())}

    return AggregationCode(fw, decode, counts="elements")


def _saturation(hardware: Hardware) -> AggregationCode:
    """Fixed point has no NaN and no infinities: elements at the ends of its range are the invalid ones."""
    step = 2.0**-hardware.fraction_bits
    largest = ((1 << hardware.element_bits - 1) - 1) * step
    code = distribution.build(hardware, boundaries=[-math.inf, -largest - step, largest - step, math.inf])

    def decode(values: Values, contents: FrameContents) -> dict[str, Any]:
        counts = distribution.decode_counts(values, contents, code.boundaries, len(code.firmware.rows))
        low, _, high = counts
        return {"saturated_low": low, "saturated_high": high, "total": _total([low, high])}

    return AggregationCode(code.firmware, decode, counts=code.counts)


def _total(counts: Collection[float | None]) -> float | None:
    """The sum of counts; None unless all are known."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


INVALIDITY = Aggregation(
    gives="NaN, infinities and subnormals; in fixed point elements at the ends",
    build=build,
    figures=(ReadingFigure("total", "Invalid elements"),),
)
