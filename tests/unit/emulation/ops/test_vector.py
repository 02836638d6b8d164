"""Ops that are no matrix products, where the numerics round their results."""

import copy
import io

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from presilicon.base import ConfigError
from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation import emulate_, emulated
from presilicon.emulation.mode import handlers
from presilicon.formats import parse, quantize

E5M2, COARSE = parse("e5m2"), parse("float(exponent=5, mantissa=1)")
NUMERICS = Numerics(
    weight=RoleFormat(parse("e4m3")),
    activation=RoleFormat(E5M2),
    error=RoleFormat(COARSE),
    gradient=RoleFormat(parse("float(exponent=5, mantissa=3)")),
    vector="round-results",
)


def on(tensor: torch.Tensor, role: str) -> torch.Tensor:
    return quantize(tensor.detach(), NUMERICS.format_of(role).format)


def assert_rounded(layer: nn.Module, x: torch.Tensor) -> None:
    """The layer's result, the error that comes back to it, and its parameters' gradients are on their formats."""
    expected = on(layer(x), "activation")
    errors: list[torch.Tensor] = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = self.layer(x)
            assert torch.equal(out.detach(), expected)
            return out

    model = emulate_(copy.deepcopy(Watched()), NUMERICS)
    for module in model.modules():
        module.register_full_backward_hook(lambda module, gave, got: errors.extend(got))
    given = x.clone().requires_grad_()
    out = model(given)
    error = torch.randn_like(out)
    out.backward(error)
    plain = copy.deepcopy(layer)
    again = x.clone().requires_grad_()
    plain(again).backward(on(error, "error"))
    assert torch.allclose(given.grad, again.grad, rtol=0.3, atol=0.1)
    for parameter in model.parameters():
        assert torch.equal(parameter.grad, on(parameter.grad, "gradient"))
        assert parameter.grad.any()


LAYERS = [
    (nn.BatchNorm1d(6), (8, 6)), (nn.LayerNorm(6), (4, 6)), (nn.GroupNorm(2, 4), (2, 4, 3)),
    (nn.InstanceNorm1d(4, affine=True), (2, 4, 5)), (nn.RMSNorm(6), (4, 6)), (nn.LocalResponseNorm(2), (2, 4, 5)),
    (nn.Softmax(-1), (4, 6)), (nn.LogSoftmax(-1), (4, 6)), (nn.AvgPool2d(2), (2, 3, 4, 4)), (nn.GELU(), (4, 6)),
    (nn.SiLU(), (4, 6)), (nn.Tanh(), (4, 6)), (nn.PReLU(), (4, 6)), (nn.Sigmoid(), (4, 6)), (nn.ELU(), (4, 6)),
    (nn.MaxPool1d(2), (2, 3, 4)), (nn.AdaptiveAvgPool2d(1), (2, 3, 4, 4)), (nn.Upsample(scale_factor=2), (2, 3, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=lambda value: type(value).__name__)
def test_results_and_gradients_are_rounded(layer: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    assert_rounded(layer, torch.randn(shape))


def test_a_missing_quantiser_is_caught(monkeypatch) -> None:
    """A mutation: without its entry in the table, a function is no longer rounded, and the test above fails."""
    broken = {func: handler for func, handler in handlers().items() if func is not functional.gelu}
    monkeypatch.setattr("presilicon.emulation.mode.handlers", lambda: broken)
    with pytest.raises(AssertionError):
        assert_rounded(nn.GELU(), torch.randn(4, 6))
    assert_rounded(nn.Tanh(), torch.randn(4, 6))


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.scale = nn.Parameter(torch.rand(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = torch.sigmoid(self.fc(x))
        x = x * gate
        x += 1
        return x / 3 - 2 * self.scale


def test_arithmetic_between_tensors_by_hand() -> None:
    torch.manual_seed(0)
    model, x = Gated(), torch.randn(4, 6)
    weight, bias, scale = model.fc.weight.data, model.fc.bias.data, model.scale.data
    act = lambda tensor: on(tensor, "activation")  # noqa: E731
    y = functional.linear(act(x), on(weight, "weight"), bias)
    gated = act(act(x * act(torch.sigmoid(y))) + 1)
    expected = act(act(gated / 3) - act(2 * scale))
    assert torch.equal(emulate_(model, NUMERICS)(x).detach(), expected)


ROWS = torch.tensor([0, 2, 0])


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: torch.var_mean(x, -1)[0],
        lambda x: torch.std_mean(x, -1)[1],
        lambda x: x.scatter_add(0, ROWS.view(3, 1).expand(3, 4), x[:3]),
        lambda x: torch.zeros(4, 4).index_add_(0, ROWS, x[:3]),
        lambda x: torch.zeros(4, 4).scatter_reduce(0, ROWS.view(3, 1).expand(3, 4), x[:3], "sum"),
        lambda x: functional.fold(functional.unfold(x.view(1, 1, 4, 4), 2), (4, 4), 2),
        lambda x: functional.gumbel_softmax(x),
        lambda x: torch.special.expit(x),
        lambda x: torch.arctan(x),
        lambda x: torch.dist(x, x.t()),
        lambda x: torch.diff(x),
        lambda x: torch.logcumsumexp(x, 0),
    ],
)
def test_reductions_scatters_and_other_names_are_rounded(compute) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return compute(x)

    x = torch.rand(4, 4, requires_grad=True)
    torch.manual_seed(0)
    out = emulate_(Model(), NUMERICS)(x)
    torch.manual_seed(0)
    plain = compute(x)
    assert torch.equal(out.detach(), on(plain, "activation"))
    error = torch.rand_like(out)
    (gradient,) = torch.autograd.grad(out, x, error)
    (expected,) = torch.autograd.grad(plain, x, on(error, "error"))
    assert torch.allclose(gradient, expected, rtol=0.5, atol=0.1)


def test_embeddings_are_weights() -> None:
    table = nn.Embedding(5, 4, padding_idx=0)
    emulate_(table, NUMERICS)
    words = torch.tensor([[1, 2], [2, 0]])
    out = table(words)
    assert torch.equal(out.detach(), on(functional.embedding(words, table.weight.data), "weight"))
    error = torch.randn_like(out)
    out.backward(error)
    expected = torch.zeros(5, 4).index_add(0, words.flatten(), on(error, "error").view(4, 4))
    expected[0] = 0
    assert torch.equal(table.weight.grad, on(expected, "gradient"))


def test_by_default_vector_ops_are_left_alone() -> None:
    model, x = nn.Sequential(nn.LayerNorm(6), nn.GELU(), nn.Embedding(5, 4)), torch.randn(4, 6)
    emulate_(model, replace(NUMERICS, vector="float32"))
    assert torch.equal(model[1](model[0](x)), functional.gelu(functional.layer_norm(x, (6,))))


def test_where_relu_is_all_that_lies_between_products_rounded_results_change_nothing() -> None:
    """ReLU passes rounded numbers unchanged. Pooling does too, but equal numbers send the error elsewhere."""
    from presilicon.workloads import load_workload

    made = load_workload("digits-mlp")
    inputs, targets = (part[:32] for part in made.data().train)
    results = []
    for vector in ("float32", "round-results"):
        torch.manual_seed(0)
        model = emulate_(made.model(), replace(NUMERICS, vector=vector))
        made.loss(model(inputs), targets).backward()
        results.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_block_formats_are_left_for_the_products() -> None:
    block = RoleFormat(parse("bfp(mantissa=3, group=4)"))
    model = emulate_(nn.Tanh(), replace(NUMERICS, activation=block))
    x = torch.randn(4, 6)
    assert torch.equal(model(x), torch.tanh(x))


def test_an_output_that_is_saved_for_backward_is_the_rounded_one() -> None:
    """Hardware computes tanh's gradient 1 - y^2 from the y that it has in memory."""
    model, x = emulate_(nn.Tanh(), replace(NUMERICS, error=RoleFormat(parse("float32")))), torch.randn(4, 6)
    x.requires_grad_()
    y = model(x)
    y.sum().backward()
    assert torch.allclose(x.grad, 1 - y.detach().square())


def test_buffers_that_a_model_updates_are_no_activations() -> None:
    class Averaging(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
            return x - self.mean

    model = emulate_(Averaging(), NUMERICS)
    model(torch.randn(5, 6))
    assert not torch.equal(model.mean, on(model.mean, "activation"))


def test_saving_copying_evaluation_and_inference_mode() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Dropout(0.5), nn.GELU())
    emulate_(model, NUMERICS).eval()
    x = torch.randn(4, 6)
    expected = model(x).detach()
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    with torch.inference_mode():
        assert torch.equal(torch.load(buffer, weights_only=False)(x), expected)
    with torch.no_grad():
        assert torch.equal(copy.deepcopy(model)(x), expected)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_gives_the_same_gradients(reentrant: bool) -> None:
    # A reentrant checkpoint runs forward without gradients first: to stochastic rounding that is no training step.
    rounding = None if reentrant else "stochastic"
    numerics = replace(NUMERICS, activation=RoleFormat(E5M2, rounding), error=RoleFormat(E5M2, rounding))

    def gradients(checkpointed: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.LayerNorm(6))
        x = torch.randn(4, 6, requires_grad=True)
        emulate_(model, numerics)
        for _ in range(2):
            model.zero_grad()
            out = checkpoint(model, x, use_reentrant=reentrant) if checkpointed else model(x)
            out.square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    for plain, again in zip(gradients(False), gradients(True), strict=True):
        assert torch.equal(plain, again)


@pytest.mark.parametrize("layer", [nn.Tanh(), nn.Linear(6, 6)])
def test_second_derivatives_are_refused(layer: nn.Module) -> None:
    model, x = emulate_(copy.deepcopy(layer), NUMERICS), torch.randn(4, 6, requires_grad=True)
    with pytest.raises(RuntimeError, match="differentiated again"):
        torch.autograd.grad(model(x).sum(), x, create_graph=True)[0].sum().backward()


def test_a_gradient_penalty_on_one_linear_layer_is_refused() -> None:
    model, x = emulate_(nn.Linear(8, 1), replace(NUMERICS, vector="float32")), torch.randn(4, 8, requires_grad=True)
    with pytest.raises(RuntimeError, match="differentiated again"):
        torch.autograd.grad(model(x).sum(), x, create_graph=True)


def test_losses_are_emulated_on_demand() -> None:
    torch.manual_seed(0)
    scores, target = torch.randn(4, 5, requires_grad=True), torch.tensor([0, 1, 2, 3])
    loss = emulated(functional.cross_entropy, NUMERICS)
    value = loss(scores, target)
    expected = on(functional.nll_loss(on(functional.log_softmax(scores, 1), "activation"), target), "activation")
    assert torch.equal(value.detach(), expected)
    value.backward()
    assert scores.grad.any()
    model = nn.Linear(3, 2)
    with pytest.raises(ConfigError, match="emulate_ first"):
        emulated(nn.MSELoss(), model)
    with pytest.raises(ConfigError, match="can be called, not 'mse'"):
        emulated("mse", NUMERICS)
    emulate_(model, NUMERICS)
    squared = emulated(nn.MSELoss(), model)
    out, wanted = torch.randn(3, 2), torch.randn(3, 2)
    expected = on(on(on(out - wanted, "activation").square(), "activation").mean(), "activation")
    assert torch.equal(squared(out, wanted), expected)
