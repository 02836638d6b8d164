"""Sum, zeros, elements, smallest and largest."""

from typing import Any

from presilicon.designs import Hardware
from presilicon.instrument.aggregations.aggregation import Aggregation
from presilicon.instrument.aggregations.parts import (
    END,
    FRESH,
    AggregationCode,
    FrameContents,
    Values,
    accumulate,
    expect_words,
)
from presilicon.instrument.aggregations.sparsity import SHARE_OF_ZEROS
from presilicon.instrument.firmware.language import Firmware
from presilicon.instrument.model.words import CLASSES
from presilicon.records import ReadingFigure


def build(hardware: Hardware) -> AggregationCode:
    """Sum, zeros, elements, and the extremes if the chip has max and min."""
    fw = Firmware()
    fw.class_row(0, ["zero"])
    fw.class_row(1, [CLASSES if hardware.is_float else ("zero", "normal")])
    with fw.chain():
        accumulate(fw, 0)
    for row in (0, 1):
        with fw.chain():
            fw.filter(row)
            fw.reduce("N")
            accumulate(fw, row + 1)
    extremes = [name for name in ("min", "max") if name in hardware.alu and name in hardware.reduce]
    for name in extremes:
        row = 3 if name == "min" else 4
        with fw.chain():
            (fw.min if name == "min" else fw.max)(row, FRESH)
            fw.cache(row)
            fw.reduce_to(name)
            fw.commit(1, END)

    def decode(values: Values, contents: FrameContents) -> dict[str, Any]:
        expect_words(values, 3 + len(extremes))
        total, zeros, elements, *extreme_values = map(float, values)
        count = contents.count if contents.count is not None else contents.check_count("elements", elements)
        result: dict[str, Any] = {"sum": contents.check_sum("sum", total)}
        result["zeros"] = contents.check_count("zeros", zeros, contents.padding)
        result["elements"] = None if count is None else float(count)
        for name, value in zip(extremes, extreme_values, strict=True):
            # An extreme of 0 when no element is 0 comes from lanes without nodes, which hide the real one.
            result[name] = None if contents.padding and value == 0 and not result["zeros"] else value
        result["mean"] = result["sum"] / count if count and result["sum"] is not None else None
        return result

    return AggregationCode(fw, decode, counts="elements")


SUMMARY = Aggregation(
    gives="sum, zeros, elements, smallest and largest",
    build=build,
    shares={"sparsity": "zeros"},
    figures=(
        ReadingFigure("mean", "Mean"),
        SHARE_OF_ZEROS,
        ReadingFigure("min", "Smallest"),
        ReadingFigure("max", "Largest"),
    ),
)
