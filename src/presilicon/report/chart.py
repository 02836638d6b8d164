"""The data behind the page's chart."""

from collections.abc import Sequence
from typing import Any

from presilicon.base.units import COUNTS, JOULES, SECONDS, Scale
from presilicon.records import CurvePoint, Result
from presilicon.report.curves import median_curve, thin
from presilicon.report.palette import LIGHT, SOLID

_DRAWN_POINTS = 500


def chart_data(designs: Sequence[Result]) -> dict[str, Any]:
    """What the script draws, as plain data. A point is [step, accuracy, seconds, joules]."""
    return {
        "targets": sorted({result.target for result in designs}),
        "axes": [
            {"index": 0, "label": "training steps", "scales": _scales(COUNTS[:1])},
            {"index": 2, "label": "simulated time", "scales": _scales(SECONDS)},
            {"index": 3, "label": "simulated energy", "scales": _scales(JOULES)},
        ],
        "designs": [
            {
                "name": result.name,
                "color": index % len(LIGHT),
                "dashed": index % len(LIGHT) >= SOLID,
                "target": result.target,
                "seeds": [{"seed": seed.seed, "points": _points(seed.curve)} for seed in result.seeds],
                "median": _points(median_curve(result)),
                "arrival": [
                    result.steps_to_accuracy.median,
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


def _points(curve: tuple[CurvePoint, ...]) -> list[list[float]]:
    return [
        [point.step, *(float(f"{value:.5g}") for value in (point.accuracy, point.time_s, point.energy_j))]
        for point in thin(curve, _DRAWN_POINTS)
    ]
