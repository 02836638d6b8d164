"""A file to which lines are appended, by several processes and across crashes."""

import os
from collections.abc import Iterator
from pathlib import Path

from presilicon.base import RunFailedError


class AppendLog:
    """Lines in a file that only grows.

    It holds nothing but a path, so it can be passed to other processes that append lines of their own. Lines are
    written by a single call to a file opened for appending, so those of several writers do not mix, and they have left
    this process when `append` returns. After a crash only a last, incomplete line can be lost: the next one begins a
    line of its own, and readers skip what they cannot read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, lines: bytes) -> None:
        """Write whole lines.

        Raises:
            RunFailedError: the file cannot be written, for example because the disk is full.
        """
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        try:
            descriptor = os.open(self.path, flags, 0o644)
            try:
                if os.fstat(descriptor).st_size:
                    os.lseek(descriptor, -1, os.SEEK_END)
                    if os.read(descriptor, 1) != b"\n":
                        lines = b"\n" + lines
                while lines:
                    lines = lines[os.write(descriptor, lines) :]
            finally:
                os.close(descriptor)
        except OSError as error:
            raise RunFailedError(f"{self.path}: cannot be written ({error.strerror or error})") from None

    def lines(self) -> Iterator[bytes]:
        """The lines written so far, oldest first; none if there is no file."""
        try:
            yield from self.path.read_bytes().split(b"\n")
        except OSError:
            return
