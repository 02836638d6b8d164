"""The comparison as a figure for a paper or a README: curves, and bars of time and energy to accuracy."""

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from presilicon.base import ConfigError, MissingToolError, Scale, joules_scale, seconds_scale, unknown, write_file
from presilicon.records import Comparison, Result
from presilicon.report.charts.curves import median_curve
from presilicon.report.charts.palette import LIGHT, SOLID
from presilicon.report.intervals import ENERGY, TIME, Measure, format_interval, format_target, longest, metric_of, rank

FIGURE_FORMATS: tuple[str, ...] = ("png", "svg", "pdf")
_INK, _SOFT, _LINE = "#1b1c1e", "#5d6167", "#dcdcd8"
_STYLE = {
    "font.size": 9.5,
    "text.color": _INK,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _SOFT,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "svg.hashsalt": "presilicon",
    "svg.fonttype": "none",
}
_TIMELESS: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


def save_drawing(path: Path, render: Callable[[str], bytes]) -> Path:
    """Write the output of `render` for the format that the file's suffix names, and return the path."""
    return write_file(path, render(path.suffix.lower().removeprefix(".")))


def render_figure(comparison: Comparison, format: str) -> bytes:
    """The figure as a file of that format, one of `FIGURE_FORMATS`. The same comparison gives the same bytes.

    Raises:
        ConfigError: there is no such format, or nothing to draw.
        MissingToolError: matplotlib is not installed.
    """
    _check_format(format)
    if not comparison.designs:
        raise ConfigError("a figure needs at least one design")
    return render_drawing(lambda: _draw(comparison.designs), format)


def render_drawing(draw: Callable[[], Any], format: str) -> bytes:
    """A matplotlib figure from `draw`, in the common style, as the bytes of a file of that format."""
    _check_format(format)
    try:
        import matplotlib
    except ImportError:
        raise MissingToolError("figures need matplotlib: pip install 'presilicon[plot]'") from None
    file = BytesIO()
    with matplotlib.rc_context(_STYLE):
        draw().savefig(file, format=format, dpi=200, metadata=_TIMELESS[format])
    return file.getvalue()


def _check_format(format: str) -> None:
    if format not in FIGURE_FORMATS:
        raise unknown("figure format", format, FIGURE_FORMATS)


def _draw(designs: tuple[Result, ...]) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    bars_height = 0.33 * len(designs) + 0.6
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12, hspace=0.04, wspace=0.02)
    figure = Figure(figsize=(9.2, 3.6 + bars_height + 0.6), layout=layout)
    grid = figure.add_gridspec(2, 2, height_ratios=(3.6, bars_height))
    _draw_curves(figure.add_subplot(grid[0, :]), designs)
    _draw_bars(figure.add_subplot(grid[1, 0]), designs, TIME, names=True)
    _draw_bars(figure.add_subplot(grid[1, 1]), designs, ENERGY, names=False)
    return figure


def _draw_curves(axes: Any, designs: Sequence[Result]) -> None:
    percent = 100 if all(result.metric_is_fraction for result in designs) else 1
    points = [point.time_s for result in designs for seed in result.seeds for point in seed.curve]
    scale = seconds_scale(max(points, default=1.0))
    for index, result in enumerate(designs):
        colour, dashed = LIGHT[index % len(LIGHT)], index % len(LIGHT) >= SOLID
        for seed in result.seeds if len(result.seeds) > 1 else ():
            axes.plot(*_xy(seed.curve, scale, percent), color=colour, linewidth=0.7, alpha=0.3)
        style = (0, (4, 1.6)) if dashed else "solid"
        axes.plot(
            *_xy(median_curve(result), scale, percent), color=colour, linewidth=2, linestyle=style, label=result.name
        )
        if result.time_to_accuracy_s.median is not None:
            arrival = scale.apply(result.time_to_accuracy_s.median)
            axes.plot(
                [arrival], [percent * result.target], "o", markersize=6, color=colour, mfc="white", mew=1.8, zorder=5
            )
    for target, shown in sorted({(result.target, format_target(result.target, result)) for result in designs}):
        axes.axhline(percent * target, color=_INK, linewidth=0.9, linestyle=(0, (5, 4)), alpha=0.6, zorder=1)
        text = f"target\n{shown}"
        axes.annotate(text, (1.008, percent * target), xycoords=("axes fraction", "data"), va="center", fontsize=9)
    axes.set_title(f"Validation {metric_of(designs)} on {designs[0].workload} against simulated time", pad=10)
    axes.set_xlabel(f"simulated time ({_unit(scale)})", loc="right")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}%" if percent == 100 else f"{value:g}")
    axes.set_xlim(left=0)
    if percent == 100 and designs[0].direction == "higher":
        axes.set_ylim(top=100.5)
    axes.grid(axis="y", color=_LINE, linewidth=0.6, alpha=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.legend(
        loc="lower right" if designs[0].direction == "higher" else "upper right",
        frameon=False,
        ncols=1 if len(designs) < 6 else 2,
    )


def _draw_bars(axes: Any, designs: tuple[Result, ...], measure: Measure, *, names: bool) -> None:
    """Bars in the order of time to accuracy, so that both panels share the names of the designs."""
    ranking = rank(designs)
    scale_of = seconds_scale if measure is TIME else joules_scale
    scale = scale_of(longest(designs, measure))
    full = scale.apply(longest(designs, measure))
    for row, result in enumerate(ranking):
        colour = LIGHT[next(index for index, design in enumerate(designs) if design is result) % len(LIGHT)]
        interval = measure.interval(result)
        several = len(result.seeds) > 1
        low, high = (full if end is None else scale.apply(end) for end in (interval.low, interval.high))
        values = [scale.apply(value) for value in map(measure.of_seed, result.seeds) if value is not None]
        if interval.median is None:
            axes.barh(row, full, height=0.5, facecolor="none", edgecolor=colour, alpha=0.4, hatch="////", linewidth=0)
        else:
            axes.barh(row, scale.apply(interval.median), height=0.5, color=colour, alpha=0.62, linewidth=0)
        if several:
            axes.plot([low, high], [row, row], color=_INK, linewidth=1.1)
            axes.plot(values, [row] * len(values), "o", markersize=3.2, color=colour, mfc="white", mew=0.9, zorder=4)
        text = format_interval(interval, measure.scale_of, ends=several).replace(" us", " µs").replace(" uJ", " µJ")
        label_style = {"xytext": (8, 0), "textcoords": "offset points", "va": "center_baseline", "fontsize": 8.5}
        axes.annotate(text, (max([high, *values]), row), **label_style)
    axes.set_title(measure.title, pad=8)
    axes.set_yticks(range(len(ranking)), [result.name for result in ranking] if names else [""] * len(ranking))
    axes.set_ylim(len(ranking) - 0.4, -0.5)
    axes.set_xlim(0, full * 1.7)
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= full])
    axes.set_xlabel(f"{'simulated time' if measure is TIME else 'simulated energy'} ({_unit(scale)})", loc="right")
    axes.tick_params(length=0)
    axes.spines["left"].set_visible(False)


def _xy(curve: Sequence[Any], scale: Scale, percent: int) -> tuple[list[float], list[float]]:
    points = [point for point in curve if point.value is not None]
    return [scale.apply(point.time_s) for point in points], [percent * point.value for point in points]


def _unit(scale: Scale) -> str:
    return scale.unit.replace("u", "µ")
