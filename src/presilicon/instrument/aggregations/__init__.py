"""Aggregations of the instrument, one per module, found through the extension point `AGGREGATIONS`."""

from presilicon.instrument.aggregations.aggregation import (
    AGGREGATIONS,
    Aggregation,
    BuiltAggregation,
    RunningAverage,
    aggregation,
    describe_aggregations,
)

__all__ = ["AGGREGATIONS", "Aggregation", "BuiltAggregation", "RunningAverage", "aggregation", "describe_aggregations"]
