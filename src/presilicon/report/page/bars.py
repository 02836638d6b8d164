"""Bars with intervals and seeds in plain HTML, without a script, so that they also print."""

from html import escape

from presilicon.records import Result
from presilicon.report.intervals import Measure, format_ends, format_interval, longest, rank
from presilicon.report.page.markup import typeset


def render_bars(designs: tuple[Result, ...], measure: Measure) -> str:
    """One bar per design, shortest first: median as bar, interval as line, seeds as dots."""
    colours = {id(result): index for index, result in enumerate(designs)}
    full = longest(designs, measure) * 1.02
    rows = [_row(result, measure, full, colours[id(result)]) for result in rank(designs, measure.interval)]
    title = escape(measure.title)
    return f'<div class="panel"><h3>{title}</h3><ul class="bars" aria-label="{title}">{"".join(rows)}</ul></div>'


def _row(result: Result, measure: Measure, full: float, colour: int) -> str:
    interval = measure.interval(result)
    several = len(result.seeds) > 1
    marks = [_fill(interval.median, full)]
    if several and interval.low is not None:
        left = _percent(interval.low, full)
        right = 100.0 if interval.high is None else _percent(interval.high, full)
        open_end = " open" if interval.high is None else ""
        marks.append(f'<i class="span{open_end}" style="left:{left:.2f}%;width:{right - left:.2f}%"></i>')
    values = [value for value in map(measure.of_seed, result.seeds) if value is not None]
    if several:
        marks += [f'<i class="dot" style="left:{_percent(value, full):.2f}%"></i>' for value in values]
    median = typeset(format_interval(interval, measure.scale_of, ends=False))
    ends = typeset(format_ends(interval, measure.scale_of)) if several else ""
    return (
        f'<li style="--c:var(--c{colour % 10})"><span class="who">{escape(result.name)}</span>'
        f'<span class="track" aria-hidden="true">{"".join(marks)}</span>'
        f'<span class="what">{median} <small>{ends}</small></span></li>'
    )


def _fill(median: float | None, full: float) -> str:
    if median is None:
        return '<i class="fill never" style="width:100%"></i>'
    return f'<i class="fill" style="width:{_percent(median, full):.2f}%"></i>'


def _percent(value: float, full: float) -> float:
    return min(100 * value / full, 100.0)
