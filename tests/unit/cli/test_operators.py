"""Operators on the command line: in a user's model, and in a design file."""

from pathlib import Path

import pytest

WORKLOAD = """
from dataclasses import replace
from torch import nn
import presilicon as ps


@ps.operator
def centred(x: "... n") -> "... n":
    return x[..., n] - sum(x[..., j] for j in range(N)) / N


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(64, 16), nn.Linear(16, 10)

    def forward(self, x):
        return self.outer(centred(self.inner(x.flatten(1))).relu())


workload = replace(ps.load_workload("digits-mlp"), name="mine", model=Net, max_steps=30)
"""
OPERATORS = """
import presilicon as ps


@ps.operator("relu")
def clipped(x):
    return min(max(x, 0.0), 6.0)
"""
DESIGN = 'base = "{base}"\nname = "mine"\n[numerics.operators]\n"relu" = "my_ops.py:clipped"\n'


@pytest.mark.parametrize("base", ["fp32-systolic", "caterpillar-small", "h200"])
def test_a_users_model_and_design_with_operators_are_simulated(invoke, base: str) -> None:
    Path("mine.py").write_text(WORKLOAD)
    Path("my_ops.py").write_text(OPERATORS)
    Path("mine.toml").write_text(DESIGN.format(base=base))
    outcome = invoke("simulate", "mine.toml", "--workload", "mine.py", "--ops", "50")
    assert outcome.code == 0, outcome.err
    for name in ("centred", "centred_backward", "clipped", "clipped_backward"):
        assert any(line.split()[0].endswith(f".{name}") for line in outcome.out.splitlines() if line.split()), name


def test_a_design_with_an_operator_is_evaluated(invoke) -> None:
    Path("mine.py").write_text(WORKLOAD)
    Path("my_ops.py").write_text(OPERATORS)
    Path("mine.toml").write_text(DESIGN.format(base="fp32-systolic"))
    outcome = invoke("evaluate", "mine.toml", "--workload", "mine.py", "--seeds", "1")
    assert outcome.code == 0, outcome.err
    Path("my_ops.py").write_text(OPERATORS.replace("min(", "mim("))
    outcome = invoke("evaluate", "mine.toml", "--workload", "mine.py", "--seeds", "1")
    assert outcome.code != 0
    assert 'my_ops.py, line 7: there is no "mim" here' in outcome.err
