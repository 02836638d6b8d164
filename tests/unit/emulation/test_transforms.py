"""torch.func, torch.autograd.functional and forward mode: each gives the right bits or is refused with the reason."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.autograd import functional as autograd
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from torch.nn import functional

from presilicon.base import ConfigError
from presilicon.designs import Numerics
from presilicon.emulation import emulate_, emulation_of, exact
from presilicon.formats import MacUnit, parse, quantize

NUMERICS = {
    "products": Numerics(weight="e4m3", activation="e5m2", error="e5m2", gradient="bfloat16"),
    "results": Numerics(weight="e4m3", activation="e4m3", error="e5m2", gradient="bfloat16", vector="round-results"),
    "sums": Numerics(mac=MacUnit(accumulate=parse("bfloat16"))),
}
pytestmark = [  # warnings of torch's own forward mode
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr"),
]
X = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))


def make(numerics: Numerics | None = None) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    return model if numerics is None else emulate_(model, numerics)


def parameters(model: nn.Module, factor: float = 1.0) -> dict[str, Tensor]:
    return {name: (parameter * factor).detach() for name, parameter in model.named_parameters()}


def loss(model: nn.Module, values: dict[str, Tensor], x: Tensor) -> Tensor:
    return functional_call(model, values, (x,)).square().sum()


def dual(model: nn.Module) -> Tensor:
    with forward_ad.dual_level():
        return model(forward_ad.make_dual(X, torch.ones_like(X)))


def batched(model: nn.Module) -> Any:
    x = X.clone().requires_grad_()
    return torch.autograd.grad(model(x), x, torch.eye(20).view(20, 5, 4), is_grads_batched=True)


def double_backward(model: nn.Module) -> None:
    x = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    gradient.square().sum().backward()


REFUSED: dict[str, tuple[Callable[[nn.Module], Any], str]] = {
    "grad": (lambda model: grad(lambda values: loss(model, values, X))(parameters(model)), "torch.autograd.grad"),
    "vjp": (lambda model: vjp(model, X), "torch.autograd.grad"),
    "jacrev": (lambda model: jacrev(model)(X), "torch.autograd.grad"),
    "jvp": (lambda model: jvp(model, (X,), (X,)), r"torch\.func \(jvp\)"),
    "jacfwd": (lambda model: jacfwd(model)(X), "loop"),
    "hessian": (lambda model: hessian(lambda x: model(x).sum())(X), r"torch\.func \("),
    "linearize": (lambda model: linearize(model, X)[1](X), "forward-mode"),
    "vmap": (lambda model: vmap(model)(X), "loop over the samples"),
    "per-sample gradients": (
        lambda model: vmap(grad(lambda values, x: loss(model, values, x)), (None, 0))(parameters(model), X),
        "loop over the samples",
    ),
    "forward mode": (dual, "forward-mode"),
    "forward-mode jacobian": (
        lambda model: autograd.jacobian(model, X, vectorize=True, strategy="forward-mode"),
        "forward-mode",
    ),
    "vectorized jacobian": (lambda model: autograd.jacobian(model, X, vectorize=True), "one error at a time"),
    "batched gradients": (batched, "one error at a time"),
    "autograd.functional.jvp": (lambda model: autograd.jvp(model, X, X), "differentiated again"),
    "autograd.functional.hvp": (lambda model: autograd.hvp(lambda x: model(x).sum(), X, X), "differentiated again"),
    "autograd.functional.hessian": (
        lambda model: autograd.hessian(lambda x: model(x).sum(), X),
        "differentiated again",
    ),
    "double backward": (double_backward, "differentiated again"),
}


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("transform", REFUSED)
def test_derivatives_that_emulation_does_not_have_are_refused(transform: str, numerics: str) -> None:
    compute, reason = REFUSED[transform]
    compute(make())  # torch itself can
    with pytest.raises((ConfigError, RuntimeError), match=reason) as caught:
        compute(make(NUMERICS[numerics]))
    assert "\n" not in str(caught.value)


def test_results_without_products_are_refused_too() -> None:
    model = emulate_(nn.Sequential(nn.Tanh(), nn.LayerNorm(8)), NUMERICS["results"])
    for transform in ("vmap", "forward mode"):
        with pytest.raises(ConfigError, match='layer "0": tanh'):
            REFUSED[transform][0](model)


def test_a_refused_transform_leaves_the_model_usable() -> None:
    model, other = make(NUMERICS["results"]), make(NUMERICS["results"])
    with pytest.raises(ConfigError):
        vmap(model)(X)
    assert not emulation_of(model).is_inside
    assert torch.equal(model(X), other(X))


@pytest.mark.parametrize("numerics", NUMERICS)
def test_jacobian_and_vjp_of_autograd_have_the_bits_of_backward(numerics: str) -> None:
    model = make(NUMERICS[numerics])
    rows = []
    for index in range(20):
        x = X.clone().requires_grad_()
        model(x).flatten()[index].backward()
        rows.append(x.grad)
    expected = torch.stack(rows).view(5, 4, 5, 8)
    assert torch.equal(autograd.jacobian(model, X), expected)
    error = torch.eye(20)[7].view(5, 4)
    assert torch.equal(autograd.vjp(model, X, error)[1], expected.view(20, 5, 8)[7])


class Mixed(nn.Module):
    """Weights in a layer, in a product of the module's own, as a bias and in a vector op."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(8, 8)
        self.weight, self.gain = nn.Parameter(torch.randn(8, 4)), nn.Parameter(torch.rand(4))

    def forward(self, x: Tensor) -> Tensor:
        return (self.fc(x) @ (self.weight * 2)) * self.gain


@pytest.mark.parametrize("numerics", NUMERICS)
def test_tensors_in_place_of_parameters_have_their_role(numerics: str) -> None:
    """Other values by functional_call give the bits of a model that has these values as parameters."""
    model, other = emulate_(Mixed(), NUMERICS[numerics]), Mixed()
    values = {name: value.requires_grad_() for name, value in parameters(model, 1.5).items()}
    other.load_state_dict(values)
    emulate_(other, NUMERICS[numerics])
    out, expected = functional_call(model, values, (X,)), other(X)
    assert torch.equal(out, expected)
    gradients = torch.autograd.grad(out.square().sum(), list(values.values()))
    wanted = dict(zip(values, gradients, strict=True))
    expected.square().sum().backward()
    for name, parameter in other.named_parameters():
        assert torch.equal(wanted[name], parameter.grad), name
    assert torch.equal(model(X), emulate_(Mixed(), NUMERICS[numerics])(X))


def test_a_swapped_weight_is_rounded_as_a_weight() -> None:
    model = emulate_(Mixed(), Numerics(weight="e4m3", activation="e5m2"))
    values = parameters(model, 1.5)

    def fp8(name: str, value: Tensor) -> Tensor:
        return quantize(value, parse(name))

    hidden = functional.linear(fp8("e5m2", X), fp8("e4m3", values["fc.weight"]), values["fc.bias"])
    expected = (fp8("e5m2", hidden) @ fp8("e4m3", values["weight"] * 2)) * values["gain"]
    assert torch.equal(functional_call(model, values, (X,)), expected)


def test_transforms_of_integers_inside_a_model_are_not_refused() -> None:
    """As in the attention masks of transformers."""

    class Masked(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            mask = vmap(lambda i: torch.arange(5) - i <= 0)(torch.arange(5))
            return torch.where(mask, x @ x.T, 0.0)

    model = emulate_(Masked(), NUMERICS["results"])
    assert model(X)[0].count_nonzero() == 1


def test_transforms_of_exact_code_are_torch_s_own() -> None:
    model, plain = make(NUMERICS["results"]), make()
    with exact():
        assert torch.equal(vmap(model)(X), vmap(plain)(X))
        computed = grad(lambda values: loss(model, values, X))(parameters(model))
    expected = grad(lambda values: loss(plain, values, X))(parameters(plain))
    assert all(torch.equal(computed[name], expected[name]) for name in expected)


def test_a_float32_model_can_be_transformed() -> None:
    assert torch.equal(vmap(make(Numerics()))(X), vmap(make())(X))
