"""How much a vector differs from the one before."""

from presilicon.designs import Hardware
from presilicon.instrument.aggregations.aggregation import Aggregation
from presilicon.instrument.aggregations.parts import END, FRESH, AggregationCode, accumulate, decode_named
from presilicon.instrument.firmware.language import Firmware
from presilicon.records import ReadingFigure


def build(hardware: Hardware) -> AggregationCode:
    """|x(t) - x(t-1)| over a group's samples: the sum, and the largest if the chip has max."""
    fw = Firmware()
    with fw.chain():  # a group's first vector has no predecessor: its change is 0
        fw.cache(0, "first")
    with fw.chain():
        fw.sub(0)
        fw.save()
    with fw.chain():
        fw.cache(0)
    with fw.chain():
        fw.load()
        fw.abs()
        fw.save()
    with fw.chain():
        fw.load()
        accumulate(fw, 1)
    names = ["sum"]
    if "max" in hardware.alu and "max" in hardware.reduce:
        names.append("max")
        with fw.chain():
            fw.load()
            fw.max(2, FRESH)
            fw.cache(2)
            fw.reduce_to("max")
            fw.commit(1, END)
    return AggregationCode(fw, decode_named(names))


VECTOR_CHANGE = Aggregation(
    gives="how much a vector differs from the one before: sum and largest",
    build=build,
    figures=(ReadingFigure("sum"), ReadingFigure("max", "Largest")),
)
