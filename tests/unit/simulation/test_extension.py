"""A machine kind in one file outside the package works in every command that takes a design."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interpreter import Interpreter

KIND = '''
from msgspec import Struct

from presilicon.base import ConfigError
from presilicon.designs import Machine, MachineStep, StepPrice, op_cost


class FixedRate(
    Machine, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="fixed-rate"
):
    """Every op takes its FLOPs at one rate and one energy, one op after another."""

    flops_s: float
    pj_per_flop: float = 1.0

    def check_design(self, design):
        if design.numerics.weight.bits_per_element > 16:
            raise ConfigError("a fixed-rate machine holds at most 16 bits")

    def price(self, step: MachineStep) -> StepPrice:
        ops, now = [], 0.0
        for op in step.executed:
            time_s = op.flops / self.flops_s
            energy_j = op.flops * self.pj_per_flop * 1e-12
            ops.append(
                op_cost(op, unit="rate", start_s=now, time_s=time_s, energy_j=energy_j, compute_s=time_s,
                        peak_flops_s=self.flops_s)
            )
            now += time_s
        return StepPrice(ops=tuple(ops), time_s=now, energy_by_component_j={"rate": sum(op.energy_j for op in ops)})
'''
DESIGN = """
name = "toy"
numerics = "bf16"

[machine]
kind = "fixed-rate"
flops_s = 2e9
"""
MISNAMED = "toy:FixedRate\nother-name = toy:FixedRate"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder that holds an installed package with the kind, and a design that uses it."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "toy.py").write_text(KIND)
    (folder / "toy.toml").write_text(DESIGN)
    (folder / "misnamed.toml").write_text(DESIGN.replace("fixed-rate", "other-name"))
    info = folder / "toy-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[presilicon.machines]\nfixed-rate = {MISNAMED}\n")
    return folder


def environment_of(folder: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])}


@pytest.fixture(scope="module")
def presilicon(folder: Path) -> Iterator[Callable[..., str]]:
    """Runs a command beside the package: its output, or the error if it must fail."""
    with Interpreter(environment_of(folder), folder) as interpreter:

        def run(*arguments: str, status: int = 0) -> str:
            outcome = interpreter.presilicon(*arguments)
            assert outcome.status == status, outcome
            return outcome.err if status else outcome.out

        yield run


def test_its_design_is_checked_and_shown(presilicon) -> None:
    assert presilicon("design", "validate", "toy.toml") == "toy.toml: ok (toy)\n"
    assert "flops_s = 2000000000.0\npj_per_flop = 1.0\n" in presilicon("design", "show", "toy.toml")


def test_it_is_listed_beside_the_kinds_of_the_package(presilicon) -> None:
    machines = json.loads(presilicon("list", "machines", "--json"))["machines"]
    assert [machine["name"] for machine in machines[:3]] == ["systolic", "caterpillar", "roofline"]
    assert machines[3] == {
        "name": "fixed-rate",
        "description": "Every op takes its FLOPs at one rate and one energy, one op after another.",
        "designs": [],
    }


def test_it_prices_a_step(presilicon) -> None:
    arguments = ["simulate", "toy.toml", "--workload", "digits-mlp", "--set", "machine.flops_s=1e9", "--json"]
    (cost,) = json.loads(presilicon(*arguments))["designs"]
    flops = sum(op["flops"] for op in cost["ops"])
    assert cost["time_s"] == pytest.approx(flops / 1e9)
    assert cost["energy_by_component_j"] == {"rate": pytest.approx(flops * 1e-12)}


def test_it_is_evaluated_in_worker_processes(presilicon) -> None:
    steps = ["--max-steps", "60", "--evaluate-every", "20", "--seeds", "2", "--jobs", "2"]
    design = ["evaluate", "toy.toml", "--workload", "digits-mlp", *steps, "--out", "runs", "--json"]
    result = json.loads(presilicon(*design))
    assert "toy" in json.dumps(result)
    assert "not known: the machine gives none" in json.dumps(result)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["design", "validate", "toy.toml", "--set", "machine.flop_s=1"],
            'unknown key "flop_s": did you mean "flops_s"?',
        ),
        (["design", "validate", "toy.toml", "--set", "machine.flops_s=fast"], "given 'fast', expected float"),
        (["design", "validate", "toy.toml", "--set", "machine.kind=fixed-rat"], 'did you mean "fixed-rate"?'),
        (["design", "validate", "toy.toml", "--set", "numerics.weight=float32"], "holds at most 16 bits"),
        (["design", "validate", "misnamed.toml"], 'must be a struct with tag_field="kind", tag="other-name"'),
        (["simulate", "toy.toml", "--gemm", "4x4x4", "--array", "4x4"], "is a fixed-rate"),
        (["simulate", "toy.toml", "--gemm", "4x4x4", "--frames", "f.json"], "a machine of kind fixed-rate has none"),
    ],
)
def test_what_it_cannot_do_is_explained(presilicon, arguments, sentence) -> None:
    assert sentence in presilicon(*arguments, status=2)


@pytest.mark.parametrize(
    ("price", "sentence"),
    [
        ("StepPrice(ops=ops, time_s=float('nan'), energy_by_component_j={'a': 1.0})", "at least 0, not nan s"),
        ("StepPrice(ops=ops, time_s=-1.0, energy_by_component_j={'a': 1.0})", "not -1 s"),
        ("StepPrice(ops=ops, time_s=1.0, energy_by_component_j={'a': float('inf')})", "and inf J"),
        ("StepPrice(ops=ops[1:], time_s=1.0, energy_by_component_j={})", "a cost for each executed op"),
        ("None", "must return a StepPrice, not None"),
        ("1 / 0", 'machine kind "bad" of bad (bad:Bad) failed: ZeroDivisionError'),
    ],
)  # fmt: skip
def test_a_price_that_makes_no_sense_is_refused(tmp_path, price, sentence) -> None:
    start = KIND.index("    def price")
    source = KIND[:start].replace("FixedRate", "Bad").replace("fixed-rate", "bad")
    cost = 'op_cost(op, unit="u", start_s=0, time_s=1, energy_j=1, compute_s=1, peak_flops_s=1)'
    body = f"    def price(self, step):\n        ops = tuple({cost} for op in step.executed)\n        return {price}\n"
    (tmp_path / "bad.py").write_text(source + body)
    (tmp_path / "bad.toml").write_text(DESIGN.replace("fixed-rate", "bad"))
    info = tmp_path / "bad-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[presilicon.machines]\nbad = bad:Bad\n")
    command = [sys.executable, "-m", "presilicon", "simulate", "bad.toml", "--gemm", "4x4x4"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment_of(tmp_path), check=False
    )
    assert done.returncode == 2
    assert sentence in done.stderr
