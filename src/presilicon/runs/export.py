"""A run as one document: everything as JSON, or its evaluations as a CSV table."""

import csv
import io
from collections.abc import Callable
from typing import Any

import msgspec

from presilicon.base import ConfigError, json_text, unknown
from presilicon.records import EvaluationEvent
from presilicon.runs.events import read_plain_events
from presilicon.runs.run import EVENTS_FILE
from presilicon.runs.store import StoredRun

_COLUMNS = ("design", "seed", "step", "metric", "value", "time_s", "energy_j")


def export_run(run: StoredRun, format: str) -> str:
    """The run as text in one of `EXPORT_FORMATS`.

    `json` contains the record and all events. `csv` has one row per evaluation, with the name of the workload's metric
    and its value; the cost up to then (`time_s`, `energy_j`) is empty until the run has a result.

    Raises:
        ConfigError: there is no such format, or the run's record cannot be read.
    """
    if format not in _WRITERS:
        raise unknown("export format", format, _WRITERS)
    if run.record is None:
        raise ConfigError(f"{run.name} cannot be exported: {run.problem}")
    return _WRITERS[format](run)


def _as_json(run: StoredRun) -> str:
    record = msgspec.to_builtins(run.record) | {"status": run.status}
    schema = record.pop("schema")
    events = tuple(read_plain_events(run.path / EVENTS_FILE))
    document = {"schema": schema, "run": {"name": run.name, **record}, "events": events}
    return json_text(document)


def _as_csv(run: StoredRun) -> str:
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    metric = run.measure.name
    evaluations = [msgspec.to_builtins(event) for event in run.events(EvaluationEvent)]
    for row in [*evaluations, *_curve_points(run)]:
        key = tuple(row.get(column) for column in ("design", "seed", "step"))
        if not all(isinstance(value, str | int | None) for value in key):
            continue  # a damaged event
        row = {**row, "metric": metric}
        rows.setdefault(key, {}).update({column: row[column] for column in _COLUMNS if row.get(column) is not None})
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    # Evaluations that an interrupted process could not record stand at the end of the log.
    runs = list(dict.fromkeys(key[:2] for key in rows))
    writer.writerows(rows[key] for key in sorted(rows, key=lambda key: (runs.index(key[:2]), _number(key[2]))))
    return text.getvalue()


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else 0.0


def _curve_points(run: StoredRun) -> list[dict[str, Any]]:
    """The points of every curve in the run's result, each with its design and seed."""
    comparison = run.comparison() or {}
    return [
        {**point, "design": result.get("name"), "seed": seed.get("seed")}
        for result in _dicts(comparison.get("designs"))
        for seed in _dicts(result.get("seeds"))
        for point in _dicts(seed.get("curve"))
    ]


def _dicts(value: Any) -> list[dict[str, Any]]:
    """The dicts in a list; empty for anything else, such as the contents of a damaged file."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list | tuple) else []


_WRITERS: dict[str, Callable[[StoredRun], str]] = {"json": _as_json, "csv": _as_csv}
EXPORT_FORMATS: tuple[str, ...] = tuple(_WRITERS)
