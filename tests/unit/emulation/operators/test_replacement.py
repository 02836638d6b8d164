"""Operators in the place of torch's functions, everywhere in a model."""

import copy
import io
from collections.abc import Callable

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import presilicon as ps
from presilicon.base import ConfigError
from presilicon.designs import Numerics, Operators, OperatorSpec, load_recipe
from presilicon.ops import Operator, operator, table

NUMERICS = {
    "float32": Numerics(),
    "bf16": load_recipe("bf16").numerics,
    "bf16 results": Numerics(
        weight=load_recipe("bf16").numerics.weight,
        activation=load_recipe("bf16").numerics.activation,
        vector="round-results",
    ),
}


@operator("tanh")
def no_tanh(x):
    return 0.0


@operator("sigmoid")
def no_sigmoid(x):
    return 0.0


@operator("softmax.exp")
def flat(x):
    return 1.0


@operator("exp")
def no_exp(x):
    return 0.0


@operator("rsqrt")
def no_rsqrt(x):
    return 0.0


@operator("gelu")
def no_gelu(x):
    return 0.0


class Wrapped(nn.Module):
    """A layer, and then a function or a module."""

    def __init__(self, inner: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.layer(x))


X = torch.randn(4, 8)
GONE: list[tuple[Operator, Callable[[Tensor], Tensor]]] = [
    (no_tanh, torch.tanh),
    (no_tanh, Tensor.tanh),
    (no_tanh, functional.tanh),
    (no_tanh, nn.Tanh()),
    (no_tanh, lambda x: x.clone().tanh_()),
    (no_tanh, lambda x: torch.tanh_(x.clone())),
    (no_tanh, nn.Mish()),
    (no_tanh, lambda x: functional.gelu(x, approximate="tanh") - x / 2),
    (no_sigmoid, torch.sigmoid),
    (no_sigmoid, nn.Sigmoid()),
    (no_sigmoid, lambda x: x.clone().sigmoid_()),
    (no_sigmoid, nn.SiLU()),
    (no_sigmoid, nn.SiLU(inplace=True)),
    (no_sigmoid, nn.GLU()),
    (no_exp, torch.exp),
    (no_exp, lambda x: x.exp()),
    (no_rsqrt, lambda x: torch.rsqrt(x.abs())),
    (no_rsqrt, nn.LayerNorm(8)),
    (no_rsqrt, nn.RMSNorm(8)),
    (no_rsqrt, nn.BatchNorm1d(8)),
    (no_rsqrt, lambda x: nn.GroupNorm(2, 8)(x)),
    (no_rsqrt, lambda x: nn.InstanceNorm1d(2)(x.view(4, 2, 4))),
    (no_gelu, nn.GELU()),
    (no_gelu, nn.GELU(approximate="tanh")),
]


@pytest.mark.parametrize("numerics", NUMERICS.values(), ids=NUMERICS)
@pytest.mark.parametrize(("chosen", "inner"), GONE, ids=range(len(GONE)))
def test_a_function_is_replaced_however_it_is_called(chosen: Operator, inner, numerics: Numerics) -> None:
    model = ps.emulate_(Wrapped(copy.deepcopy(inner)), numerics, operators=[chosen])
    out = model(X)
    assert out.abs().max() == 0
    out.sum().backward()
    assert model.eval()(X).abs().max() == 0
    assert ps.restore_(model)(X).abs().max() > 0


@pytest.mark.parametrize("numerics", NUMERICS.values(), ids=NUMERICS)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_gates_are_replaced(kind, numerics: Numerics) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            out = self.layer(x)
            return out[0] if isinstance(out, tuple) else out

    model = ps.emulate_(Recurrent(), numerics, operators=[no_tanh])
    assert model(X).abs().max() == 0


@pytest.mark.parametrize("numerics", NUMERICS.values(), ids=NUMERICS)
@pytest.mark.parametrize("dim", [-1, 0])
def test_the_exponential_of_softmax_has_a_name_of_its_own(numerics: Numerics, dim: int) -> None:
    for call in (lambda x: x.softmax(dim), nn.Softmax(dim), lambda x: torch.softmax(x, dim)):
        model = ps.emulate_(Wrapped(copy.deepcopy(call)), numerics, operators=[flat])
        assert torch.allclose(model(X), torch.full_like(X, 1 / X.shape[dim]))
        plain = ps.emulate_(Wrapped(copy.deepcopy(call)), Numerics(), operators=[no_exp])
        assert torch.equal(plain(X), ps.restore_(plain)(X))


def test_attention_is_flat_and_its_mask_holds() -> None:
    class Attention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    x = torch.randn(1, 1, 4, 8)
    out = ps.emulate_(Attention(), Numerics(), operators=[flat])(x)
    wanted = torch.stack([x[0, 0, : row + 1].mean(0) for row in range(4)])
    torch.testing.assert_close(out[0, 0], wanted)
    heads = nn.MultiheadAttention(8, 2, batch_first=True)
    _, weights = ps.emulate_(heads, Numerics(), operators=[flat])(x[0], x[0], x[0])
    torch.testing.assert_close(weights, torch.full((1, 4, 4), 0.25))


COMPOSED = [
    ("softmax.exp", nn.Softmax(-1)),
    ("softmax.exp", nn.LogSoftmax(-1)),
    ("softmax.exp", nn.Softmin(0)),
    ("tanh", nn.GELU(approximate="tanh")),
    ("tanh", nn.Mish()),
    ("tanh", nn.Tanhshrink()),
    ("sigmoid", nn.SiLU()),
    ("sigmoid", nn.SiLU(inplace=True)),
    ("sigmoid", nn.GLU()),
    ("rsqrt", nn.LayerNorm(8)),
    ("rsqrt", nn.RMSNorm(8)),
    ("rsqrt", nn.BatchNorm1d(8)),
]


@pytest.mark.parametrize(("name", "layer"), COMPOSED, ids=[type(layer).__name__ for _, layer in COMPOSED])
def test_functions_taken_apart_are_the_same_functions(name: str, layer: nn.Module) -> None:
    """With a table so fine that it is the function, results, gradients and running statistics are torch's."""
    torch.manual_seed(0)  # some seeds give rows whose variance lies outside of the table
    fine = table(name, -12 if name != "rsqrt" else 0.02, 12, 65536, "linear", backward="exact")
    ours, theirs = Wrapped(copy.deepcopy(layer)).double(), Wrapped(copy.deepcopy(layer)).double()
    theirs.load_state_dict(ours.state_dict())
    ps.emulate_(ours, Numerics(), operators=[fine])
    x = torch.randn(16, 8, dtype=torch.float64)
    for _ in range(2):
        for model in (ours, theirs):
            out = model(x)
            (out * torch.arange(out.numel()).view(out.shape) / out.numel()).sum().backward()
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-4)
    for key, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[key], value)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), rtol=1e-4, atol=1e-4)


def test_recomputed_activations_are_replaced_too() -> None:
    class Saving(Wrapped):
        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(super().forward, x, use_reentrant=False)

    made = table("tanh", -4, 4, 9, "linear")
    plain, saving = (ps.emulate_(kind(nn.Tanh()), Numerics(), operators=[made]) for kind in (Wrapped, Saving))
    saving.load_state_dict(plain.state_dict())
    for model in (plain, saving):
        model(X).sum().backward()
    for one, other in zip(plain.parameters(), saving.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


def test_what_is_not_replaced_stays_bit_equal() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.LSTM(8, 8))
    plain = copy.deepcopy(model)
    ps.emulate_(model, Numerics(), operators=[no_exp])
    assert torch.equal(model(X)[0], plain(X)[0])


def test_state_and_saving_are_untouched() -> None:
    model = Wrapped(nn.Tanh())
    keys = list(model.state_dict())
    ps.emulate_(model, Numerics(), operators=[no_tanh])
    assert list(model.state_dict()) == keys
    assert copy.deepcopy(model)(X).abs().max() == 0
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    assert torch.load(buffer, weights_only=False)(X).abs().max() == 0


def test_results_of_operators_are_rounded_like_others() -> None:
    @operator("tanh")
    def third(x):
        return x * 0 + 1 / 3

    out = ps.emulate_(Wrapped(nn.Tanh()), NUMERICS["bf16 results"], operators=[third])(X)
    assert torch.equal(out, out.bfloat16().float())
    assert not torch.equal(ps.emulate_(Wrapped(nn.Tanh()), NUMERICS["bf16"], operators=[third])(X), out)


@pytest.mark.parametrize("vector", ["float32", "round-results", "round-steps"])
@pytest.mark.parametrize("given", ["numerics", "argument", "emulated model"])
def test_coverage_lists_the_operator_that_runs(given: str, vector: str) -> None:
    spec = OperatorSpec(kind="table", low=-4, high=4, entries=9, interpolation="linear")
    plain = msgspec.structs.replace(NUMERICS["bf16"], vector=vector)
    model, numerics, chosen = Wrapped(nn.Tanh()), plain, None
    if given == "numerics":
        numerics = msgspec.structs.replace(plain, operators=Operators(tanh=spec))
    elif given == "argument":
        chosen = [spec.make("tanh")]
    else:
        ps.emulate_(model, plain, operators=[spec.make("tanh")])
    ops = ps.coverage(model, numerics, X, operators=chosen).ops
    listed = [op for op in ops if op.operator.startswith("presilicon.operator")]
    assert {op.stage for op in listed} == {"forward", "backward"}
    assert {op.status for op in listed} == {"emulated"}
    assert all("operator table_tanh" in op.formats for op in listed)
    assert not [op for op in ops if "tanh" in op.operator]


def test_wrong_operators_are_named() -> None:
    with pytest.raises(ConfigError, match="both replace tanh"):
        ps.emulate_(Wrapped(nn.Tanh()), Numerics(), operators=[no_tanh, no_tanh])
    with pytest.raises(ConfigError, match="must be made by @operator"):
        ps.emulate_(Wrapped(nn.Tanh()), Numerics(), operators=[torch.tanh])  # type: ignore[list-item]


def test_executions_without_numba_are_torch_s(monkeypatch) -> None:
    from presilicon.ops.custom import calls as application

    made = table("tanh", -4, 4, 33, "linear")
    x = torch.randn(100, requires_grad=True)
    with_numba = application.apply_operator(made, x)
    monkeypatch.setattr(application, "has_numba", lambda: False)
    assert torch.equal(application.apply_operator(made, x), with_numba)
