"""Texts as escaped HTML, values with typographic signs, bars."""

import re
from collections.abc import Iterable
from html import escape

from presilicon.records import Result
from presilicon.report.headline import HeadlinePart
from presilicon.report.intervals import Measure, format_ends, format_interval, longest, rank

_SIGNS = (
    (re.compile(r"\bus\b"), "µs"),
    (re.compile(r"\buJ\b"), "µJ"),
    (re.compile(r"\bum2\b"), "µm²"),
    (re.compile(r"\bmm2\b"), "mm²"),
    (re.compile(r"\[(.+)-(.+)\]"), r"[\1–\2]"),
    (re.compile(r"^-$"), "–"),
)


def typeset(value: str) -> str:
    """A value as escaped HTML with proper micro signs, squares and dashes, which does not break into lines.

    >>> typeset("21.3 us [20.1-22]")
    '21.3\\xa0µs\\xa0[20.1–22]'
    """
    return prose(value).replace(" ", "\N{NO-BREAK SPACE}")


def prose(text: str) -> str:
    """A text with values as escaped HTML with the same signs, which may break into lines."""
    for pattern, sign in _SIGNS:
        text = pattern.sub(sign, text)
    return escape(text)


def sentence(parts: Iterable[HeadlinePart]) -> str:
    """A sentence with its names and values marked up."""
    pieces = []
    for part in parts:
        match part.kind:
            case "name":
                pieces.append(f"<b>{escape(part.text)}</b>")
            case "value":
                pieces.append(f'<span class="value">{typeset(part.text)}</span>')
            case _:
                pieces.append(escape(part.text))
    return "".join(pieces)


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
