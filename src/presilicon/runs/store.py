"""The runs on disk: list, load, label and remove them."""

import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from presilicon.base import ConfigError, json_text, unknown, write_atomically
from presilicon.records import AnyEvent, Direction, Event, PointMeasure
from presilicon.runs.events import read_events, read_result
from presilicon.runs.lock import is_alive, is_locked
from presilicon.runs.run import EVENTS_FILE, RECORD_FILE, RunRecord, read_record

LABELS_FILE = "labels.json"


class Labels(Struct, frozen=True, kw_only=True):
    """Name and tags that a user gives a run; several runs may have the same.

    They are not in `run.json`, because the process that carries out the run rewrites that file while others may tag it.
    """

    name: str | None = None
    tags: tuple[str, ...] = ()


def make_labels(name: str | None, tags: Iterable[str]) -> Labels:
    """Labels with each tag once; raises a `ConfigError` if a word cannot be a label."""
    labels = Labels(name=name, tags=tuple(dict.fromkeys(tags)))
    for word in labels.tags if name is None else (name, *labels.tags):
        if word == "latest" or not re.fullmatch(r"[A-Za-z0-9][\w.+=-]{0,59}", word, re.ASCII):
            raise ConfigError(
                "the name or tag of a run must be up to 60 letters, digits and any of ._+=-, begin with a letter or a "
                f'digit, and not be "latest": not {word[:80]!r}'
            )
    return labels


def read_labels(path: Path) -> Labels:
    """The labels in a run's directory; none if the file is missing or damaged."""
    try:
        return msgspec.json.decode((path / LABELS_FILE).read_bytes(), type=Labels)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return Labels()


def write_labels(path: Path, labels: Labels) -> None:
    """Replace the labels in a run's directory."""
    write_atomically(path / LABELS_FILE, json_text(labels).encode())


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
    labels: Labels = Labels()

    @property
    def labelled(self) -> str:
        """Its name and tags as text: `night-3 #sweep`."""
        return " ".join([*filter(None, [self.labels.name]), *(f"#{tag}" for tag in self.labels.tags)])

    @property
    def name(self) -> str:
        """The name of its directory."""
        return self.path.name

    @property
    def measure(self) -> PointMeasure:
        """The metric of its workload, as the configuration names it; the default of workloads if it names none."""
        workload = self.record.config.get("workload") if self.record else None
        metric = workload.get("metric") if isinstance(workload, dict) else None
        if not isinstance(metric, dict):
            return PointMeasure()
        direction: Direction = "lower" if metric.get("better") == "lower" else "higher"
        is_fraction = (metric.get("low"), metric.get("high")) == (0, 1)
        return PointMeasure(str(metric.get("name", "accuracy")), direction, is_fraction)

    def events(self, kind: type[E] = Event) -> tuple[E, ...]:  # type: ignore[assignment]
        """The events of one type recorded so far, oldest first; all events by default."""
        events: Iterable[AnyEvent] = read_events(self.path / EVENTS_FILE)
        return tuple(event for event in events if isinstance(event, kind))

    def comparison(self) -> dict[str, Any] | None:
        """The comparison in its last result, as plain data; None if it has no result."""
        result = read_result(self.path / EVENTS_FILE)
        return None if result is None else result.comparison


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

    The name is that of its directory, or the one that a user gave it.

    Raises:
        ConfigError: there is no such run, or several are called or begin like that.
    """
    runs = {run.name: run for run in list_runs(root)}
    if not runs:
        raise ConfigError(f"there are no runs in {root}")
    if name == "latest":
        return list(runs.values())[-1]
    if name in runs:
        return runs[name]
    labels = {candidate: run.labels.name for candidate, run in runs.items() if run.labels.name}
    matches = [candidate for candidate, label in labels.items() if label == name]
    if len(matches) > 1:
        raise ConfigError(f'"{name}" is the name of {len(matches)} runs: {", ".join(matches)}. Give one of these')
    if not matches and name:
        names = [*((candidate, candidate) for candidate in runs), *labels.items()]
        matches = list(dict.fromkeys(candidate for candidate, text in names if text.startswith(name)))
    if len(matches) > 1:
        raise ConfigError(f'"{name}" is the beginning of {len(matches)} runs: {", ".join(matches)}. Give more of it')
    if not matches:
        raise unknown("run", name, [*runs, *labels.values(), "latest"])
    return runs[matches[0]]


def label_run(
    root: Path, name: str, *, label: str | None = None, add: Iterable[str] = (), remove: Sequence[str] = ()
) -> StoredRun:
    """Name a run (with `label`), add and remove tags, and return it with its new labels.

    Raises:
        ConfigError: there is no such run, it lacks a tag that is to be removed, or a label is not allowed.
    """
    run = load_run(root, name)
    for tag in remove:
        if tag not in run.labels.tags:
            raise unknown(f"tag of {run.name}", tag, run.labels.tags)
    tags = [tag for tag in run.labels.tags if tag not in remove]
    labels = make_labels(run.labels.name if label is None else label, [*tags, *add])
    write_labels(run.path, labels)
    return msgspec.structs.replace(run, labels=labels)


def remove_run(root: Path, name: str, *, force: bool = False) -> StoredRun:
    """Delete a run, given its full name or `latest`, and return what it was.

    Raises:
        ConfigError: there is no such run, it is still running (unless forced), or it cannot be deleted.
    """
    run = load_run(root, name)
    if name not in (run.name, run.labels.name, "latest"):
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
    labels = read_labels(path)
    try:
        record = read_record(path)
        is_orphan = record.status == "running" and not _has_owner(path, record)
        if is_orphan:  # it may have ended between the two reads
            record = read_record(path)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        problem = f"{RECORD_FILE}: {error.strerror if isinstance(error, OSError) else error}"
        return StoredRun(path=path, status="unreadable", record=None, problem=problem, labels=labels)
    status = "interrupted" if is_orphan and record.status == "running" else record.status
    return StoredRun(path=path, status=status, record=record, labels=labels)


def _has_owner(path: Path, record: RunRecord) -> bool:
    """Whether a live process owns a run: by its lock, or by its pid where a run of an older version has no lock."""
    locked = is_locked(path)
    return is_alive(record.pid, record.process_start) if locked is None else locked
