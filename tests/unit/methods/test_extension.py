"""A training method in one file outside the package changes steps and cost, and survives a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interpreter import Interpreter

METHOD = '''
"""A method that computes gradients in every second step only, and repeats the last ones in between."""

from msgspec import Struct
from msgspec.structs import replace

from presilicon.designs import AttachedMethod, Method
from presilicon.records import Op


class RepeatedGradients(
    Method, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name", tag="repeated-gradients"
):
    """Uses each gradient several times."""

    in_training = "stale gradients"
    in_hardware = "no backward pass in most steps; gradients are copied"

    times: int = 2

    def attach(self, training):
        return Repeating(self.times, training.model)

    def rewrite(self, graph, facts, capture):
        if not facts.backward_skipped:
            return graph
        copies = [
            Op(index=len(graph.ops) + number, name=f"repeat{number}", kind="copy", operator="toy.repeat",
               phase="update", layer="", inputs=(tensor,), outputs=(tensor,), flops=0)
            for number, tensor in enumerate(graph.parameters)
        ]
        return replace(graph, ops=(*graph.ops, *copies))


class Repeating(AttachedMethod):
    def __init__(self, times, model):
        self.times, self.model, self.gradients = times, model, []

    def backward(self, step, proceed):
        if step.number % self.times == 0:
            proceed()
            self.gradients = [parameter.grad / step.gradient_scale for parameter in self.model.parameters()]
        else:
            for parameter, gradient in zip(self.model.parameters(), self.gradients):
                parameter.grad = gradient * step.gradient_scale

    def state_dict(self):
        return {"gradients": list(self.gradients)}

    def load_state_dict(self, state):
        self.gradients = [gradient.clone() for gradient in state["gradients"]]
'''
ARGUMENTS = [
    "evaluate", "bf16-systolic", "--workload", "digits-mlp", "--seeds", "1", "--jobs", "1", "--max-steps", "90",
    "--checkpoint-every", "1", "--method", "repeated-gradients", "--json",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder that holds an installed package with the method."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "repeating.py").write_text(METHOD)
    info = folder / "repeating-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: repeating\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[presilicon.methods]\nrepeated-gradients = repeating:RepeatedGradients\n")
    return folder


def environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


@pytest.fixture(scope="module")
def presilicon(folder: Path) -> Iterator[Callable[..., str]]:
    """Runs a command where the package is installed, and returns its output."""
    with Interpreter(environment(folder), folder) as interpreter:

        def run(*arguments: str) -> str:
            outcome = interpreter.presilicon(*arguments)
            assert outcome.status == 0, outcome
            return outcome.out

        yield run


def test_it_is_listed_with_its_parameters(presilicon):
    rows = json.loads(presilicon("list", "methods", "--json"))["methods"]
    [row] = [row for row in rows if row["name"] == "repeated-gradients"]
    assert row["parameters"] == {"times": 2}
    assert row["training"] == "stale gradients"


def test_it_changes_steps_and_cost_and_survives_a_kill(folder, presilicon):
    whole = json.loads(presilicon(*ARGUMENTS, "--out", "whole"))["designs"][0]
    plain = json.loads(presilicon(*ARGUMENTS[:-3], "--json", "--out", "plain"))["designs"][0]
    assert whole["seeds"][0]["curve"][-1]["value"] != plain["seeds"][0]["curve"][-1]["value"]
    # Half of the steps have no backward pass.
    assert 0.4 < whole["seeds"][0]["time_s"] / plain["seeds"][0]["time_s"] < 0.95
    assert whole["provenance"]["design"]["methods"] == [{"name": "repeated-gradients", "times": 2}]
    assert "repeating 0.1" in whole["provenance"]["extensions"]["presilicon.methods:repeated-gradients"]
    [run] = (folder / "whole").iterdir()
    assert "repeated-gradients" in (run / "report.html").read_text()

    command = [sys.executable, "-m", "presilicon", *ARGUMENTS, "--out", "killed"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, env=environment(folder)
    )
    while process.poll() is None and not list((folder / "killed").glob("*/checkpoints/*.safetensors")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    resumed = json.loads(presilicon("evaluate", "--resume", "latest", "--out", "killed", "--json"))
    assert resumed["designs"][0]["seeds"] == whole["seeds"]
