"""What an instrument has shown so far, gathered from the events of a run: while it goes on, or when it is long over."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from presilicon.runs.run import EVENTS_FILE

READING = "instrument"
LOSSES = "instrument_losses"
STARTED, ENDED, ANSWER = "instrument_started", "instrument_ended", "instrument_answer"
WARNING = "instrument_warning"


MAIN = {
    "summary": ("mean", "sparsity", "min", "max"),
    "sparsity": ("sparsity",),
    "norm_check": ("p15", "p50", "p85"),
    "predictiveness": ("predictiveness",),
    "invalidity": ("total",),
    "gradient_norm": ("norm",),
    "update_ratio": ("ratio",),
    "correlation": ("correlation",),
    "quantization_error": ("signal_to_noise_db",),
    "vector_change": ("sum", "max"),
}
"""The figures of an aggregation that are worth a curve; others show histograms or nodes."""


class TapView(Struct):
    """One tap: its curves and its last histogram."""

    name: str
    layer: str
    role: str
    aggregation: str = ""
    steps: dict[str, list[int]] = field(default_factory=dict)
    curves: dict[str, list[float | None]] = field(default_factory=dict)
    """Of each figure, one value for each step in `steps`; None where it was no finite number."""
    histogram: dict[str, Any] | None = None
    """`edges` and `counts`, at `step`."""
    lanes: list[float] | None = None
    """A figure for each lane, at the last step."""
    notes: list[str] = field(default_factory=list)
    """What the last look says of figures that it could not give."""
    warnings: dict[str, str] = field(default_factory=dict)
    """What was told of an aggregation before its first look."""
    seen: list[str] = field(default_factory=list)
    """The aggregations that it was programmed to, in turn."""
    frames: int = 0
    dropped: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """Why frames were dropped, where that is known: see `REASONS`."""
    missing: int = 0
    torn: int = 0

    def main_curves(self) -> dict[str, tuple[list[int], list[float | None]]]:
        """Steps and values of the figures worth a look, of every aggregation that it had."""
        names = [name for each in self.seen for name in MAIN.get(each, ())]
        return {name: (self.steps[name], self.curves[name]) for name in dict.fromkeys(names) if name in self.curves}

    def is_current(self, figure: str) -> bool:
        """Whether a figure is one of the aggregation that the tap has now."""
        return figure in MAIN.get(self.aggregation, ())


class StreamView(Struct):
    """One training that is watched."""

    stream: str
    design: str
    seed: int
    taps: dict[str, TapView]
    address: str | None = None
    step: int = 0
    accuracy: list[tuple[int, float | None]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    losses: dict[str, Any] = field(default_factory=dict)
    """The decoder's account."""
    ended: bool = False
    broken_off: bool = False
    """Whether it never ended, but its training began again."""


REASONS = {
    "busy": "an instrument looks at one frame at a time: give the taps another every, or fewer vectors",
    "input": "vectors come faster than the instrument takes them: fewer vectors, a shorter firmware or a larger buffer",
    "output": "the link is behind: look less often, or at less",
    "size": "a frame's results are larger than the output buffer: fewer vectors, an aggregation that sends less, or a "
    "larger output_bytes",
    "": "another frame was under way, or a buffer was full: look less often, or at less",
}
"""Why an instrument drops frames, and what to do; the last where it is not known, as of a board."""


def starved(view: StreamView) -> str:
    """A sentence about taps of which every look was dropped, and why most were; empty where there are none."""
    names: dict[str, list[str]] = {}
    for tap in view.taps.values():
        if tap.dropped and not tap.frames:
            most = max(tap.reasons, key=lambda reason: tap.reasons[reason], default="")
            names.setdefault(most if most in REASONS else "", []).append(tap.name)
    return "; ".join(
        f"{', '.join(taps)}: dropped whenever it was their turn, for {REASONS[reason]}"
        for reason, taps in names.items()
    )


class Watcher:
    """Reads the events of a run as they come."""

    def __init__(self, events: Path) -> None:
        self._path = events
        self._place = 0
        self._rest = b""
        self.streams: dict[str, StreamView] = {}

    def update(self) -> bool:
        """Take in what was written since the last call; whether anything was."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._place)
                data = file.read()
        except OSError:
            return False
        self._place += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                event = msgspec.json.decode(line, type=dict[str, Any])
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            self._take(event)
        return bool(data)

    def _take(self, event: dict[str, Any]) -> None:
        kind = event.get("event")
        if kind == STARTED:
            for view in self.streams.values():
                if (view.design, view.seed) == (event["design"], event["seed"]) and not view.ended:
                    view.ended = view.broken_off = True
            taps = {tap["name"]: TapView(tap["name"], tap["layer"], tap["role"]) for tap in event["taps"]}
            self.streams[event["stream"]] = StreamView(
                event["stream"], event["design"], event["seed"], taps, event.get("address")
            )
        elif kind == "evaluation":
            for view in self.streams.values():
                if (view.design, view.seed) == (event.get("design"), event.get("seed")) and not view.ended:
                    view.accuracy.append((event["step"], event.get("accuracy")))
        elif (found := self.streams.get(event.get("stream", ""))) is not None:
            if kind == READING:
                _read(found, event)
            elif kind == LOSSES:
                _account(found, event)
            elif kind == WARNING and event["tap"] in found.taps:
                found.taps[event["tap"]].warnings[event["aggregation"]] = describe_warning(event)
            elif kind == ANSWER:
                found.answers.append(event)
            elif kind == ENDED:
                found.ended = True


def _read(view: StreamView, event: dict[str, Any]) -> None:
    tap = view.taps.get(event["tap"])
    if tap is None:
        return
    view.step = max(view.step, event["step"])
    if tap.aggregation != event["aggregation"]:
        tap.histogram = tap.lanes = None
        tap.seen.append(event["aggregation"])
    tap.aggregation = event["aggregation"]
    tap.frames += 1
    tap.notes = event.get("notes", [])
    for name, value in event.get("values", {}).items():
        tap.steps.setdefault(name, []).append(event["step"])
        tap.curves.setdefault(name, []).append(value)
    if "histogram" in event:
        tap.histogram = event["histogram"] | {"step": event["step"]}
    if "lanes" in event:
        tap.lanes = event["lanes"]


def describe_warning(event: Mapping[str, Any]) -> str:
    """A warning in one line."""
    return f'tap "{event["tap"]}", {event["aggregation"]}: {event["message"]}'


def _account(view: StreamView, event: dict[str, Any]) -> None:
    view.losses = {name: value for name, value in event.items() if name not in ("event", "time", "taps")}
    for name, account in event.get("taps", {}).items():
        tap = view.taps.get(name)
        if tap is not None:
            tap.dropped, tap.missing, tap.torn = account["dropped"], account["missing"], account["torn"]
            tap.reasons = account.get("reasons", {})


def watch_run(path: Path) -> Watcher:
    """Everything that the instruments of the run in a directory have shown so far."""
    watcher = Watcher(path / EVENTS_FILE)
    watcher.update()
    return watcher


def to_plain(watcher: Watcher) -> dict[str, Any]:
    """A snapshot as plain data, ready for JSON."""
    return {"schema": 1, "streams": [msgspec.to_builtins(view) for view in watcher.streams.values()]}
