"""Values of metrics and intervals whose ends may be infinite, as text; ranking; the measures that reports compare."""

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from presilicon.base import Scale, format_number, format_percent, joules_scale, seconds_scale
from presilicon.records import Interval, Result, SeedResult, ranked

NEVER = "never"
FEW_SEEDS = 3
"""Fewer seeds say too little to distinguish two designs: their extremes hold the true median at most half the time."""


def format_interval(interval: Interval, scale_of: Callable[[float], Scale], *, ends: bool = True) -> str:
    """The median and, with `ends`, the low and high end in the same unit; an infinite one is `never`.

    >>> from presilicon.base import seconds_scale
    >>> format_interval(Interval(0.0087, 0.0081, 0.0097), seconds_scale)
    '8.7 ms [8.1-9.7]'
    >>> format_interval(Interval(None, 0.0081, None), seconds_scale)
    'never [8.1 ms-never]'
    """
    median = NEVER if interval.median is None else scale_of(interval.median).format(interval.median)
    text = format_ends(interval, scale_of) if ends else ""
    return f"{median} {text}".rstrip()


def format_ends(interval: Interval, scale_of: Callable[[float], Scale]) -> str:
    """The low and high end in brackets, in the unit of the median; nothing when both are infinite.

    >>> from presilicon.base import seconds_scale
    >>> format_ends(Interval(0.0087, 0.0081, None), seconds_scale)
    '[8.1-never]'
    """
    if interval.low is None and interval.high is None:
        return ""
    if interval.median is None:
        low, high = (NEVER if end is None else scale_of(end).format(end) for end in (interval.low, interval.high))
    else:
        scale = Scale(scale_of(interval.median).factor, "")
        low, high = (NEVER if end is None else scale.format(end) for end in (interval.low, interval.high))
    return f"[{low}-{high}]"


def rank(
    designs: tuple[Result, ...], measure: Callable[[Result], Interval] = lambda result: result.time_to_accuracy_s
) -> tuple[Result, ...]:
    """The designs with the smallest median first.

    An infinite median comes after all finite ones, then the low end decides, then the metric on the test split, then
    the order in which they were given.
    """
    return tuple(
        sorted(
            designs,
            key=lambda result: (
                _number(measure(result).median),
                _number(measure(result).low),
                ranked(result.value, result.direction) * (-1 if result.direction == "higher" else 1),
            ),
        )
    )


def _number(end: float | None) -> float:
    return inf if end is None else end


class Measure(NamedTuple):
    """A quantity with an interval per design and a value per seed."""

    title: str
    interval: Callable[[Result], Interval]
    of_seed: Callable[[SeedResult], float | None]
    scale_of: Callable[[float], Scale]


TIME = Measure(
    "Time to accuracy", lambda result: result.time_to_accuracy_s, lambda seed: seed.time_to_accuracy_s, seconds_scale
)
ENERGY = Measure(
    "Energy to accuracy",
    lambda result: result.energy_to_accuracy_j,
    lambda seed: seed.energy_to_accuracy_j,
    joules_scale,
)


def longest(designs: Sequence[Result], measure: Measure) -> float:
    """The largest finite number that the bars of a measure show; 1 when there is none."""
    numbers = [end for result in designs for end in (measure.interval(result).median, measure.interval(result).high)]
    numbers += [measure.interval(result).low for result in designs]
    numbers += [measure.of_seed(seed) for result in designs for seed in result.seeds]
    return max((number for number in numbers if number), default=1.0)


def format_metric(value: float | None, result: Result) -> str:
    """A value of the metric that the result was measured by; None is no finite number."""
    if value is None:
        return "not finite"
    return format_percent(value) if result.metric_is_fraction else format_number(value, digits=4)


def format_target(target: float, result: Result) -> str:
    """A target as it was given: unlike measured values it is not rounded, so that different ones read differently.

    >>> from types import SimpleNamespace
    >>> share = SimpleNamespace(metric_is_fraction=True)
    >>> format_target(0.9046, share), format_target(0.97, share), format_target(0.9996, share)
    ('90.46%', '97%', '99.96%')
    """
    return f"{100 * target:.6g}%" if result.metric_is_fraction else f"{target:.6g}"


def metric_of(designs: Sequence[Result]) -> str:
    """The name of the metric of all designs, or `metric` if they differ; `accuracy` without designs."""
    names = {result.metric for result in designs} or {"accuracy"}
    return names.pop() if len(names) == 1 else "metric"


def format_goal(result: Result) -> str:
    """The target of a result with the name of its metric: `97% validation accuracy`, `validation loss 1.5`."""
    target = format_target(result.target, result)
    if result.metric_is_fraction:
        return f"{target} validation {result.metric}"
    return f"validation {result.metric} {target}"
