"""Recorded runs for a terminal and as JSON, and reports rendered again from their results."""

import sys
from collections.abc import Sequence
from typing import IO, Any

from presilicon.base import ConfigError, columns, format_number, format_percent, json_text
from presilicon.records import Comparison, EvaluationEvent, SeedFinished, SeedRestored
from presilicon.report.charts.figure import render_figure
from presilicon.report.document import from_plain
from presilicon.report.page.page import render_page
from presilicon.report.table import render_table
from presilicon.runs import StoredRun, watch_run


def runs_to_json(runs: Sequence[StoredRun]) -> str:
    """The runs as a JSON document: name, status, kind, times, seed and hash of each."""
    document = {"schema": 1, "runs": [_summary(run) for run in runs]}
    return json_text(document)


def print_runs(runs: Sequence[StoredRun], file: IO[str] | None = None) -> None:
    """Write a line for each run: name, status, what was run."""
    rows = [("run", "status", "what"), *((run.name, run.status, _what(run)) for run in runs)]
    (file or sys.stdout).write("\n".join([*columns(rows, left=(0, 1, 2)), ""]))


def run_to_json(run: StoredRun) -> str:
    """One run as a JSON document: its record, evaluations so far, and its result or null."""
    document = {
        "schema": 1,
        "run": _summary(run) | {"config": run.record.config if run.record else None},
        "evaluations": run.events(EvaluationEvent),
        "seeds_finished": finished_seeds(run),
        "result": run.comparison(),
    }
    return json_text(document)


def print_run(run: StoredRun, file: IO[str] | None = None) -> None:
    """Write a run's record, its finished seeds, and its table if it has a result."""
    target = file or sys.stdout
    lines = [f"{name:12} {value}" for name, value in _summary(run).items() if value is not None]
    target.write("\n".join(lines) + "\n")
    done = finished_seeds(run)
    if done:
        target.write("\nseeds finished\n")
        for event in done:
            target.write(
                f"  {event.design} seed {event.seed}: {event.steps} steps, {event.ending}, {_tested(run, event)}\n"
            )
    if run.comparison() is not None:
        target.write("\n" + render_table(comparison_of(run)))
    report = run.path / "report.html"
    if report.exists():
        target.write(f"\nreport: {report}\n")


def _tested(run: StoredRun, event: SeedFinished) -> str:
    """The metric on the test split: a percentage for accuracy and other fractions."""
    workload = run.record.config.get("workload") if run.record else None
    metric = workload.get("metric") if isinstance(workload, dict) else None
    if not isinstance(metric, dict):
        return "unknown accuracy" if event.test_accuracy is None else format_percent(event.test_accuracy)
    if event.test_accuracy is None:
        return f"unknown {metric.get('name')}"
    is_fraction = (metric.get("low"), metric.get("high")) == (0, 1)
    shown = format_percent(event.test_accuracy) if is_fraction else format_number(event.test_accuracy, digits=4)
    return f"{metric.get('name')} {shown}"


def finished_seeds(run: StoredRun) -> list[SeedFinished]:
    """The seeds that finished in this run; those restored when it was resumed are not repeated."""
    return [event for event in run.events(SeedFinished) if not isinstance(event, SeedRestored)]


def comparison_of(run: StoredRun) -> Comparison:
    """The comparison that a run resulted in.

    Raises:
        ConfigError: the run has no result (yet).
    """
    plain = run.comparison()
    if plain is None:
        raise ConfigError(
            f"run {run.name} is {run.status} and has no result to show; its evaluations can be exported as csv or json"
        )
    return from_plain(plain)


def export_report(run: StoredRun, file_format: str) -> str | bytes:
    """The report of a run, rendered from its result: `html`, `png` or `svg`."""
    comparison = comparison_of(run)
    if file_format == "html":
        return render_page(comparison, watch_run(run.path))
    return render_figure(comparison, file_format)


def _summary(run: StoredRun) -> dict[str, Any]:
    record = run.record
    summary: dict[str, Any] = {"name": run.name, "status": run.status, "problem": run.problem}
    if record is not None:
        summary |= {
            "kind": record.kind,
            "what": _what(run),
            "created": record.created,
            "ended": record.ended,
            "seed": record.seed,
            "config_hash": record.config_hash,
            "commit": record.commit,
            "error": record.error,
        }
    return summary


def _what(run: StoredRun) -> str:
    if run.record is None:
        return run.problem or ""
    designs, workload = run.record.config.get("designs"), run.record.config.get("workload")
    listed = designs if isinstance(designs, list) else []
    names = ", ".join(str(design.get("name", "?")) for design in listed if isinstance(design, dict))
    return f"{names} on {workload.get('name', '?')}" if names and isinstance(workload, dict) else run.record.kind
