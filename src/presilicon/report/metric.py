"""Values of a workload's metric as text: percentages for fractions, plain numbers otherwise."""

from collections.abc import Sequence

from presilicon.base import format_number, format_percent
from presilicon.records import Result


def format_metric(value: float, result: Result) -> str:
    """A value of the metric that the result was measured by."""
    return format_percent(value) if result.metric_is_fraction else format_number(value, digits=4)


def metric_of(designs: Sequence[Result]) -> str:
    """The name of the metric of all designs, or `metric` if they differ; `accuracy` without designs."""
    names = {result.metric for result in designs} or {"accuracy"}
    return names.pop() if len(names) == 1 else "metric"


def format_goal(result: Result) -> str:
    """The target of a result with the name of its metric: `97% validation accuracy`, `validation loss 1.5`."""
    target = format_metric(result.target, result)
    if result.metric_is_fraction:
        return f"{target} validation {result.metric}"
    return f"validation {result.metric} {target}"
