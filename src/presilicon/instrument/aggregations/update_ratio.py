"""The norm of a weight's update relative to the weight's own."""

import math
from typing import Any

from presilicon.designs import Hardware
from presilicon.instrument.aggregations.aggregation import Aggregation
from presilicon.instrument.aggregations.pairs import clear_row, send_total, sum_first, sum_second
from presilicon.instrument.aggregations.parts import AggregationCode, FrameContents, Values, decode_named
from presilicon.instrument.firmware.language import Firmware
from presilicon.records import ReadingFigure


def build(hardware: Hardware) -> AggregationCode:
    """Sums of squares of updates and of weights, which alternate."""
    copy, update, weight = range(3)
    fw = Firmware()
    with fw.chain():
        fw.cache(copy)
    clear_row(fw, weight)
    with fw.chain():
        fw.mul(copy)
        fw.save()
    sum_first(fw, update)
    sum_second(fw, weight)
    send_total(fw, update)
    return AggregationCode(fw, _decode)


def _decode(values: Values, contents: FrameContents) -> dict[str, Any]:
    weight_squares, update_squares = decode_named(["weight", "update"])(values, contents).values()
    update_norm = None if update_squares is None else math.sqrt(update_squares)
    weight_norm = None if weight_squares is None else math.sqrt(weight_squares)
    ratio = update_norm / weight_norm if weight_norm and update_norm is not None else None
    return {"update_norm": update_norm, "weight_norm": weight_norm, "ratio": ratio}


UPDATE_RATIO = Aggregation(
    gives="the ratio of the norms of updates and weights, in alternating frames",
    build=build,
    pairs="update",
    figures=(ReadingFigure("ratio", "Update to weight"),),
)
