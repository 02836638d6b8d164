"""The largest mean activation of a node, averaged over time."""

from typing import Any

from presilicon.base import ConfigError
from presilicon.designs import Hardware
from presilicon.instrument.aggregations.aggregation import Aggregation, RunningAverage
from presilicon.instrument.aggregations.parts import AggregationCode, FrameContents, Values
from presilicon.instrument.firmware.language import Firmware
from presilicon.records import ReadingFigure


def build(hardware: Hardware) -> AggregationCode:
    """For each group of nodes, the largest sum of a node over the samples.

    Fixed point sends the smallest, too, or else the total: a sum that saturated below hides from the largest.
    """
    guard = "sum" if "min" not in hardware.reduce and "sum" in hardware.reduce else "min"
    extremes = ("max",) if hardware.is_float else ("max", guard)
    fw = Firmware()
    with fw.chain():
        fw.add(0, "notfirst")
        fw.cache(0)
        fw.save()
        fw.reduce_to("max")
        fw.commit(1, "last")
    for name in extremes[1:]:
        with fw.chain():
            fw.load()
            fw.reduce_to(name)
            fw.commit(1, "last")

    def decode(values: Values, contents: FrameContents) -> dict[str, Any]:
        if not values.size or values.size % len(extremes):
            expected = f"this aggregation sends {len(extremes)} for each group of nodes"
            raise ConfigError(f"{values.size} words, but {expected}")
        sums = values.reshape(-1, len(extremes))
        largest = contents.check_sum("largest_sum", float(sums[:, 0].max()))
        if None in [contents.check_sum("largest_sum", float(value)) for value in sums[:, -1]]:
            largest = None
        if contents.padding and largest == 0 and not (sums[:-1, 0] == 0).any():
            largest = None  # lanes of the last group without nodes hide sums that are all negative
        samples = contents.count // contents.nodes if contents.count is not None and contents.nodes else None
        return {"largest_sum": largest, "largest_mean": largest / samples if samples and largest is not None else None}

    return AggregationCode(fw, decode)


PREDICTIVENESS = Aggregation(
    gives="the largest mean of a node; the host averages over time",
    build=build,
    average=RunningAverage("predictiveness", "largest_mean"),
    figures=(ReadingFigure("predictiveness", "Predictiveness"),),
)
