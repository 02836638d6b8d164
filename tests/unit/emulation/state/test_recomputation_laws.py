"""Every kind and nesting of activation checkpointing computes the bits of none."""

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import presilicon as ps
from presilicon.designs import Numerics, RoleFormat, load_recipe
from presilicon.formats import MacUnit, parse

FP8, BF16 = RoleFormat(parse("e4m3")), RoleFormat(parse("bfloat16"))
RANDOM = RoleFormat(parse("e4m3"), "stochastic")
DELAYED = RoleFormat(parse("scaled(element=e4m3fn)"), amax_history=4)
ALL_RANDOM = Numerics(weight=RANDOM, activation=RANDOM, error=RANDOM, gradient=RANDOM)
NUMERICS = {
    "products": Numerics(weight=FP8, activation=FP8, error=FP8, gradient=BF16),
    "results": Numerics(weight=FP8, activation=FP8, error=FP8, gradient=FP8, vector="round-results"),
    "steps": Numerics(weight=BF16, activation=BF16, error=BF16, gradient=FP8, vector="round-steps"),
    "random": ALL_RANDOM,
    "random results": replace(ALL_RANDOM, vector="round-results"),
    "random steps": replace(ALL_RANDOM, vector="round-steps"),
    "random sums": Numerics(mac=MacUnit(accumulate=parse("bfloat16"), rounding="stochastic")),
    "delayed": Numerics(weight=DELAYED, activation=DELAYED, error=DELAYED, gradient=BF16),
    "nvfp4": load_recipe("nvfp4").numerics,
    "mxfp4": load_recipe("mxfp4-weights").numerics,
}
QUICK = ("random results", "random", "delayed", "steps")
KINDS = {
    "non-reentrant": (False,),
    "reentrant": (True,),
    "non-reentrant twice": (False, False),
    "reentrant twice": (True, True),
    "reentrant in non-reentrant": (False, True),
    "non-reentrant in reentrant": (True, False),
    "three": (False, False, False),
    "three mixed": (True, False, True),
}


class Block(nn.Module):
    """A transformer block whose parts are modules and functions; each may run in nested checkpointed regions."""

    def __init__(self, part: str, kinds: tuple[bool, ...]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.part, self.kinds = part, kinds
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.mlp, self.pair = (nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)) for _ in range(2))
        # Nothing is used more than twice: a sum of three gradients depends on their order.
        self.again, self.nested = nn.Linear(8, 8), nn.Linear(8, 8)
        self.bias = nn.Parameter(torch.randn(8) / 2)
        self.own, self.mask = nn.Parameter(torch.randn(8, 8) / 2), nn.Parameter(torch.randn(8, 8) / 2)

    def run(self, part: str, function, *inputs: torch.Tensor) -> torch.Tensor:
        for use_reentrant in reversed(self.kinds if part == self.part else ()):
            inner = function
            function = lambda *x, f=inner, r=use_reentrant: checkpoint(f, *x, use_reentrant=r)  # noqa: E731
        return function(*inputs)

    def core(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) * 0.5, -1) @ v

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return self.out(self.run("core", self.core, q, k, v))

    def bias_gelu(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.gelu(x + bias)

    def with_weights(self, x: torch.Tensor, made: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        return (x @ made) @ own

    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return self.again(torch.tanh(self.again(x)))

    def around(self, x: torch.Tensor) -> torch.Tensor:
        """A layer inside of an inner region and after it, and nothing before."""
        is_nested = self.part == "around" and bool(self.kinds)
        inner = checkpoint(self.nested, x, use_reentrant=False) if is_nested else self.nested(x)
        return self.nested(torch.relu(inner))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.run("attention", self.attention, x)
        x = self.run("vector", self.bias_gelu, x, self.bias)
        x = x + self.run("module", self.mlp, x)
        x = x + self.run("weights", self.with_weights, x, self.own * self.mask, self.own)
        x = x + self.run("twice", self.twice, x)
        x = x + self.run("around", self.around, x)
        return self.out(self.run("shared", self.pair, x) + self.run("shared", self.pair, x))


PARTS = ("core", "attention", "vector", "module", "weights", "twice", "around", "shared")


def trained(part: str, kinds: tuple[bool, ...], numerics: Numerics) -> dict[str, torch.Tensor]:
    """All gradients of two steps, and the output of the second."""
    model = ps.emulate_(Block(part, kinds), numerics)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(2):
        x = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(step), requires_grad=True)
        optimizer.zero_grad()
        out = model(x)
        out.square().sum().backward()
        optimizer.step()
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    return found | {"x": x.grad, "out": out.detach()}


@pytest.mark.parametrize(
    ("numerics", "kind"),
    [
        pytest.param(numerics, kind, marks=() if numerics in QUICK and len(KINDS[kind]) < 3 else pytest.mark.slow)
        for numerics in NUMERICS
        for kind in KINDS
    ],
)
def test_checkpointing_changes_no_bit(numerics: str, kind: str) -> None:
    expected = trained("", (), NUMERICS[numerics])
    for part in PARTS:
        found = trained(part, KINDS[kind], NUMERICS[numerics])
        assert [name for name in expected if not torch.equal(found[name], expected[name])] == [], part
