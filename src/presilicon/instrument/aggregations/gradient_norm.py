"""The Euclidean norm."""

import math
from typing import Any

from presilicon.designs import Hardware
from presilicon.instrument.aggregations.aggregation import Aggregation
from presilicon.instrument.aggregations.parts import AggregationCode, FrameContents, Values, accumulate, decode_named
from presilicon.instrument.firmware.language import Firmware
from presilicon.records import ReadingFigure


def build(hardware: Hardware) -> AggregationCode:
    """The sum of squares."""
    fw = Firmware()
    with fw.chain():
        fw.cache(0)
    with fw.chain():
        fw.mul(0)
        fw.save()
    with fw.chain():
        fw.load()
        accumulate(fw, 1)

    def decode(values: Values, contents: FrameContents) -> dict[str, Any]:
        squares = decode_named(["squares"])(values, contents)["squares"]
        return {"sum_of_squares": squares, "norm": None if squares is None else math.sqrt(squares)}

    return AggregationCode(fw, decode)


GRADIENT_NORM = Aggregation(
    gives="the sum of squares and its root", build=build, figures=(ReadingFigure("norm", "Norm"),)
)
