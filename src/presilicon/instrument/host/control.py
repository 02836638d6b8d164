"""Commands to a running training: another aggregation for a tap, other ranges, another learning rate.

Anything with access to the run's directory can give them: the command line, a notebook, a page. A command is a line
appended to `control.jsonl`; the training reads it between two steps and answers with an event that says at which step
it took effect, or why not. A command that is refused changes nothing.
"""

import os
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import msgspec
from msgspec import Struct

from presilicon.base import ConfigError, RunFailedError, unknown
from presilicon.records import Event, InstrumentAnswer, InstrumentEnded, InstrumentStarted
from presilicon.runs import StoredRun, parse_event

CONTROL_FILE = "control.jsonl"
WAIT_S = 60.0

Verb = Literal["program", "ranges", "sample", "learning_rate"]


class Command(Struct, frozen=True, kw_only=True):
    """One command: a line of the file."""

    id: str
    streams: tuple[str, ...]
    """The trainings that it is for, by the stream names in their `instrument_started` events."""
    verb: Verb
    tap: str | None = None
    aggregation: str | None = None
    options: dict[str, Any] = {}
    chains: list[Any] | None = None
    """The user's own firmware: chains of instructions, as in a firmware file."""
    boundaries: list[Any] | None = None
    """Rows of ranges: of the chains from 0 on (`program`), or in the order of the firmware's rows (`ranges`)."""
    every: int | None = None
    value: float | None = None


class Answer(Struct, frozen=True, kw_only=True):
    """Answer of a training to a command."""

    design: str
    seed: int
    ok: bool
    step: int
    """First step at which it is in force."""
    message: str


class Commands:
    """Reads a training's new commands from the file."""

    def __init__(self, path: Path, stream: str) -> None:
        self._path = path
        self._stream = stream
        self._position = 0

    def pending(self, step: int) -> list[Command]:
        """The new commands for this training, whatever its step; lines that are not commands are skipped."""
        try:
            if os.stat(self._path).st_size <= self._position:
                return []
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except OSError:
            return []
        whole = data.rfind(b"\n") + 1
        self._position += whole
        commands = []
        for line in data[:whole].splitlines():
            try:
                command = msgspec.json.decode(line, type=Command)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            if self._stream in command.streams:
                commands.append(command)
        return commands


class Repeated:
    """The commands that a training carried out, again at the same steps: from its answers.

    A training that starts at a later step gets all earlier ones at its first step. A command that was already repeated
    counts once, at its first step. Damaged answers are left out.
    """

    def __init__(self, answers: Iterable[InstrumentAnswer]) -> None:
        done: dict[str, tuple[int, Command]] = {}
        for answer in answers:
            if not answer.ok:
                continue
            try:
                command = msgspec.convert(answer.request, Command)
            except msgspec.ValidationError:
                continue
            done.setdefault(command.id, (answer.step, command))
        self._left = sorted(done.values(), key=lambda step_and_command: step_and_command[0])

    def pending(self, step: int) -> list[Command]:
        """Commands up to a step that were not returned before."""
        commands = [command for at, command in self._left if at <= step]
        del self._left[: len(commands)]
        return commands


class Resumed:
    """The commands of a resumed training: those it had carried out, and new ones."""

    def __init__(self, earlier: Repeated, now: Commands) -> None:
        self._earlier, self._now = earlier, now

    def pending(self, step: int) -> list[Command]:
        """Commands of a step; those carried out before come first."""
        return self._earlier.pending(step) + self._now.pending(step)


def program_tap(
    run: StoredRun,
    tap: str,
    *,
    aggregation: str | None = None,
    options: Mapping[str, Any] | None = None,
    firmware: Sequence[Any] | None = None,
    range_boundaries: Sequence[Any] | None = None,
    design: str | None = None,
    seed: int | None = None,
    wait_s: float = WAIT_S,
) -> list[Answer]:
    """Give a tap, or all taps of that name, another aggregation or your own firmware while training continues.

    `firmware` is a list of chains, as `presilicon instrument compile` reads them, and `range_boundaries` are the rows
    of ranges that its filters use, from 0 on: boundaries, or `{"classes": [...]}`.

    Raises:
        ConfigError: the run is over or has no such tap, or not exactly one of aggregation and firmware was given.
        RunFailedError: no answer came in time.
    """
    if (aggregation is None) == (firmware is None):
        raise ConfigError("give either an aggregation or a firmware, not both or neither")
    if range_boundaries and firmware is None:
        raise ConfigError("range_boundaries are of a firmware; an aggregation has its own: see its options")
    chains = None if firmware is None else list(firmware)
    return _send(
        run, design, seed, wait_s, verb="program", tap=tap, aggregation=aggregation, options=dict(options or {}),
        chains=chains, boundaries=None if range_boundaries is None else list(range_boundaries),
    )  # fmt: skip


def set_learning_rate(
    run: StoredRun, value: float, *, design: str | None = None, seed: int | None = None, wait_s: float = WAIT_S
) -> list[Answer]:
    """Write the learning rate's control register; the optimizer uses it from the next step on.

    Raises:
        ConfigError: the run is over, or the register cannot hold the value.
        RunFailedError: no answer came in time.
    """
    learning_rate_bits(value)
    return _send(run, design, seed, wait_s, verb="learning_rate", value=value)


def learning_rate_bits(value: float | None) -> int:
    """A learning rate as its control register holds it: the bits of a float32.

    >>> hex(learning_rate_bits(0.5))
    '0x3f000000'

    Raises:
        ConfigError: it is negative, not finite, or becomes infinity or 0 in float32.
    """
    wanted = "expected a finite number of at least 0"
    if value is None or not 0 <= value < float("inf"):
        raise ConfigError(f"learning rate: given {value}, {wanted}")
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        raise ConfigError(f"learning rate: given {value:g}, {wanted} that float32 can hold, up to 3.4e38") from None
    bits: int = struct.unpack("<I", packed)[0]
    if value and not bits:
        raise ConfigError(f"learning rate: given {value:g}, which is 0 in float32: give 0, or at least 1.5e-45")
    return bits


def set_ranges(
    run: StoredRun,
    tap: str,
    boundaries: Sequence[Sequence[Any]],
    *,
    design: str | None = None,
    seed: int | None = None,
    wait_s: float = WAIT_S,
) -> list[Answer]:
    """Give the rows of ranges that a tap's firmware uses other boundaries, in the order of their first use."""
    rows = [list(row) for row in boundaries]
    return _send(run, design, seed, wait_s, verb="ranges", tap=tap, boundaries=rows)


def set_sampling(
    run: StoredRun, tap: str, every: int, *, design: str | None = None, seed: int | None = None, wait_s: float = WAIT_S
) -> list[Answer]:
    """Sample a tap every so many steps; 0 is never."""
    if not 0 <= every <= 65535:
        raise ConfigError(f"every: given {every}, expected 0 to 65535 steps")
    return _send(run, design, seed, wait_s, verb="sample", tap=tap, every=every)


def running_trainings(run: StoredRun) -> dict[str, InstrumentStarted]:
    """The start events of trainings that are in progress, by stream."""
    running: dict[str, InstrumentStarted] = {}
    for event in run.events(Event):
        if isinstance(event, InstrumentStarted):
            key = (event.design, event.seed)  # the same training again, after an interruption
            running = {stream: other for stream, other in running.items() if (other.design, other.seed) != key}
            running[event.stream] = event
        elif isinstance(event, InstrumentEnded):
            running.pop(event.stream, None)
    return running


def _send(run: StoredRun, design: str | None, seed: int | None, wait_s: float, **fields: Any) -> list[Answer]:
    if run.status != "running":
        raise ConfigError(f"{run.name} is over ({run.status}): commands need a running training")
    streams = {
        stream: event
        for stream, event in running_trainings(run).items()
        if design in (None, event.design) and seed in (None, event.seed)
    }
    if not streams:
        which = "" if design is None and seed is None else " of that design and seed"
        raise ConfigError(
            f"{run.name} has no instrumented training{which} under way: its design needs an [instrument] section, and "
            "only the first seed is watched unless that says otherwise"
        )
    tap = fields.get("tap")
    if tap is not None:
        _check_tap(tap, streams)
    command = Command(id=uuid4().hex, streams=tuple(streams), **fields)
    events = run.path / "events.jsonl"
    position = events.stat().st_size if events.exists() else 0
    descriptor = os.open(run.path / CONTROL_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, msgspec.json.encode(command) + b"\n")
    finally:
        os.close(descriptor)
    return _wait(run, events, position, command, wait_s)


def _check_tap(tap: str, streams: Mapping[str, InstrumentStarted]) -> None:
    names = {name for event in streams.values() for info in event.taps for name in (info.name, info.group)}
    if tap not in names:
        raise unknown("tap", tap, names)


def _wait(run: StoredRun, events: Path, position: int, command: Command, wait_s: float) -> list[Answer]:
    answers: dict[str, Answer] = {}
    deadline = time.monotonic() + wait_s
    missing = set(command.streams)
    rest = b""
    while missing:
        with events.open("rb") as file:
            file.seek(position)
            data = file.read()
        position += len(data)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            event = parse_event(line)
            if isinstance(event, InstrumentAnswer) and event.command == command.id:
                answers[event.stream] = Answer(
                    design=event.design, seed=event.seed, ok=event.ok, step=event.step, message=event.message
                )
                missing.discard(event.stream)
            elif isinstance(event, InstrumentEnded):
                missing.discard(event.stream)
        if missing and time.monotonic() > deadline:
            if answers:
                break
            raise RunFailedError(
                f"{run.name} did not answer within {wait_s:g} s; the command stays in {CONTROL_FILE} for its "
                "training's next step"
            )
        if missing:
            time.sleep(0.05)
    if not answers:
        raise ConfigError(f"{run.name}: the training ended before it saw the command")
    return list(answers.values())
