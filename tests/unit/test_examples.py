"""The examples are run: their parts always, the whole of them with the long tests."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from presilicon.formats import NAMED_FORMATS, parse, quantize
from presilicon.study import execution

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_user_format_rounds_as_it_says() -> None:
    example = runpy.run_path(str(EXAMPLES / "user_format.py"))
    try:
        new_fp = example["NEW_FP"]
        codes = [code for code in range(256) if code & 127 <= 0b1111011]
        assert all(new_fp.convert(new_fp.as_float(code)) == code for code in codes)
        x = torch.cat([torch.randn(2000) * scale for scale in (1e-5, 1.0, 1e4, 1e6)])
        saturating = parse("float(exponent=5, mantissa=2, overflow=saturate)")
        assert torch.equal(quantize(x, new_fp), quantize(x, saturating))
        assert abs(new_fp.as_float(new_fp.mad(0x3D, 0x3D, 0x3D))) <= abs(
            new_fp.as_float(0x3D) ** 2 + new_fp.as_float(0x3D)
        )
    finally:
        NAMED_FORMATS.pop("new_fp")


def test_the_approximate_tanh_is_what_it_says() -> None:
    example = runpy.run_path(str(EXAMPLES / "approximate_tanh.py"))
    chosen = example["approximate_tanh"]
    assert chosen.breakpoints() == [-2.0, 0.0, 2.0]
    assert 0.04 < chosen.largest_error(-8, 8).error < 0.05
    for x in torch.linspace(-3, 3, 61).tolist():
        assert chosen(x) == chosen.function(x)
        assert chosen.derivative(x) == pytest.approx(max(0.0, 1 - abs(x) / 2))
        assert example["with_exact_backward"](x) == chosen(x)
    errors = {name: each.largest_error(-4, 4).error for name, each in example["OPERATORS"].items() if each}
    assert errors["8 straight pieces, minimax"] < errors["table of 16, linear"] < errors["table of 16, nearest"]


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        (
            "mixed_devices",
            {"workload": "digits-mlp", "batch_size": 16, "steps": 2},
            "ran on the slow device",
        ),
        ("offload_optimizer", {"steps": 2}, "state held by the host while training: "),
        ("clocks_under_cap", {"steps": 1, "batch_size": 8}, "MHz"),
    ],
)
def test_examples_of_the_runtime_run(name, options, line, capsys, monkeypatch) -> None:
    monkeypatch.setattr(execution, "TRIAL_S", 0.0)
    runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](**options)
    printed = capsys.readouterr().out
    assert line in printed
    if name == "offload_optimizer":
        assert int(printed.partition("while training: ")[2].split()[0]) > 0
        ours, plain = printed.splitlines()[-1].removeprefix("last loss ").split(", without the offload ")
        assert float(ours) == pytest.approx(float(plain), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_run(example: Path) -> None:
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 2
