"""An aggregation in one file outside the package, used through the command line."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interpreter import Interpreter

TOY = """
from presilicon.instrument import Aggregation, AggregationCode, Firmware, accumulate, decode_named
from presilicon.records import ReadingFigure


def build(hardware, row=0):
    fw = Firmware()
    with fw.chain():
        fw.abs()
        fw.save()
    with fw.chain():
        fw.load()
        accumulate(fw, row)
    return AggregationCode(fw, decode_named(["sum_of_magnitudes"]))


MAGNITUDE = Aggregation(
    gives="the sum of magnitudes",
    build=build,
    options=("row",),
    figures=(ReadingFigure("sum_of_magnitudes", "Sum of magnitudes"),),
)
"""
DESIGN = """
name = "toy"
base = "bf16-systolic"

[instrument.hardware]
lanes = 8
element = "float32"

[[instrument.taps]]
name = "into"
layers = "output"
aggregation = "magnitude"
options = { row = 1 }
every = 5
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the file and the metadata that an installed package has."""
    directory = tmp_path_factory.mktemp("toy")
    (directory / "toy.py").write_text(TOY)
    (directory / "design.toml").write_text(DESIGN)
    metadata = directory / "toy-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text("[presilicon.aggregations]\nmagnitude = toy:MAGNITUDE\n")
    return directory


@pytest.fixture(scope="module")
def presilicon(toy: Path) -> Iterator[Callable[..., str]]:
    """Runs a command where the package is installed, and returns its output."""
    with Interpreter(os.environ | {"PYTHONPATH": os.pathsep.join([str(toy), *sys.path])}, toy) as interpreter:

        def run(*arguments: str) -> str:
            outcome = interpreter.presilicon(*arguments)
            assert outcome.status == 0, outcome
            return outcome.out

        yield run


def test_it_is_listed_with_its_options_and_costs(presilicon) -> None:
    listed = json.loads(presilicon("list", "aggregations", "--json"))["aggregations"]
    assert listed[-1] == {"name": "magnitude", "options": ["row"], "description": "the sum of magnitudes"}
    (row,) = [
        row
        for row in json.loads(presilicon("instrument", "list", "--json"))["aggregations"]
        if row["name"] == "magnitude"
    ]
    assert (row["gives"], row["pairs"], row["chains"], row["refused"]) == ("the sum of magnitudes", False, 2, None)


def test_it_watches_a_training_and_is_shown_in_the_run_and_its_report(toy: Path, presilicon) -> None:
    presilicon(
        "evaluate", "design.toml", "--workload", "digits-mlp", "--seeds", "1", "--max-steps", "30",
        "--evaluate-every", "10", "--jobs", "1", "--out", "runs",
    )  # fmt: skip
    events = json.loads(presilicon("runs", "export", "latest", "--format", "json", "--out", "runs"))["events"]
    readings = [event for event in events if event["event"] == "instrument"]
    assert [reading["step"] for reading in readings] == [0, 5, 10, 15, 20, 25]
    assert all(reading["aggregation"] == "magnitude" for reading in readings)
    assert all(reading["values"]["sum_of_magnitudes"] > 0 for reading in readings)
    assert "toy seed 0: 30 steps" in presilicon("runs", "show", "latest", "--out", "runs")
    assert "sum_of_magnitudes" in presilicon("instrument", "watch", "latest", "--once", "--out", "runs")
    (report,) = (toy / "runs").glob("*/report.html")
    assert "Sum of magnitudes of the activation" in report.read_text()
