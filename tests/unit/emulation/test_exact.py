"""Code inside `exact()` computes as if the model were not emulated."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation import coverage, emulate_, emulated, exact
from presilicon.formats import parse, quantize

RANDOM = RoleFormat(parse("e4m3"), "stochastic")
FP8 = Numerics(weight="e4m3", activation="e4m3", error="e5m2", gradient="e5m2", vector="round-results")
STOCHASTIC = Numerics(weight=RANDOM, activation=RANDOM, error=RANDOM, gradient=RANDOM)
X = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))


class Net(nn.Module):
    """A part that is exact between two that are emulated."""

    def __init__(self, how: str = "with") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.before, self.router, self.after = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)
        self.how = how

    def route(self, x: Tensor) -> Tensor:
        return torch.softmax(self.router(x) @ self.router.weight, -1)

    @exact()
    def decorated(self, x: Tensor) -> Tensor:
        return self.route(x)

    def middle(self, x: Tensor) -> Tensor:
        if self.how == "decorator":
            return self.decorated(x)
        if self.how == "checkpointed":
            with exact():
                return checkpoint(self.route, x, use_reentrant=False)
        if self.how == "in checkpoint":
            return checkpoint(self.decorated, x, use_reentrant=False)
        with exact():
            if self.how == "nested":
                with exact():
                    pass
            return self.route(x)

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "in a region":

            def region(x: Tensor) -> Tensor:
                return self.after(self.decorated(self.before(x)))

            return checkpoint(region, x, use_reentrant=False)
        if self.how == "first in a region":
            return checkpoint(lambda x: self.after(self.decorated(x)), self.before(x), use_reentrant=False)
        return self.after(self.middle(self.before(x)))


def results(model: nn.Module, x: Tensor = X) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = model(x)
    out.square().sum().backward()
    return [out.detach(), x.grad, *(parameter.grad for parameter in model.parameters())]


class Parts(nn.Module):
    """The same net, of which only the parts that are not exact are emulated: the oracle."""

    def __init__(self, numerics: Numerics) -> None:
        super().__init__()
        self.net = Net()
        for part in (self.net.before, self.net.after):
            emulate_(part, numerics)

    def forward(self, x: Tensor) -> Tensor:
        return self.net.after(self.net.route(self.net.before(x)))


HOWS = ["with", "decorator", "nested", "checkpointed", "in checkpoint", "in a region", "first in a region"]


@pytest.mark.parametrize("how", HOWS)
def test_only_the_rest_of_the_model_is_emulated(how: str) -> None:
    expected = results(Parts(FP8))
    assert all(map(torch.equal, results(emulate_(Net(how), FP8)), expected))


@pytest.mark.parametrize("how", HOWS[1:])
def test_random_numbers_of_the_rest_stay_those_of_the_pass(how: str) -> None:
    expected = results(emulate_(Net(), STOCHASTIC))
    assert all(map(torch.equal, results(emulate_(Net(how), STOCHASTIC)), expected))


def test_a_whole_model_can_be_exact() -> None:
    expected = results(Net())
    with exact():
        assert all(map(torch.equal, results(emulate_(Net(), FP8)), expected))
    assert not torch.equal(results(emulate_(Net(), FP8))[0], expected[0])


def test_a_checkpointed_model_can_be_exact() -> None:
    model, expected = emulate_(Net(), STOCHASTIC), results(Net())
    x = X.clone().requires_grad_()
    with exact():
        out = checkpoint(lambda x: model(x), x, use_reentrant=False)
    out.square().sum().backward()
    assert all(map(torch.equal, [x.grad, *(parameter.grad for parameter in model.parameters())], expected[1:]))


@pytest.mark.parametrize("part", ["before", "decorated", "forward"])
def test_reentrant_checkpointing_is_exact_too(part: str) -> None:
    expected = [X.clone().requires_grad_() for _ in range(2)]
    model, plain = emulate_(Net(), FP8), Net()
    with exact():
        out = checkpoint(getattr(model, part), expected[0], use_reentrant=True)
    out.sum().backward()
    getattr(plain, part)(expected[1]).sum().backward()
    assert torch.equal(expected[0].grad, expected[1].grad)


def test_emulation_is_on_again_after_an_error() -> None:
    model = emulate_(nn.Linear(8, 4), FP8)
    with pytest.raises(ZeroDivisionError), exact():
        raise ZeroDivisionError
    x, weight = (quantize(value, parse("e4m3")) for value in (X, model.weight.detach()))
    assert torch.equal(model(X), functional.linear(x, weight, model.bias))


def test_an_emulated_loss_can_be_exact() -> None:
    loss = emulated(functional.mse_loss, FP8)
    with exact():
        assert loss(X, X + 0.3) == functional.mse_loss(X, X + 0.3)


def test_uncovered_products_inside_are_not_named() -> None:
    class Distances(nn.Module):
        @exact()
        def forward(self, x: Tensor) -> Tensor:
            return torch.cdist(x, x)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(emulate_(Distances(), FP8)(X), torch.cdist(X, X))


def test_coverage_lists_the_products_as_exact_by_request() -> None:
    listing = coverage(Net(), FP8, X, strict=True)
    exact_ops = {(op.stage, op.operator) for op in listing.ops if "exact by request" in op.formats}
    assert {("forward", "aten.addmm"), ("forward", "aten.mm"), ("backward", "aten.mm")} <= exact_ops
    assert {op.status for op in listing.ops if "exact by request" in op.formats} == {"float32"}
    assert 0.2 < listing.share("float32") < 0.8
    assert "exact by request" not in str(coverage(nn.Linear(8, 8), FP8, X))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("how", ["with", "decorator"])
def test_compiled_models_keep_it(how: str) -> None:
    expected = results(emulate_(Net(how), FP8))
    compiled: Callable[..., nn.Module] = torch.compile(emulate_(Net(how), FP8), backend="eager")
    assert all(map(torch.equal, results(compiled), expected))
