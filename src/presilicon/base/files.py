"""Reading files that a user names, which must be regular ones of a limited size, and writing files as a whole."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from presilicon.base.errors import ConfigError, RunFailedError

LARGEST_TEXT = 16 << 20
"""Bytes of the largest configuration or source file that is read."""
LARGEST_DATA = 1 << 30
"""Bytes of the largest file of vectors, images or streams that is read."""


def read_file(path: Path, largest: int = LARGEST_TEXT) -> bytes:
    """The content of a file of at most `largest` bytes.

    A device or a pipe may have no end, or make the reader wait for ever, so both are refused before they are opened.

    Raises:
        ConfigError: the file is missing, is not a regular file, is too large, or cannot be read.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a directory fails by itself
            raise ConfigError(f"{path}: not a regular file, but a device, a pipe or a socket; copy it to a file first")
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            content = file.read(largest + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if len(content) > largest:
        raise ConfigError(f"{path}: larger than {largest >> 20} MiB, the most that is read of such a file")
    return content


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


def cache_directory(part: str) -> Path:
    """A directory in PRESILICON_CACHE or the user's cache; it may not exist."""
    chosen = os.environ.get("PRESILICON_CACHE")
    if chosen:
        return Path(chosen) / part
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "presilicon" / part
