"""Activation checkpointing with stochastic rounding: a recomputation repeats the random numbers of the forward pass."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from presilicon.base import ConfigError
from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation import emulate_
from presilicon.emulation.emulation import UncoveredWarning
from presilicon.formats import MacUnit, parse

RANDOM = RoleFormat(parse("e4m3"), "stochastic")
ALL = Numerics(weight=RANDOM, activation=RANDOM, error=RANDOM, gradient=RANDOM)
NUMERICS = {
    "products": ALL,
    "results": Numerics(weight=RANDOM, activation=RANDOM, error=RANDOM, gradient=RANDOM, vector="round-results"),
    "sums": Numerics(mac=MacUnit(accumulate=parse("bfloat16"), rounding="stochastic")),
}


class Block(nn.Module):
    """Parts that run out of order in a recomputation: a layer that runs twice, tied weights, shared inputs."""

    def __init__(self, kind: str, checkpointed: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.own = nn.Parameter(torch.randn(8, 8))
        if kind == "tied":
            self.second.weight = self.first.weight
        self.kind, self.checkpointed = kind, checkpointed

    def run(self, part, *args):
        return checkpoint(part, *args, use_reentrant=False) if self.checkpointed else part(*args)

    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(torch.tanh(self.first(x)))

    def both(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))

    def with_own(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.first(x)) @ self.own

    def nested(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(self.run(self.twice, self.first(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "shared input":
            x = torch.tanh(x)
            return self.run(self.first, x) + self.run(self.second, x) + self.run(self.second, x)
        part = {"twice": self.twice, "tied": self.both, "own": self.with_own, "nested": self.nested}[self.kind]
        for _ in range(2):
            x = self.run(part, x)
        return self.run(part, x)


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("kind", ["twice", "tied", "own", "nested", "shared input"])
def test_checkpointing_changes_no_bit(kind: str, numerics: str) -> None:
    x = torch.randn(5, 8)
    results = []
    for checkpointed in (False, True):
        model = emulate_(Block(kind, checkpointed), NUMERICS[numerics])
        for _ in range(2):
            model.zero_grad()
            model(x).square().sum().backward()
        results.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in results[0].items():
        assert (gradient is None and results[1][name] is None) or torch.equal(gradient, results[1][name]), name


def test_a_region_around_several_forward_passes_repeats_each() -> None:
    x = torch.randn(5, 8)
    results = []
    for checkpointed in (False, True):
        model = emulate_(Block("twice", False), ALL)
        run = checkpoint if checkpointed else lambda part, x, **_: part(x)
        out = run(lambda x, model=model: model(torch.tanh(model(x))), x.requires_grad_(), use_reentrant=False)
        out = out + model.second(out)
        out.square().sum().backward()
        results.append([model.first.weight.grad, model.second.weight.grad])
    assert all(map(torch.equal, *results))


DELAYED = RoleFormat(parse("scaled(element=e4m3fn)"), amax_history=4)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("numerics", [ALL, Numerics(activation=DELAYED)])
def test_reentrant_checkpointing_around_a_whole_model_is_refused_before_it_computes(numerics: Numerics) -> None:
    model = emulate_(nn.Linear(8, 8), numerics)
    x = torch.randn(5, 8, requires_grad=True)
    before = model(x)
    with pytest.raises(ConfigError, match="use_reentrant=False"):
        checkpoint(model, x, use_reentrant=True)
    with torch.no_grad():
        checkpoint(model, x.detach(), use_reentrant=True)  # an evaluation
    before.sum().backward()


class Foreign(torch.autograd.Function):
    """A checkpoint that is not torch's."""

    @staticmethod
    def forward(ctx, part, x):
        ctx.part = part
        ctx.save_for_backward(x)
        return part(x)

    @staticmethod
    def backward(ctx, error):
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            ctx.part(x).backward(error)
        return None, x.grad


@pytest.mark.parametrize("part", [nn.functional.gelu, lambda x: x @ x])
def test_a_checkpoint_that_is_not_torch_s_is_named(part) -> None:
    class Calls(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Foreign.apply(part, x)

    model = emulate_(Calls(), NUMERICS["results"])
    with pytest.warns(UncoveredWarning, match='layer "": the backward pass of a custom autograd function'):
        model(torch.randn(8, 8, requires_grad=True))
