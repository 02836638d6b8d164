"""A parameter that is used through a view or a copy has the gradient of one that is used as it is."""

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.nn import functional

import presilicon as ps
from presilicon.designs import Numerics, RoleFormat
from presilicon.formats import parse, quantize

BF16, COARSE = (RoleFormat(parse(text)) for text in ("bfloat16", "float(exponent=8, mantissa=2)"))
RANDOM = RoleFormat(parse("float(exponent=8, mantissa=2)"), "stochastic")
PRODUCTS = Numerics(weight=BF16, activation=BF16, error=BF16, gradient=COARSE)
NUMERICS = {
    "products": PRODUCTS,
    "results": replace(PRODUCTS, vector="round-results"),
    "steps": replace(PRODUCTS, vector="round-steps"),
    "random": replace(PRODUCTS, vector="round-results", gradient=RANDOM),
}
FORMS = {
    "itself": lambda p: p,
    "with an axis": lambda p: p[None][0],
    "view": lambda p: p.view(2, 4).view(8),
    "reshape": lambda p: p.reshape(4, 2).reshape(-1),
    "clone": lambda p: p.clone(),
    "to": lambda p: p.to(torch.float32, copy=True),
    "joined": lambda p: torch.cat([p[:3], p[3:]]),
    "stacked": lambda p: torch.stack([p, torch.zeros(8)])[0],
    "parts": lambda p: torch.cat(p.chunk(2)),
    "flipped": lambda p: p.flip(0).flip(0),
    "contiguous": lambda p: p.view(2, 4).t().contiguous().t().contiguous().view(8),
}
USES = {
    "bias": lambda net, p, x: functional.linear(x, net.weight, p),
    "gain": lambda net, p, x: x * p,
    "shift": lambda net, p, x: net.inner(x) + p,
    "norm": lambda net, p, x: functional.layer_norm(x, [8], p, p.detach()),
    "kernel bias": lambda net, p, x: functional.conv1d(x[None], net.kernel, p),
}


class Net(nn.Module):
    def __init__(self, use, form) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.use, self.form = use, form
        self.weight, self.kernel, self.own = (nn.Parameter(torch.randn(shape)) for shape in ((8, 8), (8, 4, 1), (8,)))
        self.inner = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.use(self, self.form(self.own), x)


def gradient(use, form, numerics: Numerics) -> torch.Tensor:
    model = ps.emulate_(Net(use, form), numerics)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    model(x).square().sum().backward()
    return model.own.grad


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("use", USES)
def test_a_view_or_a_copy_changes_no_bit_of_a_gradient(use: str, numerics: str) -> None:
    expected = gradient(USES[use], FORMS["itself"], NUMERICS[numerics])
    if numerics != "products" or "bias" in use:
        assert torch.equal(expected, quantize(expected, COARSE.format))
    for name, form in FORMS.items():
        assert torch.equal(gradient(USES[use], form, NUMERICS[numerics]), expected), name


SPREAD = {
    "broadcast": lambda p, x: x * p,
    "expanded": lambda p, x: x * p.expand(4, 8),
    "expanded like": lambda p, x: x * p.expand_as(x),
    "broadcast by hand": lambda p, x: x * torch.broadcast_to(p, (4, 8)),
    "repeated": lambda p, x: x * p.repeat(4, 1),
    "looked up": lambda p, x: x * p[torch.arange(8).expand(4, 8)],
    "selected": lambda p, x: x * p[None].index_select(0, torch.zeros(4, dtype=torch.int64)),
}


@pytest.mark.parametrize("numerics", ["results", "steps"])
def test_a_gradient_is_rounded_after_it_is_added_up(numerics: str) -> None:
    for name, spread in SPREAD.items():
        found = gradient(lambda net, p, x, spread=spread: spread(p, x), FORMS["itself"], NUMERICS[numerics])
        assert torch.equal(found, quantize(found, COARSE.format)), name


@pytest.mark.parametrize("numerics", NUMERICS)
def test_the_parts_of_attention_have_gradients_in_their_format(numerics: str) -> None:
    torch.manual_seed(0)
    has_rows = numerics != "products"  # which keys and values get added, without an op
    layer = nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=has_rows)
    attention = ps.emulate_(layer, NUMERICS[numerics])
    query, key, value = (torch.randn(2, 5, 8) for _ in range(3))
    attention(query, key, value)[0].square().sum().backward()
    for name, parameter in attention.named_parameters():
        assert torch.equal(parameter.grad, quantize(parameter.grad, COARSE.format)), name
