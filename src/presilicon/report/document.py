"""A comparison as the JSON document that `--json` prints; `schemas/evaluate.schema.json` describes it."""

from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from presilicon.base import DOCUMENT_SCHEMA, ConfigError, json_text
from presilicon.records import Comparison, Fairness, Pair, Result, Sensitivity


class EvaluateDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The document that `presilicon evaluate --json` prints. Null stands for infinity: a target that was never held."""

    schema: Literal[2]
    designs: tuple[Result, ...]
    sensitivity: Sensitivity | None = None
    """Only with `--sensitivity`."""
    pairs: tuple[Pair, ...] = ()
    fairness: Fairness | None = None
    remarks: tuple[str, ...] = ()
    """On all designs together."""


def to_json(comparison: Comparison) -> str:
    """The comparison as a JSON document, designs in the order in which they were given.

    NaN and infinity never appear: they become null.

    >>> to_json(Comparison(designs=()))
    '{\\n  "schema": 2,\\n  "designs": []\\n}\\n'
    """
    return json_text(EvaluateDocument(**asdict(comparison) | {"schema": DOCUMENT_SCHEMA}))


def from_plain(data: Any) -> Comparison:
    """The comparison in a parsed document: the output of `to_json`, or a run's `result` event.

    Raises:
        ConfigError: it is not such a document; the message says where.

    >>> from_plain({"schema": 2, "designs": []})
    Comparison(designs=(), schema=2, sensitivity=None, pairs=(), fairness=None, remarks=())
    """
    try:
        document = msgspec.convert(data, EvaluateDocument)
    except msgspec.ValidationError as error:
        raise ConfigError(f"not a valid comparison of designs: {error}") from None
    return Comparison(
        designs=document.designs,
        sensitivity=document.sensitivity,
        pairs=document.pairs,
        fairness=document.fairness,
        remarks=document.remarks,
    )
