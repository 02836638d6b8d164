"""A run in progress: its directory, its lock, its record and its events."""

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import msgspec
from msgspec import Struct

from presilicon.base import (
    DOCUMENT_SCHEMA,
    ConfigError,
    PresiliconError,
    RunFailedError,
    json_text,
    meaning,
    meaning_changes,
    write_atomically,
)
from presilicon.records import Event, LockEvent
from presilicon.runs.events import EventLog, now
from presilicon.runs.lock import RunLock, acquire, process_start
from presilicon.runs.provenance import commit, identity_hash, versions

RECORD_FILE = "run.json"
EVENTS_FILE = "events.jsonl"

Status = Literal["running", "finished", "failed", "interrupted"]


class RunRecord(Struct, frozen=True, kw_only=True):
    """The contents of `run.json`. It names no machine and no path on it."""

    schema: Literal[1, 2] = 2
    """1 in runs from before each field of a metric had one name: they are shown, not resumed."""
    kind: str
    config: dict[str, Any]
    config_hash: str
    seed: int | None
    versions: dict[str, str | None]
    meaning: dict[str, int] = {}
    """The numbers of meaning of training and price; empty in runs from before they were recorded."""
    commit: str | None
    created: str
    pid: int
    process_start: str | None = None
    """Distinguishes the process from a later one with the same pid; None where the system does not tell."""
    status: Status = "running"
    ended: str | None = None
    error: str | None = None
    resumed: tuple[str, ...] = ()
    """Times at which the run was resumed."""


class Run:
    """A run in progress; `create_run` and `resume_run` return one. It holds the lock of its directory until it ends.

    As a context manager it ends with the block: `finished`, or `interrupted` by Ctrl-C, or `failed` with the message of
    the exception, which is passed on to the caller. Events are kept in all cases.
    """

    def __init__(self, path: Path, record: RunRecord, lock: RunLock) -> None:
        self.path = path
        self.log = EventLog(path / EVENTS_FILE)
        self._record = record
        self._lock = lock
        self._write_record()
        if lock.took_over:
            self.record(LockEvent(message=lock.took_over))

    @property
    def name(self) -> str:
        """The name of the run's directory, by which `load_run` finds it."""
        return self.path.name

    @property
    def state(self) -> RunRecord:
        """The current contents of `run.json`."""
        return self._record

    @property
    def took_over(self) -> str:
        """Describes the stale lock that was taken over when the run was resumed; empty if there was none."""
        return self._lock.took_over

    def record(self, event: Event) -> None:
        """Append an event.

        Raises:
            RunFailedError: the log cannot be written, or another process has taken over the run.
        """
        self._lock.check()
        self.log.append(event)

    def write_file(self, name: str, content: str | bytes) -> Path:
        """Write a file (a report, a result) into the run's directory atomically, and return its path."""
        path = self.path / name
        write_atomically(path, content.encode() if isinstance(content, str) else content)
        return path

    def end(self, status: Status, error: str | None = None) -> None:
        """Record how the run ended and release its lock. Only the first call counts."""
        if self._record.status != "running":
            return
        self._record = msgspec.structs.replace(self._record, status=status, ended=now(), error=error)
        try:
            self._lock.check()
            self._write_record()
        finally:
            self._lock.release()

    def _write_record(self) -> None:
        write_atomically(self.path / RECORD_FILE, json_text(self._record).encode())

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        match error:
            case None | SystemExit(code=None | 0):
                self.end("finished")
            case KeyboardInterrupt() | SystemExit(code=130):
                self.end("interrupted")
            case _:
                with suppress(RunFailedError):  # the original error says more than a failure to record it
                    self.end("failed", _message(error))


def create_run(root: Path, kind: str, config: dict[str, Any], *, seed: int | None, name: str | None = None) -> Run:
    """Start a run in a new directory under `root`, named by UTC time and kind: `2026-11-15T07-45-12-evaluate`.

    With `name` that is its name. A second run of the same name (of that kind in the same second) gets the suffix `-2`,
    and so on: no run ever overwrites another.

    Raises:
        ConfigError: the directory cannot be created, or `kind` cannot be part of a directory's name.
        RunFailedError: the directory cannot be written.

    >>> import tempfile
    >>> from presilicon.records import DesignEvent
    >>> with tempfile.TemporaryDirectory() as root:
    ...     with create_run(Path(root), "evaluate", {"seeds": 5}, seed=0) as run:
    ...         run.record(DesignEvent(design="bf16-systolic", config={}))
    ...     run.state.status
    'finished'
    """
    if not kind or not kind.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(f'the kind of a run must be a word such as "evaluate", not {kind!r}')
    plain = msgspec.to_builtins(config, str_keys=True)
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    path = _new_directory(root, name or f"{stamp}-{kind}")
    pid = os.getpid()
    record = RunRecord(
        kind=kind,
        config=plain,
        config_hash=identity_hash(plain),
        seed=seed,
        versions=versions(),
        meaning=meaning(),
        commit=commit(),
        created=now(),
        pid=pid,
        process_start=process_start(pid),
    )
    return Run(path, record, acquire(path))


def resume_run(path: Path, record: RunRecord, config: dict[str, Any]) -> Run:
    """Continue an interrupted run in its own directory, which this process locks.

    Raises:
        ConfigError: another process owns the run; its configuration is not `config`; or it was started with other
            versions of the packages that compute numbers, or under other numbers of meaning, so that the same bits
            cannot be promised; or its records have an older schema.
    """
    then = record.versions
    different = [f"{name} {then.get(name)}, now {here}" for name, here in versions().items() if then.get(name) != here]
    if record.schema != DOCUMENT_SCHEMA:
        different.append(f"records of schema {record.schema}, now {DOCUMENT_SCHEMA}")
    different += [f"the meaning of {change}" for change in meaning_changes(record.meaning)]
    if different:
        raise ConfigError(f"{path.name} cannot be resumed: it was started with {', '.join(different)}; start a new run")
    plain, recorded = msgspec.to_builtins(config, str_keys=True), record.config
    if identity_hash(plain) != record.config_hash:
        changed = [name for name in {**recorded, **plain} if recorded.get(name) != plain.get(name)]
        raise ConfigError(f"{path.name} cannot be resumed: its {', '.join(changed)} changed since; start a new run")
    lock = acquire(path)
    pid, current = os.getpid(), read_record(path)  # another process may have resumed and ended the run in the meantime
    resumed = msgspec.structs.replace(
        current,
        status="running",
        ended=None,
        error=None,
        pid=pid,
        process_start=process_start(pid),
        resumed=(*current.resumed, now()),
    )
    return Run(path, resumed, lock)


def read_record(path: Path) -> RunRecord:
    """The record in a run's directory; raises what reading and decoding it raises."""
    return msgspec.json.decode((path / RECORD_FILE).read_bytes(), type=RunRecord)


def _new_directory(root: Path, name: str) -> Path:
    """A new directory; `mkdir` decides between two runs that want the same name."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        count = 1
        while True:
            path = root / (name if count == 1 else f"{name}-{count}")
            try:
                path.mkdir()
                return path
            except FileExistsError:
                count += 1
    except OSError as error:
        raise ConfigError(f"cannot write runs to {root}: {error.strerror}. Choose another directory") from None


def _message(error: BaseException) -> str:
    """The text of an error, with the paths of this machine shortened."""
    text = str(error)
    text = text if isinstance(error, PresiliconError) and text else f"{type(error).__name__}: {text}".rstrip(": ")
    for folder, short in ((Path.cwd(), "."), (Path(os.path.expanduser("~")), "~")):
        if folder != Path(folder.anchor):
            text = text.replace(str(folder), short)
    return text
