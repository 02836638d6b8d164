"""Terminal view of an instrument: a curve and a histogram for each tap, dropped frames, commands."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from presilicon.records import PointMeasure
from presilicon.runs import EventReader, StreamView, TapView, starved

if TYPE_CHECKING:
    from rich.console import RenderableType

_ACCURACY = PointMeasure()
BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """A curve in one line, the newest value at its right end; a blank for a missing number.

    >>> sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8)
    '▁▂▃▄▅▆▇█'
    >>> sparkline([1, None, 1], 8)
    '▄ ▄'
    """
    chosen = _thin(values, width)
    known = [value for value in chosen if value is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    span = high - low
    return "".join(
        " " if value is None else BARS[3] if span == 0 else BARS[round((value - low) / span * (len(BARS) - 1))]
        for value in chosen
    )


def _thin(values: Sequence[float | None], width: int) -> list[float | None]:
    """At most `width` values, each the mean of its neighbours."""
    if len(values) <= width:
        return list(values)
    chosen: list[float | None] = []
    for index in range(width):
        part = values[index * len(values) // width : (index + 1) * len(values) // width]
        known = [value for value in part if value is not None]
        chosen.append(sum(known) / len(known) if known else None)
    return chosen


def bars(counts: Sequence[float], width: int) -> str:
    """A histogram in one line: each bin's share of the highest; an empty bin is blank."""
    grouped = [_sum(counts, index, width) for index in range(min(width, len(counts)))]
    top = max(grouped, default=0)
    return "".join(
        " " if not count or not top else BARS[min(len(BARS) - 1, int(count / top * len(BARS)))] for count in grouped
    )


def _sum(counts: Sequence[float], index: int, width: int) -> float:
    size = min(width, len(counts))
    return sum(counts[index * len(counts) // size : (index + 1) * len(counts) // size])


def render_watch(
    watcher: EventReader, *, name: str, status: str, width: int = 100, measure: PointMeasure = _ACCURACY
) -> "RenderableType":
    """The whole view as a rich renderable; `measure` is the metric of the trainings."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(f"{name}: {status}", style="bold")]
    if not watcher.streams:
        parts.append(Text("no instrument has shown anything yet"))
    for view in watcher.streams.values():
        parts += _stream(view, width, measure, is_running=status == "running")
    return Group(*parts)


def _stream(view: StreamView, width: int, measure: PointMeasure, *, is_running: bool) -> list[Any]:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    is_live = is_running and not view.ended
    state = "live" if is_live else "ended" if view.ended and not view.broken_off else "broken off"
    address = f", stream at {view.address}" if view.address and is_live else ""
    parts: list[Any] = [Text(f"\n{view.design}, seed {view.seed} ({state}), step {view.step}{address}")]
    if view.evaluations:
        values = [value for _, value in view.evaluations]
        shown = "-" if values[-1] is None else f"{values[-1]:.1%}" if measure.is_fraction else f"{values[-1]:.4g}"
        parts.append(Text(f"{measure.name}  {sparkline(values, max(10, width - 30))}  {shown}"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, width=width)
    for title in ("tap", "aggregation", "figure", "now", "course"):
        table.add_column(title, no_wrap=title != "tap", justify="right" if title == "now" else "left")
    room = max(12, width - 64)
    for tap in view.taps.values():
        for row, (figure, now, course) in enumerate(_rows(view, tap, room)):
            heading = (f"{tap.name}", tap.aggregation or "-") if row == 0 else ("", "")
            table.add_row(*heading, figure, now, course)
    parts.append(table)
    parts.append(Text(_lost(view)))
    if hint := starved(view):
        parts.append(Text(hint))
    parts += [Text(text) for tap in view.taps.values() for text in tap.warnings.values()]
    parts += [Text(f"{tap.name}: {note}") for tap in view.taps.values() for note in tap.notes]
    for answer in view.answers[-3:]:
        outcome = "done" if answer["ok"] else "refused"
        parts.append(Text(f"step {answer['step']}: {outcome}: {answer['message']}"))
    return parts


def _rows(view: StreamView, tap: TapView, room: int) -> list[tuple[str, str, str]]:
    rows = []
    for figure in view.main_figures(tap):
        steps, curve = tap.steps[figure.name], tap.curves[figure.name]
        now = "-" if curve[-1] is None else f"{curve[-1]:.4g}"
        rows.append((figure.name, now if view.is_current(tap, figure) else f"till {steps[-1]}", sparkline(curve, room)))
    if tap.histogram is not None:
        edges = tap.histogram["edges"]
        ends = f"{_edge(edges, 0)}..{_edge(edges, -1)}"
        rows.append(("histogram", ends, bars(tap.histogram["counts"], room)))
    if tap.lanes is not None:
        rows.append(("lanes", f"{len(tap.lanes)}", bars([abs(value or 0) for value in tap.lanes], room)))
    return rows or [("-", "-", "nothing yet")]


def _edge(edges: Sequence[float | None], index: int) -> str:
    """The first or last finite edge: infinities are null in events."""
    ordered = edges if index == 0 else list(reversed(edges))
    finite = next((edge for edge in ordered if edge is not None), None)
    return "-" if finite is None else f"{finite:.2g}"


def _lost(view: StreamView) -> str:
    dropped = {tap.name: tap.dropped for tap in view.taps.values() if tap.dropped}
    torn = sum(tap.torn for tap in view.taps.values())
    frames = sum(tap.frames for tap in view.taps.values())
    listed = ", ".join(f"{name} {count}" for name, count in dropped.items())
    text = f"{frames} frames; dropped on the chip: {sum(dropped.values())}" + (f" ({listed})" if listed else "")
    account = view.losses
    link = f"; on the link: {account.get('lost_packets', 0)} packets lost, {account.get('bad_packets', 0)} bad"
    return text + link + f", {account.get('skipped_bytes', 0)} bytes skipped, {torn} frames torn"
