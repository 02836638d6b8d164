"""Training with operators: by themselves and in the numerics, the same bits."""

from dataclasses import replace

import pytest
from torch import nn

import presilicon as ps
from presilicon.base import ConfigError
from presilicon.designs import Numerics, Operators, OperatorSpec
from presilicon.emulation import Checkpoint
from presilicon.ops import operator, piecewise_linear


def model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))


WORKLOAD = replace(ps.load_workload("digits-mlp"), name="digits-tanh", model=model, max_steps=20, target=1.0)


@operator("tanh")
def approximate_tanh(x):
    size = abs(x)
    return x * (1 - size / 4) if size < 2 else 1.0 if x > 0 else -1.0


@operator("tanh", backward="exact")
def with_exact_backward(x):
    return approximate_tanh(x)


def test_an_operator_changes_the_bits_and_both_ways_of_giving_it_are_one() -> None:
    exact = ps.train(WORKLOAD, Numerics())
    given = ps.train(WORKLOAD, Numerics(), operators=[piecewise_linear("tanh", -4, 4, 8)])
    spec = OperatorSpec(kind="piecewise-linear", low=-4, high=4, pieces=8)
    named = ps.train(WORKLOAD, Numerics(operators=Operators(tanh=spec)))
    assert given.losses == named.losses
    assert given.losses != exact.losses
    assert given.losses[-1] < given.losses[0]


def test_the_backward_pass_matters() -> None:
    derived, exact = (
        ps.train(WORKLOAD, Numerics(), operators=[chosen]) for chosen in (approximate_tanh, with_exact_backward)
    )
    assert derived.losses[0] == exact.losses[0]
    assert derived.losses[1:] != exact.losses[1:]


def test_a_reference_names_it_in_a_design() -> None:
    numerics = Numerics(operators=Operators(tanh=OperatorSpec(source=approximate_tanh.reference)))
    by_name = ps.train(WORKLOAD, numerics)
    assert by_name.losses == ps.train(WORKLOAD, Numerics(), operators=[approximate_tanh]).losses


def test_a_checkpoint_is_of_its_operators(tmp_path) -> None:
    checkpoint = Checkpoint(tmp_path / "run")
    ps.train(WORKLOAD, Numerics(), operators=[approximate_tanh], checkpoint=checkpoint)
    with pytest.raises(ConfigError):
        ps.train(WORKLOAD, Numerics(), operators=[with_exact_backward], checkpoint=checkpoint)
