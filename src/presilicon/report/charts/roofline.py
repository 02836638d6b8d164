"""Roofline plot of the ops of a step."""

from collections.abc import Sequence
from math import log10, pi, sqrt
from pathlib import Path
from typing import Any, NamedTuple

from presilicon.base import format_count, format_percent, format_seconds
from presilicon.records import Cost, OpCost, Phase
from presilicon.report.charts.figure import render_drawing, save_drawing
from presilicon.report.charts.palette import LIGHT

_INK, _SOFT, _GRID = "#1b1c1e", "#5d6167", "#ececea"
_PHASES = {"forward": LIGHT[0], "input_grad": LIGHT[1], "weight_grad": LIGHT[2], "update": LIGHT[3]}
_MARKERS = ("o", "s", "D", "^", "v", "P")
"""Marker shapes, one per unit in alphabetical order."""
_WHOLE, _SMALLEST = 4500.0, 10.0
"""Area, in square points, of a dot that takes the whole step, and of the smallest dot."""
_TOGETHER = 0.06
"""Distance, in decades, within which ops share a dot."""
_NAMED, _WORTH, _WIDE, _HIGH = 7, 0.005, 0.36, 0.045
"""Number of labelled dots, their smallest share, and the width and height of a label as fractions of the figure."""


def save_roofline_plot(cost: Cost, path: Path, *, title: str) -> Path:
    """Draw each op by its FLOPs per byte of DRAM traffic and the FLOP/s that it reaches, under its machine's roofs.

    The area of a dot is its time, its colour the phase, its shape the unit; ops at the same place share a dot. The
    file's suffix is the format (`.png`, `.svg` or `.pdf`). Ops that do no arithmetic, or move nothing, are not shown;
    the caption gives their share.

    Raises:
        ConfigError: the suffix is not one of these, or the file cannot be written.
        MissingToolError: matplotlib is not installed.
    """
    return save_drawing(path, lambda format: render_drawing(lambda: _draw(cost, title), format))


def roofs(ops: Sequence[OpCost]) -> tuple[dict[str, float], float]:
    """Peak FLOP/s of each unit, busiest unit first, and DRAM bytes per second, derived from the roofs of the ops.

    A unit is left out if no op comes near its limit, because the limit is then unknown.
    """
    moving = [op for op in ops if op.intensity]
    bandwidth = max((op.roof_flops_s / op.intensity for op in moving), default=0.0)
    by_unit: dict[str, list[OpCost]] = {}
    for op in ops:
        by_unit.setdefault(op.unit, []).append(op)
    busiest = sorted(by_unit, key=lambda unit: -sum(op.time_s for op in by_unit[unit]))
    peaks = {unit: _peak(by_unit[unit], bandwidth) for unit in busiest}
    return {unit: peak for unit, peak in peaks.items() if peak is not None}, bandwidth


def _peak(ops: Sequence[OpCost], bandwidth: float) -> float | None:
    """The roof of ops that are not limited by bandwidth, or the peak that follows from utilization.

    Machines define utilization over the compute time or over the whole time of an op; the right definition gives all
    ops the same peak.
    """
    flat = [op.roof_flops_s for op in ops if op.roof_flops_s < 0.999 * op.intensity * bandwidth]
    if flat:
        return max(flat)
    useful = [op for op in ops if op.utilization and op.compute_s and op.time_s]
    for seconds in ([op.compute_s for op in useful], [op.time_s for op in useful]):
        peaks = [op.flops / time_s / op.utilization for op, time_s in zip(useful, seconds, strict=True)]
        if peaks and max(peaks) < 1.001 * min(peaks):
            return max(peaks)
    return None


def _draw(cost: Cost, title: str) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 5.8), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xscale="log", yscale="log")
    axes.set_title(f"Roofline of one training step: {title}", pad=26)
    axes.set_xlabel("FLOPs per byte of DRAM traffic", loc="right")
    axes.set_ylabel("FLOP/s reached")
    axes.grid(which="major", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.yaxis.set_major_formatter(lambda value, _: format_count(value))
    ops = [op for op in cost.ops if op.intensity > 0 and op.flops_s > 0]
    peaks, bandwidth = roofs(ops)
    if ops and bandwidth:
        units = list(dict.fromkeys([*peaks, *(op.unit for op in ops)]))
        _set_limits(axes, ops, peaks, bandwidth)
        _draw_roofs(axes, peaks, bandwidth)
        dots = _dots(ops, cost.time_s)
        for dot in dots:
            axes.scatter(
                [dot.intensity], [dot.flops_s], s=dot.area, c=_PHASES[dot.phase], marker=_marker(dot.unit, units),
                alpha=0.6, edgecolors="white", linewidths=0.7, zorder=3,
            )  # fmt: skip
        _name_dearest(axes, dots)
        _explain(figure, ops, units)
    _caption(axes, cost, ops)
    return figure


def _set_limits(axes: Any, ops: Sequence[OpCost], peaks: dict[str, float], bandwidth: float) -> None:
    """Set limits that show every op and the ridge, where the slope meets the highest ceiling."""
    top = max([*peaks.values(), *(op.roof_flops_s for op in ops)])
    ridge = top / bandwidth
    left, right = min(op.intensity for op in ops), max(op.intensity for op in ops)
    axes.set_xlim(left / 3, max(right, ridge) * 5)
    lowest = min(min(op.flops_s for op in ops), left * bandwidth)
    axes.set_ylim(max(lowest / 4, top * 1e-7), top * 3)  # ops of a few FLOPs would squeeze the others together


def _draw_roofs(axes: Any, peaks: dict[str, float], bandwidth: float) -> None:
    """Draw the slope of the DRAM bandwidth, and a ceiling per unit."""
    low, high = axes.get_xlim()
    ceiling = max(peaks.values(), default=high * bandwidth)
    ridge = ceiling / bandwidth
    axes.plot([low, ridge], [low * bandwidth, ceiling], color=_INK, linewidth=1.5, zorder=2)
    position = (low * (ridge / low) ** 0.62, low * (ridge / low) ** 0.62 * bandwidth)
    axes.annotate(
        f"DRAM {format_count(bandwidth)}B/s", position, xytext=(-5, 6), textcoords="offset points", ha="right",
        va="bottom", fontsize=8.5,
    )  # fmt: skip
    for unit, peak in peaks.items():
        highest = peak == ceiling
        axes.plot(
            [peak / bandwidth, high], [peak, peak], color=_INK, linewidth=1.5 if highest else 1.0,
            linestyle="solid" if highest else (0, (5, 3)), zorder=2,
        )  # fmt: skip
        axes.annotate(
            f"{unit} {format_count(peak)}FLOP/s", (high, peak), xytext=(-4, 4), textcoords="offset points",
            ha="right", fontsize=8.5,
        )  # fmt: skip


def _name_dearest(axes: Any, dots: Sequence["_Dot"]) -> None:
    """Label the dots that take most time, unless another label is in the way."""
    to_axes = axes.transData + axes.transAxes.inverted()
    height = 72 * axes.figure.get_size_inches()[1] * axes.get_position().height
    labelled: list[tuple[float, float]] = []
    for dot in dots:
        x, y = to_axes.transform((dot.intensity, dot.flops_s))
        below = 0.75 * sqrt(dot.area / pi) + 3
        y -= below / height
        if dot.share < _WORTH or any(abs(x - left) < _WIDE and abs(y - low) < _HIGH for left, low in labelled):
            continue
        labelled.append((x, y))
        # Labels must stay inside the figure.
        side = "left" if x < 1 - _WIDE else "center" if x < 1 - _WIDE / 2 else "right"
        aside = {"left": below, "center": 0.0, "right": below}[side]
        more = f" and {dot.number - 1} more" if dot.number > 1 else ""
        axes.annotate(
            f"{dot.name}{more}, {format_percent(dot.share)}", (dot.intensity, dot.flops_s), fontsize=7.5, zorder=2.5,
            xytext=(aside, -below if side != "center" else -1.4 * below), textcoords="offset points", va="top", ha=side,
            bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.75},
        )  # fmt: skip
        if len(labelled) == _NAMED:
            break


def _explain(figure: Any, ops: Sequence[OpCost], units: Sequence[str]) -> None:
    """Draw the legend of colours, shapes and areas."""
    from matplotlib.lines import Line2D

    def dot(label: str, colour: str, marker: str = "o", area: float = 50.0) -> Any:
        return Line2D(
            [], [], linestyle="", marker=marker, color=colour, alpha=0.7, markersize=sqrt(area * 4 / pi) * 0.9,
            markeredgewidth=0, label=label,
        )  # fmt: skip

    seen = {op.phase for op in ops}
    handles = [dot(phase.replace("_", " "), colour) for phase, colour in _PHASES.items() if phase in seen]
    handles += [dot(unit, _SOFT, _marker(unit, units)) for unit in units]
    handles += [dot(f"{share:.0%} of the time", _SOFT, area=_WHOLE * share) for share in (0.01, 0.05)]
    figure.legend(handles=handles, loc="outside right upper", frameon=False, labelspacing=0.7)


def _caption(axes: Any, cost: Cost, ops: Sequence[OpCost]) -> None:
    shown_s = sum(op.time_s for op in ops)
    text = f"{len(ops)} of {len(cost.ops)} ops of a step of {format_seconds(cost.time_s)}"
    if cost.time_s and 1 - shown_s / cost.time_s >= 1e-3:
        share = format_percent(1 - shown_s / cost.time_s)
        text += f"; the others do no arithmetic or no DRAM transfers, and take {share} of the time"
    axes.annotate(
        text, (0, 1), xycoords="axes fraction", xytext=(0, 9), textcoords="offset points", fontsize=8.5, color=_SOFT
    )


class _Dot(NamedTuple):
    """Ops of one phase and unit at (nearly) the same position."""

    intensity: float
    flops_s: float
    share: float
    """Share of the step's time."""
    number: int
    phase: Phase
    unit: str
    name: str
    """Name of the longest op."""

    @property
    def area(self) -> float:
        """Square points on paper."""
        return max(_SMALLEST, _WHOLE * self.share)


def _dots(ops: Sequence[OpCost], whole_s: float) -> list[_Dot]:
    """The dots, largest first, so that small ones are drawn on top."""
    groups: dict[tuple[Phase, str, int, int], list[OpCost]] = {}
    for op in ops:
        cell = round(log10(op.intensity) / _TOGETHER), round(log10(op.flops_s) / _TOGETHER)
        groups.setdefault((op.phase, op.unit, *cell), []).append(op)
    dots = []
    for (phase, unit, _, _), group in groups.items():
        dearest = max(group, key=lambda op: op.time_s)
        share = sum(op.time_s for op in group) / whole_s
        dots.append(_Dot(dearest.intensity, dearest.flops_s, share, len(group), phase, unit, dearest.name))
    return sorted(dots, key=lambda dot: -dot.share)


def _marker(unit: str, units: Sequence[str]) -> str:
    return _MARKERS[sorted(units).index(unit) % len(_MARKERS)]
