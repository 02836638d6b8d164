"""Texts as escaped HTML, values with typographic signs."""

import re
from collections.abc import Iterable
from html import escape

from presilicon.report.headline import Part

_SIGNS = (
    (re.compile(r"\bus\b"), "µs"),
    (re.compile(r"\buJ\b"), "µJ"),
    (re.compile(r"\bum2\b"), "µm²"),
    (re.compile(r"\bmm2\b"), "mm²"),
    (re.compile(r"\[(.+)-(.+)\]"), r"[\1–\2]"),
    (re.compile(r"^-$"), "–"),
)


def typeset(value: str) -> str:
    """A value as escaped HTML with proper micro signs, squares and dashes, which does not break into lines.

    >>> typeset("21.3 us [20.1-22]")
    '21.3\\xa0µs\\xa0[20.1–22]'
    """
    return prose(value).replace(" ", "\N{NO-BREAK SPACE}")


def prose(text: str) -> str:
    """A text with values as escaped HTML with the same signs, which may break into lines."""
    for pattern, sign in _SIGNS:
        text = pattern.sub(sign, text)
    return escape(text)


def sentence(parts: Iterable[Part]) -> str:
    """A sentence with its names and values marked up."""
    pieces = []
    for part in parts:
        match part.kind:
            case "name":
                pieces.append(f"<b>{escape(part.text)}</b>")
            case "value":
                pieces.append(f'<span class="value">{typeset(part.text)}</span>')
            case _:
                pieces.append(escape(part.text))
    return "".join(pieces)
