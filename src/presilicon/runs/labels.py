"""The name and the tags that a user gives a run: `labels.json` in its directory.

They are not in `run.json`, because the process that carries out the run rewrites that file while others may tag it.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from presilicon.base import ConfigError, json_text, write_atomically

LABELS_FILE = "labels.json"


class Labels(Struct, frozen=True, kw_only=True):
    """Name and tags of a run; several runs may have the same."""

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
