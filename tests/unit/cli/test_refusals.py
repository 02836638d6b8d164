from pathlib import Path
from typing import Any

import pytest

WORKLOAD = """
import torch
from torch import nn
from presilicon.workloads import Splits, Workload

class Distances(nn.Module):
    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.randn(3, 4))

    def forward(self, x):
        return -torch.cdist(x, self.places)

def data():
    x = torch.randn(60, 4)
    y = torch.arange(60) % 3
    return Splits((x[:40], y[:40]), (x[40:50], y[40:50]), (x[50:], y[50:]))

workload = Workload(name="distances", model=Distances, data=data, target=0.5, batch_size=10, max_steps=30)
"""


def test_products_that_emulation_does_not_reach_are_refused_before_training(tmp_path: Path, invoke: Any) -> None:
    file = tmp_path / "distances.py"
    file.write_text(WORKLOAD)
    done = invoke(
        "evaluate", "bf16-systolic", "--workload", str(file), "--seeds", "1", "--jobs", "1", "--strict-coverage",
        "--out", str(tmp_path / "runs"),
    )  # fmt: skip
    assert done.code == 2
    assert "cdist" in done.err
    assert not list((tmp_path / "runs").glob("*/events.jsonl"))


def test_a_covered_workload_passes(tmp_path: Path, invoke: Any) -> None:
    done = invoke(
        "evaluate", "bf16-systolic", "--workload", "digits-mlp", "--seeds", "1", "--jobs", "1", "--max-steps", "30",
        "--strict-coverage", "--out", str(tmp_path / "runs"),
    )  # fmt: skip
    assert done.code == 0, done.err


def test_a_step_that_does_not_fit_in_the_memory_is_said(invoke: Any) -> None:
    done = invoke("simulate", "p100", "--workload", "vgg16", "--batch", "1024", "--numerics", "fp32", "--ops", "0")
    assert done.code == 0
    assert "does not fit" in done.out
    assert "does not fit" not in invoke("simulate", "p100", "--workload", "mlp-small", "--ops", "0").out


def test_json_of_a_step_has_the_remarks_on_its_price(tmp_path: Path, invoke: Any) -> None:
    (tmp_path / "watched.toml").write_text(
        'name = "watched"\nbase = "p100"\n[machine]\nmemory_gib = 0.0001\n'
        '[[instrument.taps]]\nname = "into"\nlayers = "output"\nrole = "activation"\naggregation = "summary"\n'
    )
    arguments = ("--workload", "digits-mlp", "--set", "numerics.mac.accumulate=float16", "--json")
    remarks = invoke("simulate", str(tmp_path / "watched.toml"), *arguments).design["remarks"]
    words = "no energy of arithmetic", "MAC unit", "instrument", "does not fit", "measured on NVIDIA H200"
    assert [word in remark for word, remark in zip(words, remarks, strict=True)] == [True] * 5
    assert invoke("simulate", "bf16-systolic", "--workload", "digits-mlp", "--json").design["remarks"] == []


@pytest.mark.parametrize(
    "arguments",
    [("--accumulate", "4"), ("--set", "machine.schedule=pipelined", "--numerics", "fp16-mixed")],
)
def test_a_step_that_cannot_be_trained_is_not_priced(invoke: Any, arguments: tuple[str, ...]) -> None:
    done = invoke("simulate", "caterpillar-small", "--workload", "digits-mlp", *arguments)
    assert done.code == 2
    assert "choose another schedule" in done.err


@pytest.mark.parametrize(
    ("tap", "said", "validates"),
    [
        ('layers = "nope"\naggregation = "summary"', 'the pattern "nope" of tap "into" matches no layer', True),
        ('layers = "*"\naggregation = "summary"', "wired to 3 tensors, but the hardware has 1 taps", True),
        ('layers = "output"\naggregation = "sumary"', 'did you mean "summary"', False),
        ('layers = "output"\naggregation = "summary"\noptions = { bins = 4 }', 'unknown option "bins"', False),
        ('layers = "output"\naggregation = "summary"', "", True),
    ],
)
def test_an_instrument_that_cannot_watch_has_no_price(
    tmp_path: Path, invoke: Any, tap: str, said: str, validates: bool
) -> None:
    path = tmp_path / "watched.toml"
    path.write_text(f'name = "w"\nbase = "edge-bf16"\n[[instrument.taps]]\nname = "into"\nrole = "error"\n{tap}\n')
    done = invoke("simulate", str(path), "--workload", "digits-mlp", "--ops", "0")
    assert (done.code, said in done.err) == (2 if said else 0, True)
    done = invoke("design", "validate", str(path))
    assert done.code == (0 if validates else 2)
    assert validates or said in done.err
