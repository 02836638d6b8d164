"""A decoded frame: its figures, a histogram, a number per node."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from presilicon.instrument.aggregations import BuiltAggregation
from presilicon.instrument.aggregations.histograms import MovingAverage
from presilicon.instrument.host.taps import Wire
from presilicon.records import Histogram


class Shape(NamedTuple):
    """Shape of the tensor behind a frame."""

    elements: int
    """Elements that were offered (of one of the two tensors, in pairs)."""
    nodes: int
    """Last dimension."""
    share: float = 1.0
    """Share of the tensor's elements that was offered."""


class Reading(NamedTuple):
    """One frame, decoded."""

    wire: Wire
    frame: int
    aggregation: str
    values: dict[str, float | None]
    histogram: dict[str, list[float]] | None
    """`edges` and `counts`."""
    lanes: list[float] | None
    """A number per node."""
    notes: tuple[str, ...] = ()
    """Which figures are None because the chip's words could not hold them."""

    def fields(self) -> dict[str, Any]:
        """Fields of an `InstrumentReading` event, without those that are empty."""
        fields: dict[str, Any] = {"tap": self.wire.name, "layer": self.wire.layer, "role": self.wire.role}
        fields |= {"aggregation": self.aggregation, "values": self.values}
        fields |= {} if self.histogram is None else {"histogram": Histogram(**self.histogram)}
        fields |= {} if self.lanes is None else {"lanes": self.lanes}
        return fields | ({"notes": list(self.notes)} if self.notes else {})


def read_frame(
    wire: Wire,
    frame: int,
    built: BuiltAggregation,
    result: Mapping[str, Any],
    shape: Shape | None,
    average: MovingAverage | None,
) -> Reading:
    """A reading from an aggregation's results; a running average takes in its new number."""
    record = built.record
    values: dict[str, float | None] = {
        name: value for name, value in result.items() if value is None or isinstance(value, float | int)
    }
    histogram = lanes = None
    if result.get("counts") is not None:
        histogram = {"edges": list(result["boundaries"]), "counts": list(result["counts"])}
    by_node = None if record.by_node is None else record.by_node(result)
    if by_node is not None:
        lanes = [float(value) for value in by_node]
    if shape is not None:
        for figure, count in record.shares.items():
            if (counted := values.get(count)) is not None:
                values[figure] = counted / shape.elements
    if record.average is not None and average is not None:
        newest = values.get(record.average.source)
        if newest is not None:
            values[record.average.figure] = average.add(float(newest))
    if shape is not None and shape.share < 1:
        values["share"] = shape.share
    return Reading(wire, frame, built.name, values, histogram, lanes, tuple(result.get("notes", ())))
