"""The result of a study as a table for people, as CSV and as JSON."""

import csv
import io
import json
from collections.abc import Sequence
from math import inf, isfinite, isnan
from statistics import median
from typing import Any

from msgspec.structs import asdict

from presilicon import base
from presilicon.base import DOCUMENT_SCHEMA, Scale, columns, format_number, json_text, pick
from presilicon.records import SIMULATED, PointMeasure, PointRecord, Recommendation, SweepResult, direction_of
from presilicon.report.intervals import NEVER
from presilicon.report.table import render_table

MOST_ROWS = 30
"""Rows of the table; a larger study shows its front first."""

_PLAIN = (Scale(1.0, ""),)
_HEADS: dict[str, tuple[str, tuple[Scale, ...]]] = {
    "accuracy": ("accuracy", _PLAIN),
    "steps": ("steps to acc.", _PLAIN),
    "time_s": ("time to acc.", base.SECONDS),
    "energy_j": ("energy to acc.", base.JOULES),
    "reached": ("reached", (Scale(0.01, "%"),)),
    "time_per_step_s": ("time/step", base.SECONDS),
    "energy_per_step_j": ("energy/step", base.JOULES),
    "time_per_sample_s": ("time/sample", base.SECONDS),
    "energy_per_sample_j": ("energy/sample", base.JOULES),
    "power_w": ("power", (Scale(1.0, "W"),)),
    "area_mm2": ("area", (Scale(1.0, "mm2"),)),
    "memory_bytes": ("memory", base.BYTES),
}
_TRAINED = ("accuracy", "reached", "time_s", "energy_j", "power_w", "area_mm2")


def metric_scale(name: str, records: Sequence[PointRecord], *, is_fraction: bool = True) -> tuple[str, Scale]:
    """The title of a metric, and one scale for all points; its unit belongs in the head of the column."""
    title, scales = _HEADS[name]
    if name == "accuracy" and is_fraction:
        return title, Scale(0.01, "%")
    values = [abs(value) for record in records if isfinite(value := record.metric(name)) and value]
    middle = median(values) if values else 1.0
    fitting = [scale for scale in scales if scale.factor <= middle and scale.unit not in ("min", "h", "d")]
    return title, fitting[-1] if fitting else scales[0]


def render_sweep(result: SweepResult) -> str:
    """The points as plain text, with marks for the front, broken limits and the recommended one, and their meaning."""
    shown = _shown(result)
    header, cells = _table(result, shown)
    left = [0, *(index for index, head in enumerate(header) if head in ("workload", "design"))]
    lines = columns([header, *cells], left=left)
    chosen = [] if result.recommendation is None else ["", *render_recommendation(result.recommendation)]
    return "\n".join([*lines, "", *_summary(result, len(shown)), *chosen]) + "\n"


def render_recommendation(recommendation: Recommendation) -> list[str]:
    """The recommended design, how it compares with the reference and the other finalists, and what would change it."""
    by, name = recommendation.by, recommendation.design
    trained = f", trained with {recommendation.options}" if recommendation.options else ""
    lines = [f"recommended: {name}, in {recommendation.file}{trained}", ""]
    lines += render_table(recommendation.comparison).split("\n")
    for pair in recommendation.comparison.pairs:
        ratio = pair.time_ratio if by == "time" else pair.energy_ratio
        if {pair.first, pair.second} == {recommendation.reference, name} and ratio is not None:
            inverted = pair.first != name
            median, low, high = (_inverse(end) if inverted else end for end in (ratio.median, ratio.low, ratio.high))
            low, high = (high, low) if inverted else (low, high)
            ends = "" if not low or high is None or high == inf else f" ({format_number(low)}-{format_number(high)})"
            seeds = f"{pair.seeds} paired seeds" if ends else f"{pair.seeds} paired seeds, too few to decide"
            text = NEVER if median is None else format_number(median)
            lines.append(f"{recommendation.reference} takes {text}{ends} times its {by} to accuracy, over {seeds}")
    lines.append("what would change the answer:")
    for relaxation in recommendation.relaxations:
        lines.append(
            f"  without {relaxation.condition}: {_point(relaxation.number)} ({format_number(relaxation.value)}) takes "
            f"1/{format_number(relaxation.gain)} of the {by} "
            + ("per sample and trains alike" if relaxation.trains_alike else "to accuracy")
        )
    limited = {relaxation.condition for relaxation in recommendation.relaxations}
    lines += [
        f"  {limit}: refuses no cheaper "
        + ("point that trains alike" if limit.partition(" ")[0] in SIMULATED else "design that was trained")
        for limit in recommendation.limits
        if limit not in limited
    ]
    if recommendation.breaches is None:
        return [*lines, "  figures of the technology tables: not varied; --sensitivity does"]
    for breach in recommendation.breaches:
        lines.append(
            f"  {breach.technology}: {breach.entry} x {breach.factor:g} breaks {breach.condition} "
            f"({format_number(breach.value)})"
        )
    return (
        lines if recommendation.breaches else [*lines, "  no figure of the technology table x 2 or / 2 breaks a limit"]
    )


def _point(number: int) -> str:
    return f"point {number}" if number else "the reference"


def _inverse(value: float | None) -> float | None:
    return inf if value == 0 else 0.0 if value is None else 1 / value


def _shown(result: SweepResult) -> list[PointRecord]:
    """All points of a small study, the front of a large one; best first."""

    def order(record: PointRecord) -> tuple[str, float]:
        name = result.objectives[0]
        value = record.metric(name)
        return record.workload, inf if isnan(value) else -value if is_to_be_high(result, record, name) else value

    records = [record for record in result.records if not record.error]
    if len(records) > MOST_ROWS:
        trained = [record for record in records if record.stage == "trained"]
        records = trained if 0 < len(trained) <= MOST_ROWS else [r for r in records if r.key in result.front]
    return sorted(records, key=order)[:MOST_ROWS]


def is_to_be_high(result: SweepResult, record: PointRecord, name: str) -> bool:
    """Whether a higher value of a metric is the better one at a point."""
    return direction_of(name, result.measure_of(record).direction) == "higher"


def _table(result: SweepResult, shown: Sequence[PointRecord]) -> tuple[list[str], list[list[str]]]:
    several = [name for name in ("workload", "design") if len({getattr(r, name) for r in result.records}) > 1]
    names = _columns(result)
    fraction = all(measure.is_fraction for measure in result.measures.values())
    scales = {name: metric_scale(name, shown, is_fraction=fraction) for name in names}
    if "accuracy" in scales:
        scales["accuracy"] = (measure_name(result), scales["accuracy"][1])
    titles = [_title(path, result.axes) for path in result.axes]
    heads = [f"{title}{f' ({scale.unit})' if scale.unit else ''}" for title, scale in scales.values()]
    cells = []
    for record in shown:
        mark = _mark(result, record)
        values = [_text(record.values.get(path)) for path in result.axes]
        metrics = [_cell(record.metric(name), scales[name][1]) for name in names]
        identity = [str(getattr(record, name)).rpartition("/")[2] for name in several]
        cells.append([mark, str(record.number), *identity, *values, *metrics])
    return [" ", "point", *several, *titles, *heads], cells


def measure_name(result: SweepResult) -> str:
    """The name of the metric of all workloads, or `metric` if they differ."""
    names = {measure.name for measure in result.measures.values()} or {"accuracy"}
    return names.pop() if len(names) == 1 else "metric"


def _mark(result: SweepResult, record: PointRecord) -> str:
    if result.recommendation is not None and record.number == result.recommendation.number:
        return ">"
    return "*" if record.key in result.front else " " if record.key in result.feasible else "x"


def _columns(result: SweepResult) -> list[str]:
    """The metrics to show: the objectives and what people ask for next."""
    names = result.metric_names
    if "time_s" in names and result.recommendation is None:
        wanted: tuple[str, ...] = _TRAINED
    else:
        wanted = ("power_w", "area_mm2", "memory_bytes")
    return [name for name in dict.fromkeys([*result.objectives, *wanted]) if name in names]


def _title(path: str, axes: Sequence[str]) -> str:
    """The last part of a path, if no other axis ends like that."""
    last = path.rpartition(".")[2]
    return path if sum(axis.rpartition(".")[2] == last for axis in axes) > 1 else last


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "+".join(map(_text, value)) or "none"
    if isinstance(value, str):
        return value.rpartition("/")[2] if value.endswith(".toml") else value
    return format_number(value, digits=4) if isinstance(value, float) else "-" if value is None else str(value)


def _cell(value: float, scale: Scale) -> str:
    if isnan(value):
        return "-"
    return format_number(scale.apply(value)) if isfinite(value) else NEVER


def _summary(result: SweepResult, shown: int) -> list[str]:
    total, failed = len(result.records), [record for record in result.records if record.error]
    objectives = ", ".join(
        measure_name(result) if name == "accuracy" else _HEADS[name][0] for name in result.objectives
    )
    lines = [] if result.recommendation is None else ["> recommended"]
    lines.append(f"* on the Pareto front of {objectives}: {len(result.front)} of {total} points")
    if result.limits:
        broken = total - len(failed) - len(result.feasible)
        lines.append(f"x breaks a limit ({'; '.join(result.limits)}): {broken} points")
    if shown < total - len(failed):
        lines.append(f"{shown} points shown; table.csv has all {total}")
    if failed:
        lines.append(f"{len(failed)} points failed; the first, {failed[0].number}: {failed[0].error}")
    return [*lines, *result.remarks]


def sweep_to_csv(result: SweepResult) -> str:
    """The table with a row per point, for pandas and spreadsheets."""
    rows = result.rows()
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _csv(value) for key, value in row.items()})
    return text.getvalue()


def _csv(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def sweep_to_json(result: SweepResult) -> str:
    """The result as a JSON document; infinite numbers are null."""
    study, recommended = pick(result, "name", "objectives", "limits"), result.recommendation
    answer = None
    if recommended is not None:
        first = recommended.comparison.designs[0]
        measure = PointMeasure(first.metric, first.direction, first.metric_is_fraction)
        answer = asdict(recommended) | {"metrics": measure.fields(recommended.metrics)}
    rest = {"points": result.rows(), "recommendation": answer, "remarks": result.remarks}
    return json_text({"schema": DOCUMENT_SCHEMA, **study, **rest})
