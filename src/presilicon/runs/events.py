"""The append-only record of what happened in a run: one JSON object on each line."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec


def now() -> str:
    """The present moment in UTC, as run records write it: `2026-11-15T07:45:12.345678Z`."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class EventLog:
    """Appends events to a file.

    It holds nothing but a path: hand it to other processes, and let each append its own events. A line is written by a
    single call to a file opened for appending, so lines of several writers do not mix, and it has left this process
    when `append` returns. NaN and infinity become null.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: str, /, **fields: Any) -> None:
        """Write an event of that name with the time and the given fields (plain values or msgspec structs)."""
        line = msgspec.json.encode({"event": event, "time": now(), **fields}) + b"\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            while line:
                line = line[os.write(descriptor, line) :]
        finally:
            os.close(descriptor)


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a file, oldest first; none when there is no file.

    What is not a whole event is passed over: a last line that is still being written, a line torn by a crash.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError:
        return
    for line in lines:
        try:
            event = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if isinstance(event.get("event"), str):
            yield event
