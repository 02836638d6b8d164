"""Predicted steps of an H200 against measured ones, on whole networks: the calibration has seen only layers."""

import json
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from msgspec.structs import replace

from presilicon.designs import load_design
from presilicon.records import StepGraph
from presilicon.simulation import simulate
from presilicon.workloads import capture_workload, load_workload

DATA = Path(__file__).parents[3] / "evidence/cards/data/h200_steps.json"
MODELS = ("mlp-medium", "alexnet", "resnet50", "dcgan-generator", "bert-large", "gpt2", "lstm", "resnet18")


@cache
def graph_of(model: str, batch: int) -> StepGraph:
    return capture_workload(load_workload(model), batch_size=batch)


def measured_steps() -> list[dict[str, Any]]:
    return [row for row in json.loads(DATA.read_text())["rows"] if row["model"] in MODELS]


def errors_of(row: dict[str, Any], *settings: str) -> tuple[float, float]:
    """Relative errors of the predicted time and energy of a measured step."""
    design = load_design("h200", (*settings, "machine.layout=channels-last"), numerics=row["precision"])
    design = replace(design, machine=replace(design.machine, launch=row["mode"]))
    cost = simulate(graph_of(row["model"], row["batch"]), design)
    return cost.time_s / row["time_s"] - 1, cost.energy_j / row["energy_j"] - 1


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_time_and_energy_are_near_what_was_measured(mode: str) -> None:
    times, energies = zip(*(errors_of(row) for row in measured_steps() if row["mode"] == mode), strict=True)
    assert mean(abs(error) for error in times) <= 0.12
    assert max(abs(error) for error in times) <= 0.45
    assert mean(abs(error) for error in energies) <= 0.16
    assert max(abs(error) for error in energies) <= 0.50


def test_the_comparison_can_fail() -> None:
    """A chip whose kernels reach their limits would be noticed."""
    row = next(row for row in measured_steps() if row["model"] == "resnet50" and row["mode"] == "graph")
    assert errors_of(row, "machine.measured=")[0] < errors_of(row)[0] - 0.3
