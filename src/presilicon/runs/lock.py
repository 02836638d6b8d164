"""The lock of a run: at most one process at a time writes to a run's directory.

The lock is a file that is created exclusively, which is atomic on shared file systems too. Its owner refreshes the
file's time every few seconds. A lock is stale when its owner ran on this machine and is gone, or, for an owner on
another machine, when it has not been refreshed for `STALE_S` by the file system's own clock.
"""

import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from presilicon.base import ConfigError, RunFailedError

LOCK_FILE = "lock.json"
REFRESH_S = 15.0
STALE_S = 120.0


class Owner(Struct, frozen=True, kw_only=True):
    """The process that holds a lock. The machine is named by a hash only."""

    pid: int
    process_start: str | None
    machine: str
    token: str
    """Tells this lock from any other."""


class RunLock:
    """A lock that this process holds until `release`; `acquire` returns one."""

    def __init__(self, path: Path, owner: Owner, took_over: str = "") -> None:
        self._path = path
        self._owner = owner
        self._released = threading.Event()
        self.took_over = took_over
        """Describes the stale lock that was taken over; empty if there was none."""
        self._is_lost = False
        self._refresher = threading.Thread(target=self._refresh, daemon=True, name="presilicon-run-lock")
        self._refresher.start()

    def check(self) -> None:
        """Raise a `RunFailedError` if another process has taken this lock over."""
        if self._is_lost:
            raise RunFailedError(
                f"{self._path.parent.name}: this process no longer owns the run, because another process took it over "
                f"or {LOCK_FILE} was removed; see `presilicon runs show {self._path.parent.name}`"
            )

    def release(self) -> None:
        """Remove the lock, unless another process has taken it over."""
        if self._released.is_set():
            return
        self._released.set()
        if read_owner(self._path) == self._owner:
            self._path.unlink(missing_ok=True)

    def _refresh(self) -> None:
        while not self._released.wait(REFRESH_S):
            if read_owner(self._path) != self._owner:
                self._is_lost = True
                return
            with suppress(OSError):
                os.utime(self._path)


def acquire(directory: Path) -> RunLock:
    """Lock a run's directory for this process, taking over a stale lock.

    Raises:
        ConfigError: another process holds the lock.
        RunFailedError: the directory cannot be written.
    """
    path = directory / LOCK_FILE
    owner = Owner(
        pid=os.getpid(), process_start=process_start(os.getpid()), machine=_machine(), token=secrets.token_hex(8)
    )
    try:
        if _create(path, owner):
            return RunLock(path, owner)
        return RunLock(path, owner, _take_over(path, owner))
    except OSError as error:
        raise RunFailedError(f"{path}: cannot be written ({error.strerror or error})") from None


def is_locked(directory: Path) -> bool | None:
    """Whether a live process holds the lock of a run's directory; None if the directory has no lock."""
    path = directory / LOCK_FILE
    if not path.exists():
        return None
    return not _is_stale(path, read_owner(path))


def read_owner(path: Path) -> Owner | None:
    """The owner that a lock file names, or None if it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Owner)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _take_over(path: Path, owner: Owner) -> str:
    """Replace a stale lock; a second exclusive file decides between two processes that both want to."""
    name = path.parent.name
    stale = read_owner(path)
    if not _is_stale(path, stale):
        if stale is not None and stale.machine == _machine():
            raise ConfigError(
                f"{name} is in use by another process (process {stale.pid}): wait until it ends, or stop it"
            )
        owner_text = "an unreadable lock" if stale is None else "a process on another machine"
        raise ConfigError(
            f"{name} is in use by another process: {LOCK_FILE} is {owner_text}; wait until it ends, or {STALE_S:.0f} s "
            "after it was stopped"
        )
    guard = path.with_name(f"{LOCK_FILE}.takeover")
    with suppress(FileNotFoundError):  # another process may remove it at any moment
        if guard.exists() and _age_s(guard) > STALE_S:  # left behind by a process that died right here
            guard.unlink(missing_ok=True)
    if not _create(guard, owner):
        raise ConfigError(f"{name} is being taken over by another process: try again in a moment")
    try:
        if read_owner(path) != stale:
            raise ConfigError(f"{name} was just taken over by another process")
        _replace(path, owner)
    finally:
        guard.unlink(missing_ok=True)
    owner_text = "an unknown process" if stale is None else f"process {stale.pid}"
    return f"the lock of {owner_text}, which no longer exists, was taken over"


def _create(path: Path, owner: Owner) -> bool:
    """Create a lock file; False if there is one already."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(owner))
    return True


def _replace(path: Path, owner: Owner) -> None:
    temporary = path.with_name(f".{path.name}.{owner.token}")
    temporary.write_bytes(msgspec.json.encode(owner))
    os.replace(temporary, path)


def _is_stale(path: Path, owner: Owner | None) -> bool:
    if owner is not None and owner.machine == _machine():
        return not is_alive(owner.pid, owner.process_start)
    try:
        return _age_s(path) > STALE_S
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _age_s(path: Path) -> float:
    """Seconds since a file was refreshed, by the clock of its file system where that can be asked."""
    probe = path.with_name(f".clock.{secrets.token_hex(4)}")
    try:
        probe.touch()
        current = probe.stat().st_mtime
    except OSError:
        current = time.time()
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return current - path.stat().st_mtime


def _machine() -> str:
    """A hash that tells machines, reboots and process-id namespaces apart, so that pids can be compared."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return sha256("/".join(parts).encode()).hexdigest()[:16]


def process_start(pid: int) -> str | None:
    """Start time of a process in the system's ticks; None if it is gone, a zombie, or the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses and may hold anything: count from its end.
    fields = stat.rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else None


def is_alive(pid: int, start: str | None) -> bool:
    """Whether the process with that pid lives and started when it should have (pids are used again).

    >>> is_alive(os.getpid(), process_start(os.getpid()))
    True
    """
    if Path("/proc/self/stat").exists():
        current = process_start(pid)
        return current is not None and start in (None, current)
    if os.name != "posix":  # signal 0 is no harmless question on Windows
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
