"""Curves over training steps: as SVG for a page, and as a figure for a paper."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from msgspec.structs import replace

from presilicon.records import Curve, Panel
from presilicon.report.charts.figure import render_drawing
from presilicon.report.charts.palette import LIGHT, SOLID

_WIDTH, _HEIGHT = 620, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 10, 34
_DRAWN = 400


def render_panel(panel: Panel) -> str:
    """A panel as HTML: title, curves as SVG, legend and note."""
    curves = [curve for curve in panel.curves if any(value is not None for value in curve.y)]
    body = _svg(panel, curves) if curves else "<p>Nothing to draw.</p>"
    note = f'<figcaption class="note">{escape(panel.note)}</figcaption>' if panel.note else ""
    return f'<figure class="panel"><h3>{escape(panel.title)}</h3>{body}{_legend(curves)}{note}</figure>'


def _legend(curves: Sequence[Curve]) -> str:
    if len(curves) < 2:
        return ""
    items = "".join(
        f'<span class="swatch"><svg width="22" height="8" aria-hidden="true"><line x1="0" y1="4" x2="22" y2="4" '
        f'stroke="{_colour(index)}" stroke-width="2"{_dash(index)}/></svg> {escape(curve.name)}</span> '
        for index, curve in enumerate(curves)
    )
    return f'<p class="names">{items}</p>'


def _scaled(curve: Curve) -> Curve:
    """The logarithms of a curve's values, with a gap where there is none."""
    return replace(curve, y=tuple(math.log10(value) if value is not None and value > 0 else None for value in curve.y))


def _svg(panel: Panel, curves: Sequence[Curve]) -> str:
    curves = [_scaled(curve) for curve in curves] if panel.log else curves
    points = [
        (x, value)
        for curve in curves
        for x, value in zip(curve.x, curve.y, strict=True)
        if value is not None and math.isfinite(value)
    ]
    if not points:
        return "<p>Nothing to draw.</p>"
    steps = [x for curve in curves for x in curve.x]
    left, right = min(steps), max(steps)
    low, high = (0.0, 1.0) if panel.percent else panel.limits or _ends([value for _, value in points])
    right = right if right > left else left + 1

    def to_page(x: float, value: float) -> tuple[float, float]:
        across = _LEFT + (x - left) / (right - left) * (_WIDTH - _LEFT - _RIGHT)
        return across, _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    parts = []
    for tick in _ticks(low, high):
        _, height = to_page(left, tick)
        text = f"{100 * tick:g}%" if panel.percent else f"{10**tick:.3g}" if panel.log else f"{tick:g}"
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{height:.1f}" y2="{height:.1f}" stroke="currentColor" '
            f'stroke-opacity=".14"/><text x="{_LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{text}</text>'
        )
    for tick in _ticks(left, right):
        across, _ = to_page(tick, low)
        anchor = "end" if across > _WIDTH - _RIGHT - 12 else "middle"  # the edge would cut it off otherwise
        parts.append(f'<text x="{across:.1f}" y="{_HEIGHT - _BOTTOM + 15}" text-anchor="{anchor}">{tick:g}</text>')
    parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 4}" text-anchor="end">{escape(panel.x_label)}</text>')
    if panel.y_label:
        parts.append(f'<text x="{_LEFT + 4}" y="{_TOP + 9}">{escape(panel.y_label)}</text>')
    for at, what in panel.marks:
        if left <= at <= right:
            across, _ = to_page(at, low)
            parts.append(
                f'<line x1="{across:.1f}" x2="{across:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" '
                f'stroke="currentColor" stroke-dasharray="3 3" stroke-opacity=".6"/>'
                f'<text x="{across + 4:.1f}" y="{_HEIGHT - _BOTTOM - 5}">{escape(what)}</text>'
            )
    for index, curve in enumerate(curves):
        path = _path(curve, to_page)
        parts.append(
            f'<path d="{path}" fill="none" stroke="{_colour(index)}" stroke-width="1.6"{_dash(index)}>'
            f"<title>{escape(curve.name)}</title></path>"
        )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(panel.title)}" '
        f'font-size="11" fill="currentColor" style="width:100%;max-width:{_WIDTH}px">{"".join(parts)}</svg>'
    )


def _path(curve: Curve, to_page: Any) -> str:
    """An SVG path with a gap where a value is missing; long curves are thinned by averaging."""
    size = max(1, math.ceil(len(curve.x) / _DRAWN))
    commands, pen = [], "M"
    for start in range(0, len(curve.x), size):
        known = [value for value in curve.y[start : start + size] if value is not None and math.isfinite(value)]
        if not known:
            pen = "M"
            continue
        across, height = to_page(curve.x[start], sum(known) / len(known))
        commands.append(f"{pen}{across:.1f} {height:.1f}")
        pen = "L"
    return "".join(commands)


def _above_zero(values: Sequence[float | None]) -> list[float | None]:
    return [value if value is not None and value > 0 else None for value in values]


def render_bars(edges: Sequence[float | None], counts: Sequence[float], title: str) -> str:
    """A histogram as SVG: bars of equal width, with the bin edges below."""
    top = max(counts, default=0) or 1
    width = (_WIDTH - _LEFT - _RIGHT) / max(len(counts), 1)
    floor = 120 - 20
    bars = "".join(
        f'<rect x="{_LEFT + index * width:.1f}" y="{floor - count / top * 90:.1f}" width="{max(width - 0.6, 0.4):.1f}" '
        f'height="{count / top * 90:.1f}" fill="{_colour(0)}"/>'
        for index, count in enumerate(counts)
    )
    marks = []
    for index in range(0, len(edges), max(1, len(edges) // 6)):
        edge = edges[index]
        if edge is not None:
            marks.append(f'<text x="{_LEFT + index * width:.1f}" y="114" text-anchor="middle">{edge:.3g}</text>')
    return (
        f'<svg viewBox="0 0 {_WIDTH} 120" role="img" aria-label="{escape(title)}" font-size="11" fill="currentColor" '
        f'style="width:100%;max-width:{_WIDTH}px">{bars}{"".join(marks)}</svg>'
    )


def _colour(index: int) -> str:
    return f"var(--c{index % len(LIGHT)})"


def _dash(index: int) -> str:
    return ' stroke-dasharray="5 2"' if index % len(LIGHT) >= SOLID else ""


def _ends(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if low == high:
        return low - 1, high + 1
    margin = 0.04 * (high - low)
    return (0.0 if low == 0 else low - margin), high + margin


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers between two limits.

    >>> _ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 5.5)
    first = math.ceil(low / step - 1e-9)
    return [float(f"{number * step:.10g}") for number in range(first, math.floor(high / step + 1e-9) + 1)]


def render_panels(panels: Sequence[Panel], format: str) -> bytes:
    """The panels below each other in one figure, as the bytes of a file of that format.

    Raises:
        MissingToolError: matplotlib is not installed.
    """
    return render_drawing(lambda: _draw(panels), format)


def _draw(panels: Sequence[Panel]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 2.3 * len(panels) + 0.4), layout="constrained")
    shared = len({panel.x_label for panel in panels}) == 1
    grid = figure.subplots(len(panels), 1, squeeze=False, sharex=shared)
    for axes, panel in zip(grid[:, 0], panels, strict=True):
        for index, curve in enumerate(panel.curves):
            shown = _above_zero(curve.y) if panel.log else curve.y
            values = [math.nan if value is None else (100 * value if panel.percent else value) for value in shown]
            dashed = index % len(LIGHT) >= SOLID
            colour = LIGHT[index % len(LIGHT)]
            style = (0, (4, 1.6)) if dashed else "solid"
            axes.plot(curve.x, values, color=colour, linewidth=1.2, linestyle=style, label=curve.name)
        axes.set_title(panel.title)
        axes.set_ylabel(panel.y_label)
        if panel.percent:
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}%")
            axes.set_ylim(-2, 102)
        if panel.log:
            axes.set_yscale("log")
        if panel.limits is not None:
            axes.set_ylim(*panel.limits)
        for at, what in panel.marks:
            axes.axvline(at, color="#1b1c1e", linewidth=0.9, linestyle=(0, (3, 3)), alpha=0.7)
            axes.annotate(what, (at, 0.03), xycoords=("data", "axes fraction"), xytext=(4, 0), fontsize=8,
                          textcoords="offset points")  # fmt: skip
        if len(panel.curves) > 1:
            columns = 1 if len(panel.curves) < 6 else 2
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8, ncols=columns)
        axes.grid(axis="y", color="#dcdcd8", linewidth=0.6)
        axes.tick_params(length=0)
        if not shared or panel is panels[-1]:
            axes.set_xlabel(panel.x_label, loc="right")
    return figure
