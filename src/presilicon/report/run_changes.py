"""Two recorded runs beside each other: what differs in configuration and in results."""

from collections.abc import Sequence
from math import isclose, isfinite
from typing import Any

from presilicon.base import DOCUMENT_SCHEMA, change_lines, columns, json_text
from presilicon.records import DesignChange, Interval, Result, excludes_one
from presilicon.report.fairness import format_ratio, pair_sentence
from presilicon.report.history import run_summary, run_title
from presilicon.report.run_table import METRICS
from presilicon.runs import StoredRun

Field = tuple[str, Any, Any]


def render_changes(
    first: StoredRun, second: StoredRun, configuration: Sequence[Field], designs: Sequence[DesignChange]
) -> str:
    """The differences as text: fields of the configuration, and a table for each design."""
    rows = [(letter, run.name, run.labelled, run_title(run)) for letter, run in (("A", first), ("B", second))]
    lines = [*columns(rows, left=range(4)), *_warnings(first, second), "", "configuration"]
    lines += change_lines(configuration, indent="  ") if configuration else ["  no difference"]
    for change in designs:
        lines += ["", *_design_lines(change)]
    if not designs:
        lines += ["", "no results to compare: a run has none, or they have no design in common"]
    return "\n".join([*lines, ""])


def changes_to_json(
    first: StoredRun, second: StoredRun, configuration: Sequence[Field], designs: Sequence[DesignChange]
) -> str:
    """The differences as a JSON document; null stands for a missing field, and for a target that was never held."""
    document = {
        "a": run_summary(first),
        "b": run_summary(second),
        "warnings": _warnings(first, second),
        "configuration": [{"path": path, "a": before, "b": after} for path, before, after in configuration],
        "designs": [
            {
                "a": change.first.name,
                "b": change.second.name,
                "metric": change.first.metric,
                "value": _metric("accuracy", change),
                "direction": change.first.direction,
                "metrics": {name: _metric(name, change) for name in METRICS if name != "accuracy"},
                "pair": change.pair,
                "unpaired": change.unpaired,
            }
            for change in designs
        ],
    }
    return json_text({"schema": DOCUMENT_SCHEMA, **document})


def _warnings(first: StoredRun, second: StoredRun) -> list[str]:
    """Reasons against comparing the results of two runs as they stand."""
    then, now = ({} if run.record is None else run.record.meaning for run in (first, second))
    changed = [what for what in {**then, **now} if then.get(what) != now.get(what)]
    if not changed:
        return []
    return [
        f"warning: the meaning of {' and '.join(changed)} changed between these runs; the same design or workload can "
        "have other results in B for that reason alone"
    ]


def _metric(name: str, change: DesignChange) -> dict[str, Any]:
    before, after = (METRICS[name].value(result) for result in (change.first, change.second))
    return {"a": before, "b": after, "difference": after - before, "paired_ratio": _paired_ratio(name, change)}


def _paired_ratio(name: str, change: DesignChange) -> Interval | None:
    pair = change.pair
    ratios = {"steps": change.steps_ratio} | (
        {} if pair is None else {"time_s": pair.time_ratio, "energy_j": pair.energy_ratio}
    )
    return ratios.get(name)


def _design_lines(change: DesignChange) -> list[str]:
    first, second, pair = change.first, change.second, change.pair
    title = first.name if first.name == second.name else f"{first.name} -> {second.name}"
    rows = [(title, "A", "B", "difference", "B/A on paired seeds")]
    for name, metric in METRICS.items():
        ratio = _paired_ratio(name, change)
        verdict = "" if ratio is None else f"{format_ratio(ratio)}, {'' if excludes_one(ratio) else 'not '}separated"
        rows.append(
            (
                f"  {_title(name, first)}",
                metric.format(first),
                metric.format(second),
                _difference(name, change),
                verdict,
            )
        )
    sentence = f"seeds are not paired: {change.unpaired}"
    if pair is not None:
        sentence = pair_sentence(pair.swapped if pair.losses > pair.wins else pair)
    return [*columns(rows, left=(0, 4)), sentence]


def _title(name: str, result: Result) -> str:
    """The title of a metric; the workload's own has its name and says which way is better."""
    return f"{result.metric} ({result.direction} is better)" if name == "accuracy" else METRICS[name].title


def _difference(name: str, change: DesignChange) -> str:
    """B less A: in points if both are percentages, otherwise in percent of A."""
    metric = METRICS[name]
    before, after = metric.value(change.first), metric.value(change.second)
    if isclose(before, after):
        return "same"
    if not (isfinite(before) and isfinite(after)) or before == 0:
        return "-"
    if name == "reached" or (metric.write is None and change.first.metric_is_fraction):
        return f"{100 * (after - before):+.2f} points"
    return f"{(after - before) / abs(before):+.1%}"
