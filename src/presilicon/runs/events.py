"""The append-only event log of a run: one JSON object per line."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from presilicon.records import AnyEvent, Event, ResultEvent
from presilicon.runs.append import AppendLog
from presilicon.runs.older import present_comparison, with_present_names


def now() -> str:
    """The current UTC time as run records write it: `2026-11-15T07:45:12.345678Z`."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class EventLog:
    """Appends events to a file; other processes may append events of their own. NaN and infinity become null."""

    def __init__(self, path: Path) -> None:
        self.path, self._log = path, AppendLog(path)

    def read(self) -> Iterator[AnyEvent]:
        """The events written so far, oldest first."""
        return read_events(self.path)

    def append(self, event: Event) -> None:
        """Write an event, stamped with the current time.

        Raises:
            RunFailedError: the file cannot be written, for example because the disk is full.
        """
        self.extend([event])

    def extend(self, events: Iterable[Event]) -> None:
        """Write several events at once."""
        encode, replace, time = msgspec.json.encode, msgspec.structs.replace, now()
        self._log.append(b"".join(encode(replace(event, time=time)) + b"\n" for event in events))


def read_events(path: Path) -> Iterator[AnyEvent]:
    """The events in a file, oldest first; none if there is no file.

    Lines that are not a whole and valid event are skipped: a last line that is still being written, a line torn by a
    crash, an event of a type or shape that this version does not know.
    """
    for line in AppendLog(path).lines():
        event = parse_event(line)
        if event is not None:
            yield event


def read_result(path: Path) -> ResultEvent | None:
    """The last result in a file, if there is one; no other events are decoded, for they can be many."""
    events = (parse_event(line) for line in reversed([*AppendLog(path).lines()]) if b'"result"' in line)
    return next((event for event in events if isinstance(event, ResultEvent)), None)


def read_plain_events(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects in a file that have an `event`, whatever else they contain, for lossless export."""
    for line in AppendLog(path).lines():
        try:
            event = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if isinstance(event.get("event"), str):
            yield event


def parse_event(line: bytes) -> AnyEvent | None:
    """The event in a line of the file, or None if it is not a valid one; events of schema 1 under today's names."""
    try:
        event = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _parse_older(line)
    if isinstance(event, ResultEvent):
        return msgspec.structs.replace(event, comparison=present_comparison(event.comparison))
    return event


def _parse_older(line: bytes) -> AnyEvent | None:
    try:
        plain = with_present_names(msgspec.json.decode(line, type=dict[str, Any]))
        return msgspec.convert(plain, AnyEvent)  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
