"""An override changes no bit where its layer has nothing that it governs, and the loss is a layer of its own."""

from dataclasses import replace as changed

import pytest
import torch
from msgspec.structs import replace
from torch import nn

import presilicon as ps
from presilicon.designs import Change, Numerics, Override, ProductNumerics, RoleFormat, load_recipe
from presilicon.formats import MacUnit, parse

COARSE, BF16 = (RoleFormat(parse(text)) for text in ("e5m2", "bfloat16"))
RECIPES = {
    "fp8-hybrid": load_recipe("fp8-hybrid").numerics,
    "results": Numerics(weight=BF16, activation=BF16, error=BF16, gradient=BF16, vector="round-results"),
    "random": Numerics(weight=RoleFormat(parse("e4m3"), "stochastic"), error=RoleFormat(parse("e5m2"), "stochastic")),
    "steps": Numerics(activation=BF16, error=BF16, vector="round-steps"),
    "nvfp4": load_recipe("nvfp4").numerics,
}
NOTHING_GOVERNED = [
    ("linear", {"vector": "round-results"}),
    ("relu", {"weight": COARSE, "gradient": COARSE, "master": COARSE, "state": COARSE}),
    ("relu", {"mac": MacUnit(accumulate=COARSE.format), "weight_grad": ProductNumerics(hadamard=4)}),
    ("dropout", {"activation": COARSE, "error": COARSE, "vector": "round-steps"}),
    ("unused", {"weight": COARSE, "activation": COARSE, "vector": "round-steps"}),
    ("holder", {"weight": COARSE, "activation": COARSE, "gradient": COARSE, "vector": "round-steps"}),
]
GOVERNED = {("results", "dropout"), ("steps", "dropout"), ("steps", "linear")}
"""Roundings of every result, and of the addition of a bias."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.relu, self.dropout = nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.0)
        self.unused, self.holder, self.out = nn.Linear(4, 4), nn.ParameterList([torch.ones(16)]), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.dropout(self.relu(self.linear(x.flatten(1)))) * self.holder[0])


def trained(numerics: Numerics) -> tuple[tuple[float, ...], str]:
    workload = changed(ps.load_workload("digits-mlp"), model=Net, max_steps=3, evaluate_every=3)
    trace = ps.train(workload, numerics)
    return trace.losses, str(trace.evaluations)


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_override_of_what_a_layer_does_not_have_changes_no_bit(recipe: str) -> None:
    numerics = RECIPES[recipe]
    expected = trained(numerics)
    for layer, fields in NOTHING_GOVERNED:
        if (recipe, layer) in GOVERNED:
            continue
        override = Override(layers=layer, **fields)
        found = trained(replace(numerics, overrides=(*numerics.overrides, override)))
        assert found == expected, override


def test_the_loss_is_rounded_where_its_own_layer_is() -> None:
    plain = replace(RECIPES["results"], vector="float32")
    rounded = [Override(layers=name, vector="round-results") for name in ("linear", "*")]
    expected = trained(plain)[0]
    assert trained(replace(plain, overrides=rounded[:1]))[0] == expected
    losses = torch.tensor(trained(replace(plain, overrides=rounded[1:]))[0])
    assert torch.equal(losses, losses.bfloat16().float())
    later = replace(plain, schedule=(Change(layers="*", from_step=2, vector="round-results"),))
    assert trained(later)[0][:2] == expected[:2]
