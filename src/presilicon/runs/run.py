"""A run while it happens: its directory, its record and the events it writes."""

import os
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import msgspec
from msgspec import Struct

from presilicon.base.errors import ConfigError, PresiliconError
from presilicon.runs.events import EventLog, now
from presilicon.runs.process import process_start
from presilicon.runs.provenance import commit, config_hash, versions

RECORD_FILE = "run.json"
EVENTS_FILE = "events.jsonl"

Status = Literal["running", "finished", "failed", "interrupted"]


class RunRecord(Struct, frozen=True, kw_only=True):
    """What `run.json` says. It names no machine and no place on it."""

    schema: Literal[1] = 1
    kind: str
    config: dict[str, Any]
    config_hash: str
    seed: int | None
    versions: dict[str, str | None]
    commit: str | None
    created: str
    pid: int
    process_start: str | None = None
    """Tells the process from a later one with the same pid; None where the system does not say."""
    status: Status = "running"
    ended: str | None = None
    error: str | None = None
    resumed: tuple[str, ...] = ()
    """When it was taken up again after it had been broken off."""


class Run:
    """A run that is being made; `create_run` gives one.

    As a context manager it ends with the block: `finished`, or `interrupted` by Ctrl-C, or `failed` with the message of
    the exception, which goes on to the caller. Events are kept in all cases.
    """

    def __init__(self, path: Path, record: RunRecord) -> None:
        self.path = path
        self.log = EventLog(path / EVENTS_FILE)
        self._record = record
        self._write_record()

    @property
    def name(self) -> str:
        """The name of its directory, by which `load_run` finds it."""
        return self.path.name

    @property
    def state(self) -> RunRecord:
        """What `run.json` says now."""
        return self._record

    def record(self, event: str, /, **fields: Any) -> None:
        """Append an event; other processes append theirs through `log`."""
        self.log.append(event, **fields)

    def write_file(self, name: str, content: str | bytes) -> Path:
        """Put a file (a report, a result) into the run's directory, whole or not at all, and return its path."""
        path = self.path / name
        write_atomically(path, content.encode() if isinstance(content, str) else content)
        return path

    def end(self, status: Status, error: str | None = None) -> None:
        """Say how the run ended. The first word counts: a run that has ended stays as it was."""
        if self._record.status != "running":
            return
        self._record = msgspec.structs.replace(self._record, status=status, ended=now(), error=error)
        self._write_record()

    def _write_record(self) -> None:
        write_atomically(self.path / RECORD_FILE, msgspec.json.format(msgspec.json.encode(self._record)) + b"\n")

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
                self.end("failed", _message(error))


def create_run(root: Path, kind: str, config: dict[str, Any], *, seed: int | None) -> Run:
    """Start a run in a new directory of `root`, named by the time (UTC) and its kind: `2026-11-15T07-45-12-evaluate`.

    A second run of that kind in the same second gets `-2` at the end, and so on: no run ever overwrites another.

    Raises:
        ConfigError: the directory cannot be made, or `kind` cannot be part of a directory's name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     with create_run(Path(root), "evaluate", {"seeds": 5}, seed=0) as run:
    ...         run.record("design", design="bf16-systolic", config={})
    ...     run.state.status
    'finished'
    """
    if not kind or not kind.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(f'the kind of a run must be a word such as "evaluate", not {kind!r}')
    plain = msgspec.to_builtins(config, str_keys=True)
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    path = _new_directory(root, f"{stamp}-{kind}")
    pid = os.getpid()
    record = RunRecord(
        kind=kind,
        config=plain,
        config_hash=config_hash(plain),
        seed=seed,
        versions=versions(),
        commit=commit(),
        created=now(),
        pid=pid,
        process_start=process_start(pid),
    )
    return Run(path, record)


def resume_run(path: Path, record: RunRecord) -> Run:
    """Take up a run that was broken off, in its own directory: it is this process's from now on.

    Raises:
        ConfigError: it was made by other versions of what computes numbers, so the same bits cannot be promised.
    """
    then = record.versions
    different = [f"{name} {then.get(name)}, now {here}" for name, here in versions().items() if then.get(name) != here]
    if different:
        raise ConfigError(f"{path.name} cannot be resumed: it was made with {', '.join(different)}; start it anew")
    pid = os.getpid()
    again = msgspec.structs.replace(
        record,
        status="running",
        ended=None,
        error=None,
        pid=pid,
        process_start=process_start(pid),
        resumed=(*record.resumed, now()),
    )
    return Run(path, again)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file by new content; a reader sees the old or the new, and a crash leaves one of them."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _new_directory(root: Path, name: str) -> Path:
    """A directory that did not exist before: `mkdir` is what decides between two runs that want the same name."""
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
    """The text of an error, without the places of this machine that it may name."""
    text = str(error)
    text = text if isinstance(error, PresiliconError) and text else f"{type(error).__name__}: {text}".rstrip(": ")
    for place, short in ((Path.cwd(), "."), (Path.home(), "~")):
        if place != Path(place.anchor):
            text = text.replace(str(place), short)
    return text
