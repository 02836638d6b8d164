"""Random roundings are independent: over ranks, optimizers, blocks of a product, and the first weights and updates."""

from dataclasses import replace as changed

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.utils.checkpoint import checkpoint

import presilicon as ps
from presilicon.designs import Numerics, ProductNumerics, RoleFormat
from presilicon.formats import Factored, Key, MacUnit, matmul, parse

COARSE = RoleFormat(parse("float(exponent=8, mantissa=2)"), "stochastic")
NOISY_SUMS = ProductNumerics(mac=MacUnit(accumulate=COARSE.format, rounding="stochastic", chunk=16))
RANDOM = Numerics(activation=COARSE, error=COARSE, gradient=COARSE)


def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a.detach().flatten(), b.detach().flatten()]))[0, 1])


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
            model = ps.emulate_(nn.Linear(256, 64, bias=False), RANDOM, seed=0)
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


NOISY = {
    "errors": replace(Numerics(), error=COARSE, gradient=COARSE),
    "steps": replace(Numerics(), error=COARSE, gradient=COARSE, vector="round-steps"),
    "sums": replace(Numerics(), input_grad=NOISY_SUMS, weight_grad=NOISY_SUMS),
}
KINDS = {
    "plain": lambda part, x: part(x),
    "checkpointed": lambda part, x: checkpoint(part, x, use_reentrant=False),
    "reentrant": lambda part, x: checkpoint(part, x, use_reentrant=True),
}


class Checkpointed(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.part, self.kind = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)), KINDS[kind]

    def forward(self, x):
        return self.kind(self.part, x)


def gradients_of(kind: str, numerics: Numerics, passes: int, *, retained: bool) -> list[torch.Tensor]:
    model = ps.emulate_(Checkpointed(kind), numerics, seed=1)
    x = torch.rand(16, 64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    error, found, out = torch.rand(16, 64, generator=torch.Generator().manual_seed(2)) + 0.5, [], None
    for _ in range(passes):
        out = model(x) if out is None or not retained else out
        model.zero_grad()
        out.backward(error, retain_graph=retained)
        found.append(model.part[0].weight.grad.clone())
    return found


@pytest.mark.parametrize("retained", [False, True])
@pytest.mark.parametrize("numerics", NOISY)
def test_the_noise_of_backward_passes_falls_as_they_are_averaged(numerics: str, retained: bool) -> None:
    (exact,) = gradients_of("plain", Numerics(), 1, retained=False)
    expected = gradients_of("plain", NOISY[numerics], 16, retained=retained)
    one = sum(averaged_noise([gradient], exact) for gradient in expected) / 16
    assert one / averaged_noise(expected, exact) == pytest.approx(16, rel=0.25)
    for kind in ("checkpointed", "reentrant"):
        found = gradients_of(kind, NOISY[numerics], 3, retained=retained)
        assert all(map(torch.equal, found, expected)), kind


def evaluated(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(x)


def test_each_batch_of_an_evaluation_draws_numbers_of_its_own_and_always_the_same() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(256, 256, bias=False), torch.rand(2, 64, 256) + 0.5
    model = ps.emulate_(layer, replace(Numerics(), activation=COARSE), seed=3)
    noise = [evaluated(model, batch) - batch @ layer.weight.T for batch in x]
    scaled = evaluated(model, x[0] * 2) / 2 - x[0] @ layer.weight.T  # the same batch but for its draws
    assert abs(correlation(noise[0], scaled)) < 0.1
    assert abs(correlation(*noise)) < 0.1
    state = {key: value.clone() for key, value in model.state_dict().items()}
    for batch, before in zip(x.flip(0), reversed(noise), strict=True):
        assert torch.equal(evaluated(model, batch) - batch @ layer.weight.T, before)
    resumed = ps.emulate_(nn.Linear(256, 256, bias=False), replace(Numerics(), activation=COARSE), seed=3)
    resumed.load_state_dict(state)
    assert torch.equal(evaluated(resumed, x[1]), evaluated(model, x[1]))
    assert torch.equal(evaluated(resumed.eval(), x[1]), evaluated(model, x[1].clone()))


def outputs_of(seed: int | None, number: int) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(number)
    layer = nn.Linear(64, 64)
    model = ps.emulate_(layer, replace(Numerics(), activation=COARSE), seed=seed)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(64))
        layer.bias.mul_(1e-6)
    return model, model(torch.full((64, 64), 1.1)).detach()


def test_models_without_a_seed_draw_numbers_of_their_own() -> None:
    noise = [outputs_of(None, number)[1] - 1.1 for number in range(8)]
    assert averaged_noise(noise[:1], torch.zeros(())) / averaged_noise(noise, torch.zeros(())) > 4
    assert torch.equal(outputs_of(None, 3)[1] - 1.1, noise[3]), "the same weights draw the same numbers"
    assert torch.allclose(outputs_of(5, 1)[1], outputs_of(5, 2)[1], atol=1e-3), "a seed is a seed"
    saved, other = outputs_of(None, 1)[0], outputs_of(None, 2)[0]
    other.load_state_dict(saved.state_dict())
    x = torch.full((64, 64), 1.3)
    assert torch.equal(other(x), saved(x)), "a state goes on with its own numbers"
