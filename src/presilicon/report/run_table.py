"""Recorded runs as a table with a row per design: metrics, filters and orders."""

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from math import inf, isnan, nan
from typing import IO, Any, NamedTuple

from msgspec import Struct

from presilicon import base
from presilicon.base import DOCUMENT_SCHEMA, ConfigError, columns, json_text, parse_condition, unknown
from presilicon.records import Interval, Result
from presilicon.report.history import config_names, results_of, run_summary, run_title
from presilicon.report.intervals import NEVER, format_metric
from presilicon.runs import StoredRun


class RunMetric(NamedTuple):
    """A number of a design's result: infinite for a target that was never held, NaN if it is unknown."""

    title: str
    value: Callable[[Result], float]
    write: Callable[[float], str] | None = None
    """None for values of the workload's own metric."""

    def format(self, result: Result) -> str:
        """The value as text."""
        value = self.value(result)
        if isnan(value) or value == inf:
            return "-" if isnan(value) else NEVER
        return format_metric(value, result) if self.write is None else self.write(value)


def _median(interval: Interval) -> float:
    return inf if interval.median is None else interval.median


def _reached(result: Result) -> float:
    return sum(seed.steps_to_accuracy is not None for seed in result.seeds) / max(len(result.seeds), 1)


METRICS = {
    "accuracy": RunMetric("metric", lambda result: nan if result.value is None else result.value),
    "steps": RunMetric("steps to acc.", lambda result: _median(result.steps_to_accuracy), base.format_count),
    "time_s": RunMetric("time to acc.", lambda result: _median(result.time_to_accuracy_s), base.format_seconds),
    "energy_j": RunMetric("energy to acc.", lambda result: _median(result.energy_to_accuracy_j), base.format_joules),
    "reached": RunMetric("reached", _reached, base.format_percent),
    "seeds": RunMetric("seeds", lambda result: len(result.seeds), base.format_count),
    "target": RunMetric("target", lambda result: result.target),
    "time_per_step_s": RunMetric("time/step", lambda result: result.time_per_step_s, base.format_seconds),
    "energy_per_step_j": RunMetric("energy/step", lambda result: result.energy_per_step_j, base.format_joules),
    "memory_bytes": RunMetric("memory", lambda result: result.memory_bytes, base.format_bytes),
    "area_mm2": RunMetric("area", lambda result: nan if result.area_mm2 is None else result.area_mm2, base.format_area),
}
"""Numbers by which runs are filtered, sorted and compared; medians over seeds where seeds differ."""

_SHOWN = ("accuracy", "steps", "time_s", "energy_j", "reached")


class RunQuery(Struct, frozen=True, kw_only=True):
    """The runs and designs to list, as a user writes it; patterns may contain `*` and `?`."""

    name: str = "*"
    """Of the run's directory, or the one that a user gave it."""
    design: str = "*"
    workload: str = "*"
    tags: tuple[str, ...] = ()
    since: str | None = None
    where: tuple[str, ...] = ()
    """Conditions such as `accuracy>=0.9`."""
    sort: str = "created"
    reverse: bool = False


class RunRow(NamedTuple):
    """A design of a run, with its result if there is one."""

    run: StoredRun
    design: str
    workload: str
    result: Result | None

    def metric(self, name: str) -> float:
        """The value of a metric; NaN without a result."""
        return nan if self.result is None else METRICS[name].value(self.result)


def select_rows(runs: Sequence[StoredRun], query: RunQuery) -> list[RunRow]:
    """The designs that a query asks for, in its order; those without the metric to sort by are last.

    Raises:
        ConfigError: a condition, the date or the metric to sort by cannot be read.
    """
    conditions, sort = [_condition(text) for text in query.where], query.sort
    since = "" if query.since is None else _utc(query.since)
    if sort != "created" and sort not in METRICS:
        raise unknown("metric of --sort", sort, ["created", *METRICS])
    rows = [
        row
        for run in runs
        if _is_wanted(run, query, since)
        for row in _rows(run)
        if _matches(query.design, row.design) and _matches(query.workload, row.workload)
        if all(holds(row) for holds in conditions)
    ]
    if sort == "created":
        return rows[::-1] if query.reverse else rows
    rest = [row for row in rows if isnan(row.metric(sort))]
    known = [row for row in rows if not isnan(row.metric(sort))]
    return [*sorted(known, key=lambda row: row.metric(sort), reverse=query.reverse), *rest]


def _condition(text: str) -> Callable[[RunRow], bool]:
    condition = parse_condition(text, METRICS, "--where")
    return lambda row: condition.holds(row.metric(condition.name))


def _utc(text: str) -> str:
    """A date in UTC, in a form that sorts with the times in records."""
    try:
        date = datetime.fromisoformat(text)
        return (date.astimezone(UTC).replace(tzinfo=None) if date.tzinfo else date).isoformat()
    except (ValueError, OverflowError):
        raise ConfigError(f"--since must be a date such as 2026-11-15 or 2026-11-15T07:45, not {text[:80]!r}") from None


def _is_wanted(run: StoredRun, query: RunQuery, since: str) -> bool:
    began = run.record.created if run.record else ""
    named = any(_matches(query.name, name) for name in (run.name, run.labels.name or ""))
    return named and set(query.tags) <= set(run.labels.tags) and began >= since


def _matches(pattern: str, text: str) -> bool:
    return text == pattern or fnmatchcase(text, pattern)  # names of varied designs contain brackets


def _rows(run: StoredRun) -> list[RunRow]:
    designs, workload = config_names(run)
    rows = [RunRow(run, result.name, result.workload, result) for result in results_of(run)]
    return rows or [RunRow(run, name, workload or "", None) for name in designs or [""]]


def rows_to_json(rows: Sequence[RunRow]) -> str:
    """Runs as a JSON document, in the order of their first rows, each with the metrics of its designs."""
    runs: dict[str, dict[str, Any]] = {}
    for row in rows:
        metrics: dict[str, Any] = {}
        if row.result is not None:
            metrics = {"metric": row.result.metric, "value": row.metric("accuracy"), "direction": row.result.direction}
            metrics |= {name: row.metric(name) for name in METRICS if name != "accuracy"}
        run = runs.setdefault(row.run.name, run_summary(row.run) | {"results": []})
        run["results"].append({"design": row.design, "workload": row.workload, **metrics})
    return json_text({"schema": DOCUMENT_SCHEMA, "runs": list(runs.values())})


def print_rows(rows: Sequence[RunRow], file: IO[str] | None = None) -> None:
    """Write a line for each design of each run."""
    header = ("run", "status", "name, #tags", "workload", "design", *(METRICS[name].title for name in _SHOWN))
    table = [header, *((row.run.name, row.run.status, row.run.labelled, row.workload, *_cells(row)) for row in rows)]
    (file or sys.stdout).write("\n".join([*columns(table, left=range(5)), ""]))


def _cells(row: RunRow) -> tuple[str, ...]:
    if row.result is None:
        return row.design or run_title(row.run), *("-" for _ in _SHOWN)
    measured = f"{row.result.metric} {METRICS['accuracy'].format(row.result)}"
    return row.design, measured, *(METRICS[name].format(row.result) for name in _SHOWN[1:-1]), row.result.reached
