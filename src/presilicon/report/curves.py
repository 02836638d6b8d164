"""What the middle seed of a design did: the curve that stands for the others."""

from bisect import bisect_right
from statistics import median

from presilicon.records import CurvePoint, Result, SeedResult


def median_curve(result: Result) -> tuple[CurvePoint, ...]:
    """The median over seeds of accuracy, and of time and energy spent, after each step at which any seed was evaluated.

    A seed that has stopped counts with its last accuracy, and the curve ends where fewer than half of the seeds are
    still training: beyond it the slow ones alone would speak. The first point is where every seed has been evaluated.
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
                accuracy=median(_last_point(seed, step).accuracy for seed in seeds),
                time_s=median(point.time_s for point in points),
                energy_j=median(point.energy_j for point in points),
            )
        )
    return tuple(curve)


def _last_point(seed: SeedResult, step: int) -> CurvePoint:
    """The latest evaluation of a seed at or before a step."""
    return seed.curve[bisect_right(seed.curve, step, key=lambda point: point.step) - 1]


def thin(curve: tuple[CurvePoint, ...], limit: int) -> tuple[CurvePoint, ...]:
    """At most about `limit` points of a curve, evenly taken, the first and the last among them.

    >>> points = tuple(CurvePoint(step=s, accuracy=0, time_s=0, energy_j=0) for s in range(100))
    >>> [point.step for point in thin(points, 4)]
    [0, 33, 66, 99]
    """
    if len(curve) <= limit:
        return curve
    return tuple(curve[round(index * (len(curve) - 1) / (limit - 1))] for index in range(limit))
