"""Recorded runs for a terminal and as JSON, and reports rendered again from their results."""

import sys
from typing import IO, Any

from presilicon.base import (
    DOCUMENT_SCHEMA,
    ConfigError,
    format_number,
    format_percent,
    json_text,
    meaning_changes,
    pick,
)
from presilicon.records import Comparison, EvaluationEvent, FindingEvent, Result, SeedFinished, SeedRestored
from presilicon.report.charts.figure import render_figure
from presilicon.report.document import from_plain
from presilicon.report.findings import explain, first_finding
from presilicon.report.page.page import render_page
from presilicon.report.table import render_table
from presilicon.runs import StoredRun, watch_run


def run_to_json(run: StoredRun) -> str:
    """One run as a JSON document: its record, evaluations so far, and its result or null."""
    document = {
        "schema": DOCUMENT_SCHEMA,
        "run": run_summary(run) | {"config": run.record.config if run.record else None},
        "evaluations": run.events(EvaluationEvent),
        "seeds_finished": finished_seeds(run),
        "result": run.comparison(),
    }
    return json_text(document)


def print_run(run: StoredRun, file: IO[str] | None = None) -> None:
    """Write a run's record, its finished seeds, and its table if it has a result."""
    target = file or sys.stdout
    facts = run_summary(run) | {"tags": ", ".join(run.labels.tags) or None}
    lines = [f"{name:12} {value}" for name, value in facts.items() if value is not None]
    if run.record is not None and run.record.schema != DOCUMENT_SCHEMA:
        lines.append(f"note: recorded by an earlier version (schema {run.record.schema}): shown, not resumed")
    if run.record is not None and (changes := meaning_changes(run.record.meaning)):
        lines.append(
            f"note: computed under another meaning of {' and of '.join(changes)}: shown, not resumed or reused"
        )
    target.write("\n".join(lines) + "\n")
    done = finished_seeds(run)
    if done:
        target.write("\nseeds finished\n")
        for event in done:
            target.write(
                f"  {event.design} seed {event.seed}: {event.steps} steps, {event.ending}, {_tested(run, event)}\n"
            )
            finding = first_finding(
                found for found in run.events(FindingEvent) if (found.design, found.seed) == (event.design, event.seed)
            )
            if finding is not None and event.ending != "target" and run.comparison() is None:
                target.write(f"    {explain(finding)}\n")
    if run.comparison() is not None:
        target.write("\n" + render_table(comparison_of(run)))
    report = run.path / "report.html"
    if report.exists():
        target.write(f"\nreport: {report}\n")


def _tested(run: StoredRun, event: SeedFinished) -> str:
    """The metric on the test split: a percentage for accuracy and other fractions."""
    measure, value = run.measure, event.test_value
    if value is None:
        return f"unknown {measure.name}"
    shown = format_percent(value) if measure.is_fraction else format_number(value, digits=4)
    return f"{measure.name} {shown}"


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


def results_of(run: StoredRun) -> tuple[Result, ...]:
    """The results of a run's designs; empty if it has none (yet), or if they are damaged."""
    try:
        return comparison_of(run).designs
    except ConfigError:
        return ()


def run_summary(run: StoredRun) -> dict[str, Any]:
    """The facts about a run for JSON documents."""
    record = run.record
    summary: dict[str, Any] = {"name": run.name, "status": run.status, "problem": run.problem}
    summary |= {"label": run.labels.name, "tags": run.labels.tags}
    if record is not None:
        summary |= {"kind": record.kind, "what": run_title(run)}
        summary |= pick(record, "created", "ended", "seed", "config_hash", "meaning", "commit", "error")
    return summary


def run_title(run: StoredRun) -> str:
    """Designs and workload of a run, its kind if it has none, or the reason why it cannot be read."""
    if run.record is None:
        return run.problem or ""
    designs, workload = config_names(run)
    return f"{', '.join(designs)} on {workload}" if designs and workload is not None else run.record.kind


def config_names(run: StoredRun) -> tuple[list[str], str | None]:
    """The names of a run's designs and of its workload, or workloads; none and None if its configuration has none."""
    config = {} if run.record is None else run.record.config
    workloads = _names(config.get("workloads", [config.get("workload")]))
    return _names(config.get("designs")), ", ".join(workloads) or None


def _names(described: Any) -> list[str]:
    listed = described if isinstance(described, list) else []
    return [str(part.get("name", "?")) for part in listed if isinstance(part, dict)]
