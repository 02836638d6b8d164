"""Published figures beside ours, for a terminal and as JSON."""

import textwrap
from typing import Any

import msgspec

from presilicon.records import Reproduced, Reproduction

_WIDTH = 110


def render_reproduction(found: Reproduction) -> str:
    """The table, then what it rests on, as plain text."""
    rows = [("", "published", "ours", "difference", ""), *(_row(row) for row in found.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [found.title, f"source: {found.source}", ""]
    for name, published, ours, difference, note in rows:
        cells = [name.ljust(widths[0]), published.rjust(widths[1]), ours.rjust(widths[2]), difference.rjust(widths[3])]
        lines.append("  ".join([*cells, note]).rstrip())
    lines += ["", "assumptions"]
    for text in found.assumptions:
        lines += textwrap.wrap(text, _WIDTH, initial_indent="- ", subsequent_indent="  ")
    if found.verdict:
        lines += ["", *textwrap.wrap(found.verdict, _WIDTH)]
    return "\n".join(lines) + "\n"


def reproduction_to_json(found: Reproduction) -> str:
    """The same as a JSON document, each row with its difference."""
    plain: dict[str, Any] = msgspec.to_builtins(found)
    if not found.panels:
        del plain["panels"]
    for row, plain_row in zip(found.rows, plain["rows"], strict=True):
        plain_row["difference"] = row.difference
    return msgspec.json.format(msgspec.json.encode({"schema": 1, **plain})).decode() + "\n"


def _row(row: Reproduced) -> tuple[str, str, str, str, str]:
    difference = "-" if row.difference is None else f"{row.difference:+.1%}"
    return row.quantity, _figure(row.published, row.unit), _figure(row.ours, row.unit), difference, row.note


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{text} {unit}".rstrip()
