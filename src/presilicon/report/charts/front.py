"""The points of a study as a picture: time, energy, area and accuracy, with the Pareto front marked."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from presilicon.base import Condition, parse_condition
from presilicon.records import POINT_METRICS, PointRecord, SweepResult
from presilicon.report.charts.figure import render_drawing
from presilicon.report.charts.palette import LIGHT
from presilicon.report.sweep import measure_name, metric_scale

_GRID, _REST, _REFUSED = "#ececea", "#9a9ea3", "#c9b7b0"


def render_front(result: SweepResult, file_format: str) -> bytes:
    """Two panels: energy over time, coloured by area, and area over time, coloured by accuracy or power.

    Raises:
        MissingToolError: matplotlib is not installed.
    """
    return render_drawing(lambda: _draw(result), file_format)


def _draw(result: SweepResult) -> Any:
    from matplotlib.figure import Figure

    names = result.metric_names
    trained = "time_s" in names and result.recommendation is None
    times = [name for name in (*result.objectives, *names) if name.startswith("time_")]
    time = "time_s" if trained else [*times, "time_per_step_s"][0]
    energy = time.replace("time", "energy").removesuffix("_s") + "_j"
    panels = [(time, energy, "area_mm2"), (time, "area_mm2", "accuracy" if trained else "power_w")]
    figure = Figure(figsize=(11.0, 4.8), layout="constrained")
    drawn = len(_drawable(result, time, energy))
    left_out = len(result.records) - drawn
    omitted = f"; {left_out} not drawn: never there, failed or unknown" if left_out else ""
    figure.suptitle(f"{result.name}: {drawn} points, {len(result.front)} on the Pareto front{omitted}")
    for index, panel in enumerate(panels):
        _draw_panel(figure, figure.add_subplot(1, 2, index + 1), result, panel)
    return figure


def _drawable(result: SweepResult, *names: str) -> list[PointRecord]:
    """The points that have a place on axes of these metrics."""
    return [r for r in result.records if all(isfinite(r.metric(name)) and r.metric(name) > 0 for name in names)]


def _draw_panel(figure: Any, axes: Any, result: SweepResult, panel: tuple[str, str, str]) -> None:
    x, y, colour = panel
    drawn = _drawable(result, x, y)
    fraction = all(measure.is_fraction for measure in result.measures.values())
    scales = {name: metric_scale(name, drawn, is_fraction=fraction) for name in panel}
    if "accuracy" in scales:
        scales["accuracy"] = (measure_name(result), scales["accuracy"][1])

    def values(name: str, records: Sequence[PointRecord]) -> list[float]:
        return [scales[name][1].apply(record.metric(name)) for record in records]

    front = [record for record in drawn if record.key in result.front]
    refused = [record for record in drawn if record.key not in result.feasible]
    rest = [record for record in drawn if record.key in result.feasible - result.front]
    axes.scatter(values(x, refused), values(y, refused), s=12, marker="x", color=_REFUSED, label="breaks a limit")
    axes.scatter(values(x, rest), values(y, rest), s=12, color=_REST, label="beaten by another")
    dots = axes.scatter(
        values(x, front), values(y, front), s=44, c=values(colour, front), cmap="viridis", edgecolors="#1b1c1e",
        linewidths=0.8, label="on the front", zorder=3,
    )  # fmt: skip
    if result.recommendation is not None:
        chosen = [record for record in drawn if record.number == result.recommendation.number]
        axes.scatter(
            values(x, chosen), values(y, chosen), s=190, marker="*", color=LIGHT[1], edgecolors="#1b1c1e",
            linewidths=0.8, label="recommended", zorder=4,
        )  # fmt: skip
    if front:
        figure.colorbar(dots, ax=axes, label=_label(*scales[colour]))
    for name, line in ((x, axes.axvline), (y, axes.axhline)):
        for limit in _limits(result, name):
            line(scales[name][1].apply(limit.limit), color=LIGHT[1], linestyle="--", linewidth=1.2, label=str(limit))
    for name, set_scale, set_label in ((x, axes.set_xscale, axes.set_xlabel), (y, axes.set_yscale, axes.set_ylabel)):
        numbers = values(name, drawn)
        if numbers and max(numbers) > 20 * min(numbers):
            set_scale("log")
        set_label(_label(*scales[name]))
    axes.grid(which="major", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    handles, labels = axes.get_legend_handles_labels()
    counts = {"breaks a limit": refused, "beaten by another": rest, "on the front": front}
    kept = [(handle, label) for handle, label in zip(handles, labels, strict=True) if counts.get(label, True)]
    axes.legend(*zip(*kept, strict=True), loc="best", fontsize=8) if kept else None


def _limits(result: SweepResult, name: str) -> list[Condition]:
    return [limit for text in result.limits if (limit := parse_condition(text, POINT_METRICS, "limit")).name == name]


def _label(title: str, scale: Any) -> str:
    return f"{title} ({scale.unit})" if scale.unit else title
