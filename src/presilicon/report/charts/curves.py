"""The median curve over seeds, and the data that the page's script draws."""

from bisect import bisect_right
from collections.abc import Sequence
from statistics import median
from typing import Any

from presilicon.base import COUNTS, JOULES, SECONDS, Scale
from presilicon.records import CurvePoint, Result, SeedResult, metric_median
from presilicon.report.charts.palette import LIGHT, SOLID
from presilicon.report.intervals import metric_of

_DRAWN_POINTS = 500


def median_curve(result: Result) -> tuple[CurvePoint, ...]:
    """Median over seeds of accuracy, time and energy, at each step at which any seed was evaluated.

    A seed that has stopped counts with its last accuracy. The curve ends where fewer than half of the seeds are still
    training, because beyond it only slow seeds would count. It starts where every seed has been evaluated.
    """
    seeds = [seed for seed in result.seeds if seed.curve]
    if not seeds:
        return ()
    first = max(seed.curve[0].step for seed in seeds)
    steps = sorted({point.step for seed in seeds for point in seed.curve if point.step >= first})
    curve: list[CurvePoint] = []
    for step in steps:
        training = [seed for seed in seeds if seed.curve[-1].step >= step]
        if 2 * len(training) < len(seeds):
            break
        points = [_last_point(seed, step) for seed in training]
        curve.append(
            CurvePoint(
                step=step,
                samples=points[0].samples,
                value=metric_median([_last_point(seed, step).value for seed in seeds], result.direction),
                time_s=median(point.time_s for point in points),
                energy_j=median(point.energy_j for point in points),
            )
        )
    return tuple(curve)


def _last_point(seed: SeedResult, step: int) -> CurvePoint:
    """The latest evaluation of a seed at or before a step."""
    return seed.curve[bisect_right(seed.curve, step, key=lambda point: point.step) - 1]


def thin(curve: tuple[CurvePoint, ...], limit: int) -> tuple[CurvePoint, ...]:
    """At most about `limit` evenly spaced points of a curve, including the first and the last.

    >>> points = tuple(CurvePoint(step=s, value=0, time_s=0, energy_j=0) for s in range(100))
    >>> [point.step for point in thin(points, 4)]
    [0, 33, 66, 99]
    """
    if len(curve) <= limit:
        return curve
    return tuple(curve[round(index * (len(curve) - 1) / (limit - 1))] for index in range(limit))


def chart_data(designs: Sequence[Result]) -> dict[str, Any]:
    """Plain data for the page's script. A point is [samples (steps in old records), metric, seconds, joules]."""
    counted = all(point.samples is not None for result in designs for seed in result.seeds for point in seed.curve)
    return {
        "counted": counted,
        "metric": metric_of(designs),
        "fraction": all(result.metric_is_fraction for result in designs),
        "rising": all(result.direction == "higher" for result in designs),
        "targets": sorted({result.target for result in designs}),
        "axes": [
            {"index": 0, "label": f"training {'samples' if counted else 'steps'}", "scales": _scales(COUNTS[:1])},
            {"index": 2, "label": "simulated time", "scales": _scales(SECONDS)},
            {"index": 3, "label": "simulated energy", "scales": _scales(JOULES)},
        ],
        "designs": [
            {
                "name": result.name,
                "color": index % len(LIGHT),
                "dashed": index % len(LIGHT) >= SOLID,
                "target": result.target,
                "seeds": [{"seed": seed.seed, "points": _points(seed.curve, counted)} for seed in result.seeds],
                "median": _points(median_curve(result), counted),
                "arrival": [
                    ((counted and result.samples_to_accuracy) or result.steps_to_accuracy).median,
                    result.target,
                    result.time_to_accuracy_s.median,
                    result.energy_to_accuracy_j.median,
                ],
            }
            for index, result in enumerate(designs)
        ],
    }


def _scales(scales: Sequence[Scale]) -> list[tuple[float, str]]:
    return [(scale.factor, scale.unit.replace("u", "µ")) for scale in scales]


def _points(curve: tuple[CurvePoint, ...], counted: bool) -> list[list[float]]:
    """The finite points of a curve."""
    return [
        [
            (point.samples if counted else point.step) or 0,
            *(float(f"{value:.5g}") for value in (point.value or 0.0, point.time_s, point.energy_j)),
        ]
        for point in thin(curve, _DRAWN_POINTS)
        if point.value is not None
    ]
