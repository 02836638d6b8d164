"""Predicted steps of an H200 against measured ones, on models that the calibration did not see."""

import json
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from msgspec.structs import replace

from presilicon.designs import load_design
from presilicon.records import StepGraph
from presilicon.simulation import simulate
from presilicon.workloads import capture_workload, load_workload

DATA = Path(__file__).parents[3] / "benchmarks/data/h200_steps.json"
PREDICTED = ("mlp-medium", "alexnet", "resnet50", "dcgan-generator", "bert-large", "gpt2", "lstm")


@cache
def graph_of(model: str, batch: int) -> StepGraph:
    return capture_workload(load_workload(model), batch_size=batch)


def measured_steps() -> list[dict[str, Any]]:
    return [row for row in json.loads(DATA.read_text())["rows"] if row["model"] in PREDICTED]


def errors_of(row: dict[str, Any], *settings: str) -> tuple[float, float]:
    """Relative errors of the predicted time and energy of a measured step."""
    design = load_design("h200", (*settings, "machine.layout=channels-last"), numerics=row["precision"])
    design = replace(design, machine=replace(design.machine, launch=row["mode"]))
    cost = simulate(graph_of(row["model"], row["batch"]), design)
    return cost.time_s / row["time_s"] - 1, cost.energy_j / row["energy_j"] - 1


def test_the_measurements_are_those_of_seven_models_in_two_modes() -> None:
    rows = measured_steps()
    assert len(rows) == 98
    assert {(row["precision"], row["mode"]) for row in rows} == {
        *((precision, mode) for precision in ("fp32", "tf32", "bf16") for mode in ("graph", "eager")),
        ("bf16-pure", "graph"),
    }


def test_time_is_within_15_percent_on_average_energy_within_20_and_both_within_40_at_worst() -> None:
    times, energies = zip(*(errors_of(row) for row in measured_steps()), strict=True)
    assert mean(abs(error) for error in times) <= 0.15
    assert max(abs(error) for error in times) <= 0.40
    assert mean(abs(error) for error in energies) <= 0.20
    assert max(abs(error) for error in energies) <= 0.40


def test_the_comparison_can_fail() -> None:
    """Half of the bandwidth would be noticed."""
    row = next(row for row in measured_steps() if row["model"] == "resnet50" and row["mode"] == "graph")
    assert errors_of(row, "machine.memory_gb_s=2400")[0] - errors_of(row)[0] > 0.1
