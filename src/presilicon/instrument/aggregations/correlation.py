"""Correlation of two tensors."""

import math
from typing import Any

from presilicon.designs import Hardware
from presilicon.instrument.aggregations.aggregation import Aggregation
from presilicon.instrument.aggregations.pairs import clear_row, sum_second
from presilicon.instrument.aggregations.parts import AggregationCode, FrameContents, Values, accumulate, decode_named
from presilicon.instrument.firmware.language import Firmware
from presilicon.records import ReadingFigure

WORDS = ("sum of both", "sum_y", "sum_xy", "squares of both", "sum_yy")


def build(hardware: Hardware) -> AggregationCode:
    """Sums of x, y, xy, xx and yy of two alternating tensors."""
    x, both, y, xy, yy, copy, squares = range(7)
    fw = Firmware()
    with fw.chain():
        fw.cache(x, "first")
    with fw.chain():
        fw.cache(copy)
    for row in (y, xy, yy):
        clear_row(fw, copy, row)
    with fw.chain():
        fw.mul(x)
        fw.save()
    with fw.chain():
        accumulate(fw, both)
    sum_second(fw, y, carried=False)
    sum_second(fw, xy)
    with fw.chain():
        fw.mul(copy)
        fw.save()
    with fw.chain():
        fw.load()
        accumulate(fw, squares)
    sum_second(fw, yy)
    return AggregationCode(fw, _decode)


def _decode(values: Values, contents: FrameContents) -> dict[str, Any]:
    if None in decode_named(WORDS)(values, contents).values():
        return dict.fromkeys(("sum_x", "sum_y", "sum_xy", "sum_xx", "sum_yy", "correlation"))
    both, y, xy, squares, yy = map(float, values)
    sums = {"x": both - y, "y": y, "xy": xy, "xx": squares - yy, "yy": yy}
    result: dict[str, Any] = {f"sum_{name}": value for name, value in sums.items()}
    return result | {"correlation": None if contents.count is None else _pearson(sums, contents.count)}


def _pearson(sums: dict[str, float], count: int) -> float | None:
    """Pearson's coefficient; None if one of the two tensors does not vary."""
    x = count * sums["xx"] - sums["x"] ** 2
    y = count * sums["yy"] - sums["y"] ** 2
    if not (x > 0 and y > 0):
        return None
    return (count * sums["xy"] - sums["x"] * sums["y"]) / math.sqrt(x * y)


CORRELATION = Aggregation(
    gives="sums, squares and Pearson's coefficient of two tensors, in alternating frames",
    build=build,
    pairs="previous",
    figures=(ReadingFigure("correlation", "Correlation with the look before"),),
)
