"""Every target of a run, with the samples and updates that designs needed to reach it."""

from collections.abc import Callable

from presilicon.base import Scale, count_scale, joules_scale, seconds_scale
from presilicon.records import Comparison, Interval, Milestone, Result
from presilicon.report.intervals import format_interval, format_target, rank

HEADER = ("design", "target", "steps", "samples", "updates", "time", "energy", "reached")


def arrival_rows(comparison: Comparison) -> tuple[tuple[str, ...], ...]:
    """A row per design and target, easier targets first.

    Empty if there are no milestones and every design updates once per step, on equally many samples: then the main
    table says it all.
    """
    results = rank(comparison.designs)
    paces = {pace for pace in map(_pace, results) if pace is not None}
    is_plain = len(paces) < 2 and all(updates == 1.0 for _, updates in paces)
    if is_plain and not any(result.milestones for result in results):
        return ()
    return tuple(
        _row(result, milestone) for result in results for milestone in (*_easiest_first(result), _final(result))
    )


def _pace(result: Result) -> tuple[float, float] | None:
    """Samples and updates per step of the first seed that arrived, rounded; None if none did."""
    for seed in result.seeds:
        if seed.steps_to_accuracy and seed.samples_to_accuracy is not None and seed.updates_to_accuracy is not None:
            steps = seed.steps_to_accuracy
            return round(seed.samples_to_accuracy / steps, 3), round(seed.updates_to_accuracy / steps, 3)
    return None


def _easiest_first(result: Result) -> list[Milestone]:
    return sorted(result.milestones, key=lambda milestone: milestone.target, reverse=result.direction == "lower")


def _final(result: Result) -> Milestone:
    """The target itself in the form of a milestone."""
    unknown = Interval(None, None, None)
    return Milestone(
        target=result.target,
        reached=result.reached,
        steps=result.steps_to_accuracy,
        samples=result.samples_to_accuracy or unknown,
        updates=result.updates_to_accuracy or unknown,
        time_s=result.time_to_accuracy_s,
        energy_j=result.energy_to_accuracy_j,
    )


def _row(result: Result, milestone: Milestone) -> tuple[str, ...]:
    several = len(result.seeds) > 1
    columns: tuple[tuple[Interval, Callable[[float], Scale]], ...] = (
        (milestone.steps, count_scale),
        (milestone.samples, count_scale),
        (milestone.updates, count_scale),
        (milestone.time_s, seconds_scale),
        (milestone.energy_j, joules_scale),
    )
    texts = [format_interval(interval, scale_of, ends=several) for interval, scale_of in columns]
    return (result.name, format_target(milestone.target, result), *texts, milestone.reached)
