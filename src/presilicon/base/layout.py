"""Texts that programs print: columns for a terminal, JSON documents."""

from collections.abc import Sequence
from typing import Any

import msgspec


def columns(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """The lines of a table; columns in `left` are aligned left, the others right.

    >>> columns([("op", "cycles"), ("conv1", "12")])
    ['op     cycles', 'conv1      12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def change_lines(changes: Sequence[tuple[str, Any, Any]], indent: str = "") -> list[str]:
    """The lines of a table of fields that differ: path, value before and after; None is a missing field.

    >>> change_lines([("rows", 32, 64)])
    ['rows  32 -> 64']
    """
    rows = []
    for path, *values in changes:
        before, after = ("(absent)" if value is None else str(value) for value in values)
        rows.append((indent + path, f"{before} -> {after}"))
    return columns(rows, left=(0, 1))


def pick(record: Any, *names: str) -> dict[str, Any]:
    """Some fields of a record, by name.

    >>> pick(3 + 4j, "real", "imag")
    {'real': 3.0, 'imag': 4.0}
    """
    return {name: getattr(record, name) for name in names}


DOCUMENT_SCHEMA = 2
"""Number of the JSON documents that commands print and write: it rises when a field is renamed or goes."""


def json_text(document: Any) -> str:
    """A document as indented JSON, with the end of its last line; NaN and infinity become null."""
    return msgspec.json.format(msgspec.json.encode(document)).decode() + "\n"
