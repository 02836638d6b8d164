"""The provenance of a comparison as HTML: entries that all designs share once, others side by side."""

from collections.abc import Sequence
from html import escape
from typing import Any

import msgspec

from presilicon.records import Result

_LABELS = {
    "accuracy": "Test accuracy",  # in results of schema 1
    "config_hash": "Configuration",
    "crossing": "Arrival",
    "design": "Design file",
    "energy": "Energy figures",
    "value": "Metric at the end",
}
_LONG_TEXT = 24
_MANY_ITEMS = 8
_MANY_LEAVES = 16


def render_provenance(designs: Sequence[Result]) -> str:
    """A description list of shared entries, followed by one per entry in which the designs differ."""
    keys = list(dict.fromkeys(key for result in designs for key in result.provenance))
    shared = [key for key in keys if len({_canonical(result.provenance.get(key)) for result in designs}) == 1]
    blocks = [_description([(label(key), designs[0].provenance[key]) for key in shared])] if shared else []
    for key in keys:
        if key not in shared:
            own = [(result.name, result.provenance[key]) for result in designs if key in result.provenance]
            blocks.append(f"<h3>{escape(label(key))}</h3>{_description(own)}")
    return "".join(blocks) or "<p>No provenance was recorded.</p>"


def label(key: str) -> str:
    """The heading of an entry.

    >>> label("config_hash"), label("loss_scale")
    ('Configuration', 'Loss scale')
    """
    return _LABELS.get(key, key.replace("_", " ").capitalize())


def _description(entries: Sequence[tuple[str, Any]]) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{_value(value)}</dd>" for name, value in entries)
    return f'<dl class="facts">{rows}</dl>'


def _value(value: Any) -> str:
    """A plain value as HTML: hashes as code, small dicts on one line, large ones folded."""
    match value:
        case dict() if _leaves(value) > _MANY_LEAVES:
            text = msgspec.json.format(msgspec.json.encode(value)).decode()
            return _folded(_leaves(value), f"<pre>{escape(text)}</pre>")
        case dict():
            return " ".join(_pair(str(key), item) for key, item in value.items()) or "none"
        case list() | tuple():
            items = [_value(item) for item in value]
            listing = f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"
            if len(items) > _MANY_ITEMS and max(map(len, items)) > _MANY_ITEMS:
                return _folded(len(items), listing)
            return listing if any(len(item) > _LONG_TEXT for item in items) else ", ".join(items) or "none"
        case None:
            return "none"
        case _:
            text = str(value)
            return f"<code>{escape(text)}</code>" if len(text) >= 16 and " " not in text else escape(text)


def _pair(key: str, value: Any) -> str:
    return f'<div class="pair"><b>{escape(key.replace("_", " "))}</b> {_value(value)}</div>'


def _folded(count: int, content: str) -> str:
    return f"<details><summary>{count} entries</summary>{content}</details>"


def _leaves(value: Any) -> int:
    """Number of values in a nested dict; a list counts as one."""
    return sum(map(_leaves, value.values())) if isinstance(value, dict) else 1


def _canonical(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")
