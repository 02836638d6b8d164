"""Correlation of two tensors."""

import math
from typing import Any

from presilicon.designs import Hardware
from presilicon.instrument.aggregations.aggregation import Aggregation
from presilicon.instrument.aggregations.pairs import clear_row, send_total, sum_first, sum_second
from presilicon.instrument.aggregations.parts import AggregationCode, FrameContents, Values, decode_named
from presilicon.instrument.firmware.language import Firmware
from presilicon.records import ReadingFigure

WORDS = ("sum_y", "sum_xy", "sum_yy", "sum_x", "sum_xx")


def build(hardware: Hardware) -> AggregationCode:
    """Sums of x, y, xy, xx and yy of two alternating tensors."""
    copy, x, xs, ys, xy, xx, yy = range(7)
    fw = Firmware()
    for row in (ys, xy, yy):
        clear_row(fw, row)
    with fw.chain():
        fw.cache(copy)
    with fw.chain():
        fw.cache(x, "first")
    sum_first(fw, xs, carried=False)
    sum_second(fw, ys, carried=False)
    with fw.chain():
        fw.mul(x)
        fw.save()
    sum_second(fw, xy)
    with fw.chain():
        fw.mul(copy)
        fw.save()
    sum_first(fw, xx)
    sum_second(fw, yy)
    send_total(fw, xs)
    send_total(fw, xx)
    return AggregationCode(fw, _decode)


def _decode(values: Values, contents: FrameContents) -> dict[str, Any]:
    sums = decode_named(WORDS)(values, contents)
    if contents.count is None or None in sums.values():
        return sums | {"correlation": None}
    return sums | {"correlation": _pearson(sums, contents.count)}


def _pearson(sums: dict[str, float], count: int) -> float | None:
    """Pearson's coefficient; None if one of the two tensors does not vary."""
    x = count * sums["sum_xx"] - sums["sum_x"] ** 2
    y = count * sums["sum_yy"] - sums["sum_y"] ** 2
    if not (x > 0 and y > 0):
        return None
    return (count * sums["sum_xy"] - sums["sum_x"] * sums["sum_y"]) / math.sqrt(x * y)


CORRELATION = Aggregation(
    gives="sums, squares and Pearson's coefficient of two tensors, in alternating frames",
    build=build,
    pairs="previous",
    figures=(ReadingFigure("correlation", "Correlation with the look before"),),
)
