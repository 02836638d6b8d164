"""What emulation takes apart against torch's own layers, with nothing rounded."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence

from presilicon.designs import Numerics
from presilicon.emulation import emulate_

IDENTITY = Numerics(vector="round-results")
"""All roles float32: with an observer, emulation computes everything itself and rounds nothing."""


def leaves(value):
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    return [leaf for item in (value or ()) for leaf in leaves(item)]


def run(model, inputs, kwargs):
    torch.manual_seed(1)
    given = [x.detach().clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    outputs = leaves(model(*given, **kwargs))
    loss = sum((out * torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view(out.shape)).sum() for out in outputs)
    loss.backward()
    grads = [x.grad for x in given if x.requires_grad] + [p.grad for p in model.parameters() if p.grad is not None]
    return [out.detach() for out in outputs] + grads


def check(model, *inputs, training: bool = True, **kwargs):
    """Outputs and every gradient: to the rounding of float64, and of float32."""
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        plain = copy.deepcopy(model).to(dtype).train(training)
        mine = copy.deepcopy(plain)
        given = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
        options = {key: value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
                   for key, value in kwargs.items()}  # fmt: skip
        seen = []
        emulate_(mine, IDENTITY, observers=[lambda step, layer, role, tensor, seen=seen: seen.append(role)])
        expected, found = run(plain, given, options), run(mine, given, options)
        assert len(expected) == len(found)
        assert not training or {"weight", "activation", "error", "gradient"} <= set(seen)
        for one, other in zip(expected, found, strict=True):
            assert torch.allclose(one, other, rtol=tolerance, atol=tolerance * max(1.0, float(one.abs().max())))


class Wrap(nn.Module):
    """A function as a model, with a linear layer before it so that there is something to train."""

    def __init__(self, function, width: int) -> None:
        super().__init__()
        self.function, self.first = function, nn.Linear(width, width)

    def forward(self, *args, **kwargs):
        return self.function(self.first(args[0]), *args[1:], **kwargs)


ATTENTION = {
    "plain": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.3},
    "mask": {"attn_mask": torch.rand(5, 5) > 0.3},
    "blind": {"attn_mask": torch.zeros(5, 5, dtype=torch.bool)},
    "bias": {"attn_mask": torch.randn(2, 1, 5, 5)},
}


@pytest.mark.parametrize("case", ATTENTION)
def test_scaled_dot_product_attention(case: str) -> None:
    torch.manual_seed(0)
    x, key, value = torch.randn(3, 2, 4, 5, 8).unbind()
    check(Wrap(functional.scaled_dot_product_attention, 8), x, key, value, **ATTENTION[case])


def test_grouped_queries() -> None:
    x, key, value = torch.randn(2, 6, 5, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8)
    check(Wrap(functional.scaled_dot_product_attention, 8), x, key, value, enable_gqa=True)


MASK = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
PADDING = torch.tensor([[False] * 5, [False, False, False, True, True]])


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize(
    ("options", "call"),
    [
        ({}, {}),
        ({}, {"attn_mask": MASK}),
        ({}, {"attn_mask": MASK, "is_causal": True}),
        ({}, {"key_padding_mask": PADDING}),
        ({"add_bias_kv": True, "add_zero_attn": True}, {"attn_mask": MASK, "key_padding_mask": PADDING}),
        ({"bias": False, "kdim": 6, "vdim": 7}, {}),
    ],
)
@pytest.mark.filterwarnings("ignore:Support for mismatched")
def test_multi_head_attention(options: dict, call: dict, weights: bool) -> None:
    torch.manual_seed(0)
    model = nn.MultiheadAttention(8, 2, batch_first=True, **options)
    sizes = (8, options.get("kdim", 8), options.get("vdim", 8))
    inputs = [torch.randn(2, 5, size) for size in sizes]
    check(model, *inputs, need_weights=weights, **call)


def test_multi_head_attention_of_itself_unbatched_and_per_head() -> None:
    class Self(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2)

        def forward(self, x, **kwargs):
            return self.attention(x, x, x, **kwargs)

    check(Self(), torch.randn(5, 3, 8))
    check(Self(), torch.randn(5, 8))
    check(Self(), torch.randn(5, 3, 8), average_attn_weights=False)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
        {"num_layers": 3, "dropout": 0.3},
    ],
)
def test_recurrent_layers(kind, options: dict) -> None:
    torch.manual_seed(0)
    check(kind(4, 6, **options), torch.randn(5, 3, 4))
    check(kind(4, 6, **options), torch.randn(5, 4))


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_projections_states_and_relu() -> None:
    check(nn.LSTM(4, 6, num_layers=2, bidirectional=True, proj_size=3), torch.randn(5, 3, 4))
    check(nn.RNN(4, 6, nonlinearity="relu"), torch.randn(5, 3, 4), torch.randn(1, 3, 6))
    check(nn.GRU(4, 6), torch.randn(5, 3, 4), torch.randn(1, 3, 6))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequences(kind, bidirectional: bool) -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind(4, 6, num_layers=2, bidirectional=bidirectional)

        def forward(self, x):
            packed = pack_padded_sequence(x, torch.tensor([2, 5, 1, 5]), enforce_sorted=False)
            out, state = self.layer(packed)
            return out.data, state

    check(Packed(), torch.randn(5, 4, 4))


def test_pack_sequence_runs() -> None:
    model = emulate_(nn.LSTM(4, 6), IDENTITY, observers=[lambda *_: None])
    out, _ = model(pack_sequence([torch.randn(3, 4), torch.randn(1, 4)]))
    assert out.data.shape == (4, 6)


def test_cells() -> None:
    check(nn.LSTMCell(4, 6), torch.randn(3, 4))
    check(nn.GRUCell(4, 6), torch.randn(3, 4), torch.randn(3, 6))
    check(nn.RNNCell(4, 6), torch.randn(3, 4), torch.randn(3, 6))
    check(nn.RNNCell(4, 6, nonlinearity="relu"), torch.randn(3, 4))


def test_products_by_other_names() -> None:
    check(nn.Bilinear(3, 4, 5), torch.randn(2, 3), torch.randn(2, 4))
    check(Wrap(lambda x, y: torch.tensordot(x, y, dims=([1, 0], [0, 2])), 4), torch.randn(3, 4), torch.randn(4, 5, 3))
    check(Wrap(torch.inner, 4), torch.randn(3, 4), torch.randn(2, 4))
    check(Wrap(lambda x, y: torch.addmv(y, x, y), 4), torch.randn(4, 4), torch.randn(4))
    check(Wrap(lambda x, y: torch.addbmm(x, y, y), 4), torch.randn(4, 4), torch.randn(3, 4, 4))
    check(Wrap(lambda x, y: torch.linalg.multi_dot([x, y, x]), 4), torch.randn(4, 4), torch.randn(4, 4))
    check(Wrap(lambda x, y: torch.dot(x, y), 4), torch.randn(4), torch.randn(4))


VECTOR_LAYERS = [
    (nn.BatchNorm1d(6), (4, 6)), (nn.BatchNorm2d(3), (2, 3, 4, 4)), (nn.LayerNorm(6), (4, 6)),
    (nn.GroupNorm(2, 4), (2, 4, 3)), (nn.InstanceNorm1d(4, affine=True), (2, 4, 5)), (nn.RMSNorm(6), (4, 6)),
    (nn.LocalResponseNorm(2), (2, 4, 5)), (nn.Softmax(-1), (4, 6)), (nn.LogSoftmax(-1), (4, 6)),
    (nn.MaxPool2d(2), (2, 3, 4, 4)), (nn.AvgPool2d(2), (2, 3, 4, 4)), (nn.AdaptiveAvgPool2d(1), (2, 3, 4, 4)),
    (nn.GELU(), (4, 6)), (nn.SiLU(), (4, 6)), (nn.Tanh(), (4, 6)), (nn.Sigmoid(), (4, 6)), (nn.ELU(), (4, 6)),
    (nn.PReLU(), (4, 6)), (nn.GLU(), (4, 6)), (nn.ReLU(inplace=True), (4, 6)), (nn.Dropout(0.5), (4, 6)),
    (nn.Mish(), (4, 6)), (nn.Hardswish(), (4, 6)), (nn.LeakyReLU(), (4, 6)),
]  # fmt: skip


@pytest.mark.parametrize(("layer", "shape"), VECTOR_LAYERS, ids=lambda value: type(value).__name__)
def test_vector_layers(layer: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    check(nn.Sequential(nn.Linear(shape[-1], shape[-1]), layer), torch.randn(shape))
    check(nn.Sequential(nn.Linear(shape[-1], shape[-1]), layer), torch.randn(shape), training=False)


def test_transformers_of_torch() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)
    check(model, torch.randn(2, 4, 8), torch.randn(2, 3, 8))


def test_evaluation_avoids_the_fused_path_only_where_it_must() -> None:
    """The fast path of an encoder layer in evaluation has products that nobody can reach."""
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 4, 8)
    with torch.no_grad():
        fast = model(x)
        assert torch.equal(emulate_(copy.deepcopy(model), Numerics())(x), fast)
        found = emulate_(copy.deepcopy(model), IDENTITY, observers=[lambda *_: None])(x)
        assert torch.allclose(found, fast, atol=1e-6)
    with torch.inference_mode():
        assert torch.allclose(emulate_(model, IDENTITY, observers=[lambda *_: None])(x), fast, atol=1e-6)
