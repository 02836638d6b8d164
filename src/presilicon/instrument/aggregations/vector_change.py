"""How much a vector differs from the one before."""

from presilicon.designs import Hardware
from presilicon.instrument.aggregations.aggregation import Aggregation
from presilicon.instrument.aggregations.pairs import clear_row, send_total, zeros
from presilicon.instrument.aggregations.parts import END, AggregationCode, decode_named
from presilicon.instrument.firmware.language import Firmware
from presilicon.records import ReadingFigure


def build(hardware: Hardware) -> AggregationCode:
    """|x(t) - x(t-1)| over a group's samples: the sum, and the largest if the chip has max."""
    before, total, largest = range(3)
    names = ["sum", "max"] if "max" in hardware.alu and "max" in hardware.reduce else ["sum"]
    fw = Firmware()
    for row in (total, largest)[: len(names)]:
        clear_row(fw, row)
    with fw.chain():
        fw.sub(before)
        fw.save()
    with fw.chain():
        fw.cache(before)
    with fw.chain():
        fw.load()
        fw.abs()
        fw.save()
    with fw.chain():  # a group's first vector has no predecessor, and no change
        fw.load()
        fw.add(total)
        fw.cache(total, "notfirst")
    if "max" in names:
        with fw.chain():
            fw.load()
            fw.max(largest)
            fw.cache(largest, "notfirst")
    send_total(fw, total)
    if "max" in names:
        with fw.chain():
            zeros(fw)
            fw.max(largest)
            fw.reduce_to("max")
            fw.commit(1, END)
    return AggregationCode(fw, decode_named(names))


VECTOR_CHANGE = Aggregation(
    gives="how much a vector differs from the one before: sum and largest",
    build=build,
    figures=(ReadingFigure("sum"), ReadingFigure("max", "Largest")),
)
