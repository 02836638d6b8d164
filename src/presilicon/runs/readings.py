"""Readings of a run's instruments, gathered from its events: while it runs, or later.

An event that does not have the fields of its kind is left out and counted: a damaged log never stops a view.
"""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from presilicon.base import DOCUMENT_SCHEMA
from presilicon.records import (
    EvaluationEvent,
    InstrumentAggregation,
    InstrumentAnswer,
    InstrumentEnded,
    InstrumentEvent,
    InstrumentLosses,
    InstrumentReading,
    InstrumentStarted,
    InstrumentWarning,
    ReadingFigure,
)
from presilicon.runs.events import parse_event
from presilicon.runs.run import EVENTS_FILE


class TapView(Struct):
    """One tap: its curves and its last histogram."""

    name: str
    layer: str
    role: str
    aggregation: str = ""
    steps: dict[str, list[int]] = field(default_factory=dict)
    curves: dict[str, list[float | None]] = field(default_factory=dict)
    """Values of each figure, one for each step in `steps`; None where it was no finite number."""
    histogram: dict[str, Any] | None = None
    """`edges` and `counts`, at `step`."""
    lanes: list[float | None] | None = None
    """A number per node, at the last step."""
    notes: list[str] = field(default_factory=list)
    """Reasons why the last look lacks figures."""
    warnings: dict[str, str] = field(default_factory=dict)
    """Warnings before the first look, by aggregation."""
    seen: list[str] = field(default_factory=list)
    """The aggregations that it was programmed to, in order."""
    frames: int = 0
    dropped: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """Number of dropped frames by reason, where it is known: see `REASONS`."""
    missing: int = 0
    torn: int = 0


class StreamView(Struct):
    """One training that is watched."""

    stream: str
    design: str
    seed: int
    taps: dict[str, TapView]
    address: str | None = None
    step: int = 0
    evaluations: list[tuple[int, float | None]] = field(default_factory=list)
    """Step and value of the workload's metric, each time it was measured on the validation split."""
    answers: list[dict[str, Any]] = field(default_factory=list)
    losses: dict[str, Any] = field(default_factory=dict)
    """The decoder's account."""
    ended: bool = False
    broken_off: bool = False
    """Whether it never ended, but its training began again."""
    figures: dict[str, tuple[ReadingFigure, ...]] = field(default_factory=dict)
    """Figures worth a curve, by aggregation; logs of earlier versions have none."""

    def main_figures(self, tap: TapView) -> list[ReadingFigure]:
        """Figures of a tap that are worth a curve and have one, of every aggregation that it had.

        If the log does not say which figures of an aggregation these are, all of the tap's.
        """
        if all(name in self.figures for name in tap.seen):
            figures = {figure.name: figure for name in reversed(tap.seen) for figure in self.figures[name]}
            names = dict.fromkeys(figure.name for name in tap.seen for figure in self.figures[name])
            return [figures[name] for name in names if name in tap.curves]
        known = {figure.name: figure for figures in self.figures.values() for figure in figures}
        return [known.get(name, ReadingFigure(name)) for name in tap.curves]

    def is_current(self, tap: TapView, figure: ReadingFigure) -> bool:
        """Whether a figure belongs to the aggregation that the tap has now."""
        figures = self.figures.get(tap.aggregation)
        if figures is not None:
            return figure.name in {current.name for current in figures}
        return tap.steps[figure.name][-1] == max(steps[-1] for steps in tap.steps.values())


REASONS = {
    "busy": "an instrument looks at one frame at a time: give the taps another every, or fewer vectors",
    "input": "vectors come faster than the instrument takes them: fewer vectors, a shorter firmware or a larger buffer",
    "output": "the link is behind: look less often, or at less",
    "size": "a frame's results are larger than the output buffer: fewer vectors, an aggregation that sends less, or a "
    "larger output_bytes",
    "": "another frame was under way, or a buffer was full: look less often, or at less",
}
"""Why an instrument drops frames and what to do, by reason; the empty one if a board does not say."""


def starved(view: StreamView) -> str:
    """A sentence about taps whose every look was dropped, with the main reason; empty if there are none."""
    names: dict[str, list[str]] = {}
    for tap in view.taps.values():
        if tap.dropped and not tap.frames:
            reason = max(tap.reasons, key=lambda reason: tap.reasons[reason], default="")
            names.setdefault(reason if reason in REASONS else "", []).append(tap.name)
    return "; ".join(
        f"{', '.join(taps)}: dropped whenever it was their turn, for {REASONS[reason]}"
        for reason, taps in names.items()
    )


class EventReader:
    """Reads the events of a run as they are written."""

    def __init__(self, events: Path) -> None:
        self._path = events
        self._position = 0
        self._rest = b""
        self.streams: dict[str, StreamView] = {}
        self.unreadable = 0
        """Events that were left out because their fields are not those of their kind."""

    def update(self) -> bool:
        """Read the events since the last call; returns whether there were any bytes."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except OSError:
            return False
        self._position += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)
        return bool(data)

    def _take(self, line: bytes) -> None:
        event = parse_event(line)
        if event is None:
            self.unreadable += _is_damaged(line)
        elif isinstance(event, InstrumentStarted):
            self._start(event)
        elif isinstance(event, EvaluationEvent):
            for view in self.streams.values():
                if (view.design, view.seed) == (event.design, event.seed) and not view.ended:
                    view.evaluations.append((event.step, event.value))
        elif isinstance(event, InstrumentEvent) and event.stream in self.streams:
            _update_stream(self.streams[event.stream], event)

    def _start(self, event: InstrumentStarted) -> None:
        for view in self.streams.values():
            if (view.design, view.seed) == (event.design, event.seed) and not view.ended:
                view.ended = view.broken_off = True
        taps = {tap.name: TapView(tap.name, tap.layer, tap.role) for tap in event.taps}
        address = event.address or None
        self.streams[event.stream] = StreamView(event.stream, event.design, event.seed, taps, address)


def _is_damaged(line: bytes) -> bool:
    """Whether a line is a JSON object that names an event, so that its fields must be wrong."""
    try:
        return isinstance(msgspec.json.decode(line, type=dict[str, Any]).get("event"), str)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False


def _update_stream(view: StreamView, event: InstrumentEvent) -> None:
    match event:
        case InstrumentReading():
            _add_reading(view, event)
        case InstrumentAggregation():
            view.figures[event.aggregation] = event.figures
        case InstrumentLosses():
            plain = msgspec.to_builtins(event)
            view.losses = {name: value for name, value in plain.items() if name not in ("event", "time", "taps")}
            for name, losses in event.taps.items():
                if (tap := view.taps.get(name)) is not None:
                    tap.dropped, tap.missing, tap.torn = losses.dropped, losses.missing, losses.torn
                    tap.reasons = losses.reasons or {}
        case InstrumentWarning():
            if event.tap in view.taps:
                view.taps[event.tap].warnings[event.aggregation] = describe_warning(event)
        case InstrumentAnswer():
            view.answers.append(msgspec.to_builtins(event))
        case InstrumentEnded():
            view.ended = True


def _add_reading(view: StreamView, event: InstrumentReading) -> None:
    tap = view.taps.get(event.tap)
    if tap is None:
        return
    view.step = max(view.step, event.step)
    if tap.aggregation != event.aggregation:
        tap.histogram = tap.lanes = None
        tap.seen.append(event.aggregation)
    tap.aggregation = event.aggregation
    tap.frames += 1
    tap.notes = event.notes or []
    for name, value in event.values.items():
        tap.steps.setdefault(name, []).append(event.step)
        tap.curves.setdefault(name, []).append(value)
    if event.histogram is not msgspec.UNSET:
        tap.histogram = msgspec.to_builtins(event.histogram) | {"step": event.step}
    if event.lanes is not msgspec.UNSET:
        tap.lanes = event.lanes


def describe_warning(event: InstrumentWarning) -> str:
    """A warning in one line."""
    return f'tap "{event.tap}", {event.aggregation}: {event.message}'


def watch_run(path: Path) -> EventReader:
    """Everything that the instruments of the run in a directory have shown so far."""
    watcher = EventReader(path / EVENTS_FILE)
    watcher.update()
    return watcher


def to_plain(watcher: EventReader) -> dict[str, Any]:
    """A snapshot as plain data, ready for JSON."""
    return {"schema": DOCUMENT_SCHEMA, "streams": [msgspec.to_builtins(view) for view in watcher.streams.values()]}
