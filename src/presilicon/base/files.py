"""Reading the files that a user names, all of which come through here, and writing files as a whole."""

import json
import os
import select
import stat
import tempfile
import time
import warnings
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from presilicon.base.errors import ConfigError, RunFailedError, shorten

LARGEST_TEXT = 16 << 20
"""Bytes of the largest configuration or source file that is read."""
LARGEST_DATA = 1 << 30
"""Bytes of the largest file of vectors, images or streams that is read."""
PIPE_TIMEOUT_S = 30.0
"""How long a pipe may say nothing."""

_pipes: dict[tuple[str, int], bytes] = {}
"""What came through the pipes of a shell's `<(command)`, which can be read once only."""


def read_file(path: Path, largest: int = LARGEST_TEXT, *, again: bool = False) -> bytes:
    """The content of a file, or of a pipe such as a shell's `<(command)`, of at most `largest` bytes.

    `again` says that the file will be read again later, perhaps by another process, which a pipe does not allow. A
    device may have no end, and is refused.

    Raises:
        ConfigError: the file is missing, is neither a regular file nor a pipe, is too large, or cannot be read.
    """
    shown = path if len(str(path)) < 240 else shorten(f'"{path}"')
    try:
        facts = path.stat()
        is_pipe = stat.S_ISFIFO(facts.st_mode) and not again
        if not (is_pipe or stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode)):  # a directory fails by itself
            raise ConfigError(f"{shown}: not a regular file, but a device, a pipe or a socket; copy it to a file first")
        known = (str(path), facts.st_ino)
        if known in _pipes:
            return _pipes[known]
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb", buffering=0) as file:
            content = _read_pipe(path, file.fileno(), largest + 1) if is_pipe else _read_whole(file, largest + 1)
    except FileNotFoundError:
        raise ConfigError(f"{shown}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{shown}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if len(content) > largest:
        size = f"{largest >> 20} MiB" if largest >= 1 << 20 else f"{largest} bytes"
        raise ConfigError(f"{shown}: larger than {size}, the most that is read of such a file")
    if is_pipe and path.parts[:3] in (("/", "dev", "fd"), ("/", "proc", "self")):
        _pipes[known] = content
    return content


def _read_whole(file: Any, most: int) -> bytes:
    """All bytes of a regular file, up to `most`."""
    parts: list[bytes] = []
    while most > 0 and (part := file.read(most)):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def _read_pipe(path: Path, pipe: int, most: int) -> bytes:
    """All bytes of a pipe that was opened without waiting, up to `most`."""
    content, waiter = bytearray(), select.poll()
    waiter.register(pipe, select.POLLIN)
    last = time.monotonic()
    while len(content) < most:
        if not waiter.poll(max(0.0, last + PIPE_TIMEOUT_S - time.monotonic()) * 1000):
            raise ConfigError(
                f"{path}: a pipe that said nothing for {PIPE_TIMEOUT_S:g} s; write to a file and name that"
            )
        with suppress(BlockingIOError):
            part = os.read(pipe, min(most - len(content), 1 << 20))
            if not part:
                break
            content += part
            last = time.monotonic()
    return bytes(content)


def read_text(path: Path, largest: int = LARGEST_TEXT, *, kind: str = "text", again: bool = False) -> str:
    """The text in a file; `kind` is what was expected, in messages.

    Raises:
        ConfigError: the file cannot be read, or is not UTF-8.
    """
    try:
        return read_file(path, largest, again=again).decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file (expected {kind} in UTF-8)") from None


def read_json(path: Path, largest: int = LARGEST_TEXT) -> Any:
    """The document in a JSON file.

    Raises:
        ConfigError: the file is missing, cannot be read, or is not JSON.
    """
    text = read_text(path, largest, kind="JSON")
    if not text.strip():
        raise ConfigError(f"{path}: the file is empty")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigError(f"{path}: not valid JSON: {reason}") from None


def write_file(path: Path, content: str | bytes) -> Path:
    """Write a file that a user named, and return its path.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from None
    return path


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the contents of a file; a reader sees the old or the new contents, and a crash leaves one of them.

    Raises:
        RunFailedError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise RunFailedError(f"{path}: cannot be written ({error.strerror or error})") from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def file_stem(name: str, longest: int = 100) -> str:
    """A name as part of a file's name: other characters are escaped, and a long one ends in a hash of the whole.

    >>> file_stem("a/b[rows=32]"), len(file_stem("x" * 300)), file_stem("x" * 300) == file_stem("x" * 301)
    ('a%2Fb%5Brows%3D32%5D', 100, False)
    """
    text = quote(name, safe=" ")
    return text if len(text) <= longest else f"{text[: longest - 17]}-{sha256(name.encode()).hexdigest()[:16]}"


def cache_directory(part: str) -> Path:
    """A directory in PRESILICON_CACHE or the user's cache, or else in a temporary one; it may not exist."""
    chosen = os.environ.get("PRESILICON_CACHE")
    if chosen:
        return Path(chosen) / part
    own = user_cache()
    return (temporary_cache() if own is None else own / "presilicon") / part


def user_cache() -> Path | None:
    """The directory for caches of the user who runs this process; None if there is none that can be written."""
    try:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no HOME, and no such user
        return None
    nearest = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    return path if os.access(nearest, os.W_OK | os.X_OK) else None


@cache
def temporary_cache() -> Path:
    """A directory for the caches of a user without a writable home, as in some containers, with a warning."""
    path = Path(tempfile.gettempdir()) / f"presilicon-{os.getuid()}"
    with suppress(OSError):
        path.mkdir(mode=0o700, exist_ok=True)
    facts = path.lstat() if path.exists() else None
    if facts is None or facts.st_uid != os.getuid() or not stat.S_ISDIR(facts.st_mode):  # somebody else's
        path = Path(tempfile.mkdtemp(prefix="presilicon-"))
    os.environ["PRESILICON_CACHE"] = str(path)  # for the processes that this one starts
    warnings.warn(
        f"there is no home directory that can be written: caches are in {path}; set PRESILICON_CACHE to keep them",
        CacheWarning,
        stacklevel=2,
    )
    return path


def place_compiled_kernels() -> None:
    """Tell Numba, which reads this when it is imported, where to keep compiled kernels if it would find no place."""
    if "NUMBA_CACHE_DIR" not in os.environ and not os.access(Path(__file__).parent, os.W_OK) and user_cache() is None:
        os.environ["NUMBA_CACHE_DIR"] = str(cache_directory("numba"))


class CacheWarning(UserWarning):
    """Caches are in a temporary directory."""
