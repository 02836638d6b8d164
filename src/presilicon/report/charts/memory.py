"""Memory of a training step over time, as text and as a figure."""

from pathlib import Path
from typing import Any

from presilicon.base import bytes_scale, format_bytes, format_seconds, seconds_scale
from presilicon.records import MEMORY_PARTS, MemoryPart, MemoryPoint, MemoryTimeline
from presilicon.report.charts.figure import render_drawing, save_drawing
from presilicon.report.charts.palette import LIGHT

_COLOURS: dict[MemoryPart, str] = {
    "weights": LIGHT[0],
    "rounded_weights": LIGHT[5],
    "gradients": LIGHT[3],
    "state": LIGHT[4],
    "activations": LIGHT[2],
    "transients": LIGHT[1],
}


def render_memory(timeline: MemoryTimeline) -> str:
    """The peak, its parts, and the longest lifetime in each part, as plain text."""
    if not timeline.points:
        return "no memory is used: the step has no ops\n"
    peak = timeline.peak
    lines = [f"peak memory  {format_bytes(peak.total_bytes)} while {peak.name} runs, at {format_seconds(peak.start_s)}"]
    for part, size in peak.parts().items():
        longest = timeline.longest(part)
        lifetime = "" if longest is None else f"  kept up to {format_seconds(longest.time_s)}"
        if size or longest is not None:
            lines.append(f"  {_words(part).ljust(16)}{format_bytes(size).rjust(9)}{lifetime}")
    return "\n".join(lines) + "\n"


def save_memory_plot(timeline: MemoryTimeline, path: Path, *, title: str) -> Path:
    """Draw the timeline to a file whose suffix is the format (`.png`, `.svg` or `.pdf`), and return its path.

    Raises:
        ConfigError: the suffix is not one of these, or the file cannot be written.
        MissingToolError: matplotlib is not installed.
    """
    return save_drawing(path, lambda format: render_drawing(lambda: _draw(timeline, title), format))


def _draw(timeline: MemoryTimeline, title: str) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    end_s = max((point.end_s for point in timeline.points), default=1.0)
    time, size = seconds_scale(end_s), bytes_scale(timeline.peak_bytes or 1.0)
    starts = [point.start_s for point in timeline.points]
    ends = [min(point.end_s, after) for point, after in zip(timeline.points, [*starts[1:], end_s], strict=False)]
    times = [time.apply(time_s) for span in zip(starts, ends, strict=True) for time_s in span]
    parts = [part for part in MEMORY_PARTS if any(point.parts()[part] for point in timeline.points)]
    rows = [[size.apply(value) for value in _twice(timeline.points, part)] for part in parts]
    if parts:
        colours = [_COLOURS[part] for part in parts]
        axes.stackplot(times, rows, colors=colours, labels=[_words(part) for part in parts], alpha=0.8, linewidth=0)
        _mark_peak(axes, timeline.peak, time.apply(timeline.peak.start_s), size.apply(timeline.peak_bytes), times[-1])
        handles, labels = axes.get_legend_handles_labels()
        # In the order in which they are stacked.
        figure.legend(handles[::-1], labels[::-1], loc="outside right upper", frameon=False)
        axes.set_ylim(0, size.apply(timeline.peak_bytes) * 1.18)
    _mark_backward(axes, timeline, time.apply)
    axes.set_title(f"Memory of one training step: {title}", pad=10)
    axes.set_xlabel(f"simulated time ({time.unit.replace('u', 'µ')})", loc="right")
    axes.set_ylabel(f"held ({size.unit})")
    axes.set_xlim(0, time.apply(end_s))
    axes.tick_params(length=0)
    return figure


def _mark_peak(axes: Any, peak: MemoryPoint, x: float, y: float, end: float) -> None:
    axes.plot([x], [y], "o", markersize=6, color="black", mfc="white", mew=1.5, zorder=5)
    left = x < end / 2
    axes.annotate(
        f"{format_bytes(peak.total_bytes)} at {peak.name}",
        (x, y),
        xytext=(8 if left else -8, 7),
        textcoords="offset points",
        ha="left" if left else "right",
        fontsize=8.5,
    )


def _mark_backward(axes: Any, timeline: MemoryTimeline, scale: Any) -> None:
    """Draw a line where the backward pass begins, and one where it has ended and updates are left."""
    backward = [point for point in timeline.points if point.phase in ("input_grad", "weight_grad")]
    last = timeline.points.index(backward[-1]) if backward else -1
    updates = [point for point in timeline.points[last + 1 :] if point.phase == "update"]
    for word, points in (("backward", backward), ("update", updates)):
        if points:
            start = points[0].start_s
            axes.axvline(scale(start), color="black", linewidth=0.8, linestyle=(0, (4, 3)), alpha=0.5)
            position = (scale(start), 0.02)
            axes.annotate(
                word, position, xycoords=("data", "axes fraction"), xytext=(-3, 0), textcoords="offset points",
                rotation=90, ha="right", va="bottom", fontsize=8.5,
            )  # fmt: skip


def _twice(points: tuple[MemoryPoint, ...], part: MemoryPart) -> list[float]:
    return [value for point in points for value in [point.parts()[part]] * 2]


def _words(part: str) -> str:
    return part.replace("_", " ")
