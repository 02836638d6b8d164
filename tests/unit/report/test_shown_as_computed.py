"""Headlines, labels, targets and titles say what was computed."""

import csv
import io
import random

import pytest
from msgspec.structs import replace

from presilicon.records import Interval, PointMeasure, PointRecord, SweepResult
from presilicon.report import headline, render_sweep
from presilicon.report.charts.front import _drawable
from presilicon.report.intervals import format_target


def with_arrivals(result, count: int):
    """A result of ten seeds, of which some arrived."""
    seeds = tuple(
        replace(result.seeds[0], seed=number, steps_to_accuracy=40.0 if number < count else None)
        for number in range(10)
    )
    never = Interval(None, None, None)
    return replace(result, seeds=seeds, reached=f"{count}/10", time_to_accuracy_s=never, energy_to_accuracy_j=never)


@pytest.mark.parametrize("counts", [(0, 0), (1, 0), (0, 1), (1, 1), (3, 0)])
def test_nobody_held_a_target_only_where_no_seed_did(comparison, counts) -> None:
    designs = tuple(with_arrivals(result, count) for result, count in zip(comparison.designs, counts, strict=False))
    text = headline(replace(comparison, designs=designs, pairs=()))
    assert ("reliably" in text) == (max(counts) > 0)
    assert (f"{max(counts)} of 10 seeds" in text) == (max(counts) > 0)


def test_targets_that_differ_read_differently(comparison) -> None:
    result = comparison.designs[0]
    targets = [0.9046, 0.9054, 0.9996, 0.97, 1.0, 0.999999]
    assert len({format_target(target, result) for target in targets}) == len(targets)
    assert format_target(0.97, result) == "97%"


def study(better: str, values: list[float | None], name: str = "error rate") -> SweepResult:
    records = tuple(
        PointRecord(
            key=str(number), number=number, design="d", workload="w", values={}, stage="trained",
            metrics={"accuracy": value, "time_s": None if value is None else 1.0, "energy_j": 1.0, "reached": 1.0},
        )
        for number, value in enumerate(values, 1)
    )  # fmt: skip
    return SweepResult(
        name="s", path=None, axes=(), objectives=("accuracy", "time_s"), limits=(), records=records,
        feasible=frozenset(record.key for record in records), front=frozenset(record.key for record in records),
        measures={"w": PointMeasure(name, better, True)}, recommendation=None, remarks=(),
    )  # fmt: skip


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_a_study_lists_its_best_points_first(better: str) -> None:
    values = [number / 100 for number in range(40)]
    random.Random(1).shuffle(values)
    text = render_sweep(study(better, values))
    numbers = [int(line.split()[1]) for line in text.splitlines() if line.startswith("* ") and "Pareto" not in line]
    shown = [values[number - 1] for number in numbers]
    assert shown == sorted(values, reverse=better == "higher")[: len(shown)]
    assert "error rate" in text
    assert "accuracy" not in text


def test_points_that_never_arrive_are_counted_beside_those_drawn() -> None:
    result = study("higher", [0.9, None, 0.8, None, None])
    assert len(_drawable(result, "time_s", "energy_j")) == 2


def test_the_metric_has_its_name_in_exported_rows(tmp_path) -> None:
    from presilicon.records import EvaluationEvent
    from presilicon.runs import create_run, export_run, load_run

    config = {"workload": {"metric": {"name": "error rate", "low": 0, "high": 1}}}
    with create_run(tmp_path, "evaluate", config, seed=0) as run:
        run.record(EvaluationEvent(design="d", seed=0, step=10, samples=320, updates=10, value=0.079, loss=0.3))
    (row,) = csv.DictReader(io.StringIO(export_run(load_run(tmp_path, "latest"), "csv")))
    assert (row["metric"], row["value"]) == ("error rate", "0.079")
    assert "accuracy" not in row
