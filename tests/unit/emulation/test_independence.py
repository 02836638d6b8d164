"""Random roundings are independent: over ranks, optimizers, blocks of a product, and the first weights and updates."""

from dataclasses import replace as changed

import pytest
import torch
from msgspec.structs import replace
from torch import nn

import presilicon as ps
from presilicon.designs import Numerics, RoleFormat
from presilicon.formats import Factored, Key, MacUnit, matmul, parse

COARSE = RoleFormat(parse("float(exponent=8, mantissa=2)"), "stochastic")
RANDOM = Numerics(activation=COARSE, error=COARSE, gradient=COARSE)


def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])


def averaged_noise(gradients: list[torch.Tensor], exact: torch.Tensor) -> float:
    return float((torch.stack(gradients).mean(0) - exact).square().mean())


def test_ranks_draw_numbers_of_their_own(monkeypatch) -> None:
    torch.manual_seed(0)
    layer, x, error = nn.Linear(256, 64, bias=False), torch.rand(16, 256) + 0.5, torch.rand(16, 64) + 0.5
    exact = error.T @ x

    def gradient(rank: int) -> torch.Tensor:
        with monkeypatch.context() as patch:
            patch.setattr("presilicon.emulation.emulation.is_distributed", lambda: True)
            patch.setattr("torch.distributed.get_rank", lambda: rank)
            model = ps.emulate_(nn.Linear(256, 64, bias=False), RANDOM)
            with torch.no_grad():
                model.weight.copy_(layer.weight)
            model(x).backward(error)
        return model.weight.grad

    gradients = [gradient(rank) for rank in range(4)]
    assert torch.equal(gradients[0], gradient(0))
    one, four = averaged_noise(gradients[:1], exact), averaged_noise(gradients, exact)
    assert one / four == pytest.approx(4, rel=0.25)
    assert averaged_noise(gradients[:1] * 4, exact) / one == pytest.approx(1), "equal numbers do not cancel"


def noise_of_update(seed: int, state: dict | None = None) -> torch.Tensor:
    torch.manual_seed(seed)
    weight = nn.Parameter(torch.rand(4096) + 1)
    optimizer = ps.emulate_optimizer_(torch.optim.SGD([weight], lr=0.1), replace(Numerics(), master=COARSE))
    if state is not None:
        optimizer.load_state_dict(state)
    before = weight.detach().clone()
    weight.grad = torch.full_like(weight, 0.01)
    optimizer.step()
    return weight.detach() - (before - 0.001), optimizer


def test_optimizers_without_a_model_draw_numbers_of_their_own() -> None:
    (one, _), (other, optimizer), (again, _) = noise_of_update(1), noise_of_update(2), noise_of_update(1)
    assert torch.equal(one, again)
    assert abs(correlation(one, other)) < 0.1
    continued = noise_of_update(3, optimizer.state_dict())[1]
    assert continued.state_dict() != noise_of_update(3)[1].state_dict(), "a loaded optimizer keeps its random numbers"


def test_the_first_update_does_not_repeat_the_draws_of_the_first_weights() -> None:
    torch.manual_seed(1)
    start = torch.rand(64, 64) + 1
    layer = nn.Linear(64, 64, bias=False)
    with torch.no_grad():
        layer.weight.copy_(start)
    ps.emulate_(layer, replace(Numerics(), master=COARSE))
    optimizer = ps.emulate_optimizer_(
        torch.optim.SGD(layer.parameters(), lr=1.0), replace(Numerics(), master=COARSE), model=layer
    )
    first, rounded = layer.weight.detach() - start, layer.weight.detach().clone()
    layer(torch.ones(1, 64)).sum().backward()
    layer.weight.grad = rounded - start  # the update returns to where the first rounding began
    optimizer.step()
    assert abs(correlation(first, layer.weight.detach() - start)) < 0.1


def test_blocks_of_a_product_draw_numbers_of_their_own() -> None:
    mac = MacUnit(accumulate=parse("float(exponent=8, mantissa=3)"), rounding="stochastic", order="sequential")
    codes = torch.rand(32, 64) + 0.5
    weights = torch.rand(64, 32) + 0.5
    both = Factored(torch.cat([codes, codes], 1), torch.ones(32, 2), 64)
    twice = torch.cat([weights, weights])
    out = matmul(both, Factored(twice, torch.ones(2, 32), 64), mac, key=Key(1))
    halves = [matmul(codes, weights, mac, key=key) for key in (Key(1), changed(Key(1), tensor="0/block1"))]
    torch.testing.assert_close(out, halves[0] + halves[1])
    exact = codes @ weights
    assert abs(correlation(halves[0] - exact, halves[1] - exact)) < 0.2


@pytest.mark.parametrize("maximize", [False, True])
def test_momentum_is_rounded_before_it_is_read(maximize: bool) -> None:
    coarse = replace(Numerics(), state=RoleFormat(parse("float(exponent=8, mantissa=2)")))
    weight = nn.Parameter(torch.zeros(8))
    optimizer = ps.emulate_optimizer_(torch.optim.SGD([weight], lr=1.0, momentum=0.9, maximize=maximize), coarse)
    weight.grad = torch.linspace(0.3, 0.9, 8)
    optimizer.step()
    sign = 1 if maximize else -1
    rounded = ps.quantize(weight.grad, parse("float(exponent=8, mantissa=2)"))
    torch.testing.assert_close(weight.detach(), sign * rounded, rtol=0, atol=0)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_maximizing_the_negated_gradient_is_minimizing_it(kind) -> None:
    coarse = RoleFormat(parse("float(exponent=8, mantissa=3)"))
    numerics = replace(Numerics(), state=coarse, master=coarse)
    weights = []
    for maximize in (False, True):
        weight = nn.Parameter(torch.linspace(-1, 1, 16))
        options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
        optimizer = ps.emulate_optimizer_(kind([weight], lr=0.1, maximize=maximize, **options), numerics)
        for step in range(3):
            gradient = torch.linspace(0.3, -0.9, 16) * (step + 1)
            weight.grad = -gradient if maximize else gradient
            optimizer.step()
        weights.append(weight.detach())
    assert torch.equal(*weights)
