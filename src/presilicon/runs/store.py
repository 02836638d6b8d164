"""The runs on disk: list, load and remove them."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from presilicon.base import ConfigError, unknown
from presilicon.records import AnyEvent, Event, ResultEvent
from presilicon.runs.events import read_events
from presilicon.runs.lock import is_alive, is_locked
from presilicon.runs.run import EVENTS_FILE, RECORD_FILE, RunRecord, read_record

E = TypeVar("E", bound=Event)


class StoredRun(Struct, frozen=True, kw_only=True):
    """A run on disk, possibly still being written."""

    path: Path
    status: str
    """As recorded; `interrupted` if the record says `running` but no process owns it; `unreadable` without a record."""
    record: RunRecord | None
    """None if it cannot be read."""
    problem: str | None = None
    """The reason why it cannot be read."""

    @property
    def name(self) -> str:
        """The name of its directory."""
        return self.path.name

    def events(self, kind: type[E] = Event) -> tuple[E, ...]:  # type: ignore[assignment]
        """The events of one type recorded so far, oldest first; all events by default."""
        events: Iterable[AnyEvent] = read_events(self.path / EVENTS_FILE)
        return tuple(event for event in events if isinstance(event, kind))

    def comparison(self) -> dict[str, Any] | None:
        """The comparison in its last result, as plain data; None if it has no result."""
        results = self.events(ResultEvent)
        return results[-1].comparison if results else None


def list_runs(root: Path) -> tuple[StoredRun, ...]:
    """The runs in a directory, oldest first; none when there is no such directory.

    Directories without a `run.json` are somebody else's and are left out. One whose `run.json` cannot be read is listed
    as unreadable, with the problem.

    Raises:
        ConfigError: `root` is not a directory, or may not be read.
    """
    try:
        directories = [path for path in root.iterdir() if _has_record(path)]
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ConfigError(f"cannot read runs from {root}: {error.strerror}") from None
    return tuple(sorted(map(_read, directories), key=lambda run: (run.record.created if run.record else "", run.name)))


def load_run(root: Path, name: str) -> StoredRun:
    """The run of that name, of that unique beginning of a name, or the newest one for `latest`.

    Raises:
        ConfigError: there is no such run, or several begin like that.
    """
    runs = {run.name: run for run in list_runs(root)}
    if not runs:
        raise ConfigError(f"there are no runs in {root}")
    if name == "latest":
        return list(runs.values())[-1]
    if name in runs:
        return runs[name]
    matches = [candidate for candidate in runs if name and candidate.startswith(name)]
    if len(matches) > 1:
        raise ConfigError(f'"{name}" is the beginning of {len(matches)} runs: {", ".join(matches)}. Give more of it')
    if not matches:
        raise unknown("run", name, [*runs, "latest"])
    return runs[matches[0]]


def remove_run(root: Path, name: str, *, force: bool = False) -> StoredRun:
    """Delete a run, given its full name or `latest`, and return what it was.

    Raises:
        ConfigError: there is no such run, it is still running (unless forced), or it cannot be deleted.
    """
    run = load_run(root, name)
    if run.name != name and name != "latest":
        raise ConfigError(f'"{name}" is only the beginning of a name; to remove that run, write {run.name}')
    if run.status == "running" and not force:
        raise ConfigError(f"{run.name} is still running: stop it first, or remove it with --force")
    try:
        if run.path.is_symlink():
            run.path.unlink()
        else:
            shutil.rmtree(run.path)
    except OSError as error:
        raise ConfigError(f"cannot remove {run.name}: {error.strerror}") from None
    return run


def _has_record(path: Path) -> bool:
    try:
        return (path / RECORD_FILE).is_file()
    except OSError:
        return False


def _read(path: Path) -> StoredRun:
    try:
        record = read_record(path)
        is_orphan = record.status == "running" and not _has_owner(path, record)
        if is_orphan:  # it may have ended between the two reads
            record = read_record(path)
    except OSError as error:
        return StoredRun(path=path, status="unreadable", record=None, problem=f"{RECORD_FILE}: {error.strerror}")
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return StoredRun(path=path, status="unreadable", record=None, problem=f"{RECORD_FILE}: {error}")
    status = "interrupted" if is_orphan and record.status == "running" else record.status
    return StoredRun(path=path, status=status, record=record)


def _has_owner(path: Path, record: RunRecord) -> bool:
    """Whether a live process owns a run: by its lock, or by its pid where a run of an older version has no lock."""
    locked = is_locked(path)
    return is_alive(record.pid, record.process_start) if locked is None else locked
