"""Readings of a run's instruments as a part of its page: curves, histograms, dropped frames, commands."""

from collections.abc import Iterable
from html import escape

from presilicon.records import Curve, Panel, ReadingFigure
from presilicon.report.charts.lines import render_bars, render_panel
from presilicon.runs import EventReader, StreamView, TapView, starved


def render_instrument(watcher: EventReader | None) -> str:
    """The section of a page; empty if there was no instrument."""
    if watcher is None or not watcher.streams:
        return ""
    blocks = "".join(_stream(view) for view in watcher.streams.values())
    if watcher.unreadable:
        blocks += f"<p>{watcher.unreadable} events of this run are damaged and left out.</p>"
    return (
        '<section aria-labelledby="instrument-title"><h2 id="instrument-title">Instrument readings</h2>'
        f"{blocks}</section>"
    )


def _stream(view: StreamView) -> str:
    frames = sum(tap.frames for tap in view.taps.values())
    dropped = sum(tap.dropped for tap in view.taps.values())
    torn = sum(tap.torn for tap in view.taps.values())
    facts = (
        f"{view.design}, seed {view.seed}: {frames} frames of {len(view.taps)} taps; {dropped} dropped on the chip, "
        f"{view.losses.get('lost_packets', 0)} packets lost on the link, {torn} frames torn."
    )
    hint = starved(view)
    facts += f" {hint}." if hint else ""
    parts = [f"<p>{escape(facts)}</p>", '<div class="lines">', *map(render_panel, panels_of(view))]
    for tap in view.taps.values():
        if tap.histogram is not None:
            title = f"{tap.name}: distribution at step {tap.histogram['step']}"
            bars = render_bars(tap.histogram["edges"], tap.histogram["counts"], title)
            parts.append(f'<figure class="panel"><h3>{escape(title)}</h3>{bars}</figure>')
    parts.append("</div>")
    warnings = [text for tap in view.taps.values() for text in tap.warnings.values()]
    if warnings:
        parts.append(f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in warnings)}</ul>")
    if view.answers:
        rows = "".join(
            f"<li>Step {answer['step']}: {escape(answer['message'])}{'' if answer['ok'] else ' (refused)'}</li>"
            for answer in view.answers
        )
        parts.append(f"<p>Commands while it trained:</p><ul>{rows}</ul>")
    return "".join(parts)


def panels_of(view: StreamView) -> list[Panel]:
    """A panel for each figure and role, with a curve for each tap; figures that share a panel have one for each tap."""
    panels = []
    curves: dict[tuple[ReadingFigure, str], list[Curve]] = {}
    for tap in view.taps.values():
        shared: dict[str, list[Curve]] = {}
        for figure in view.main_figures(tap):
            steps, values = tap.steps[figure.name], tap.curves[figure.name]
            if figure.panel:
                shared.setdefault(figure.panel, []).append(_curve(figure.name, steps, values))
            else:
                curves.setdefault((figure, tap.role), []).append(_curve(_label(tap), steps, values))
        panels += [_panel(f"{tap.name}: {name} of the {tap.role}", group, view) for name, group in shared.items()]
    for (figure, role), group in curves.items():
        panels.append(_panel(f"{figure.title or figure.name} of the {role}", group, view, percent=figure.percent))
    return panels


def _label(tap: TapView) -> str:
    return tap.name if "." in tap.name else f"{tap.name} ({tap.layer})"


def _curve(name: str, steps: Iterable[int], values: Iterable[float | None]) -> Curve:
    return Curve(name=name, x=tuple(map(float, steps)), y=tuple(values))


def _panel(title: str, curves: list[Curve], view: StreamView, *, percent: bool = False) -> Panel:
    marks = tuple((float(answer["step"]), "") for answer in view.answers if answer["ok"])
    return Panel(title=title, curves=tuple(curves), percent=percent, marks=marks)
