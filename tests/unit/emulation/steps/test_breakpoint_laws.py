"""Gradients where a function has a corner, a tie or an overflow are torch's, in every vector mode."""

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import presilicon as ps
from presilicon.designs import Numerics, RoleFormat
from presilicon.formats import parse

NUMBERS = [-200.0, -12.0, -6.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 6.0, 12.0, 200.0]
FUNCTIONS = {
    "relu": functional.relu,
    "relu6": functional.relu6,
    "hardtanh": functional.hardtanh,
    "leaky_relu": functional.leaky_relu,
    "abs": torch.abs,
    "clamp": lambda x: x.clamp(-1.0, 2.0),
    "clamp_min": lambda x: x.clamp_min(0.5),
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "maximum": lambda x: torch.maximum(x, x.flip(0) * 0 + 1.0),
    "minimum of itself": lambda x: torch.minimum(x, x),
    "fmax": lambda x: torch.fmax(x, x.detach()),
    "l1_loss": lambda x: functional.l1_loss(x, torch.ones_like(x)),
    "norm of zeros": lambda x: (x * 0.0).norm() + (x * 0.0).norm(dim=0),
    "amax": lambda x: x.clamp(-1, 1).amax(0),
    "amin": lambda x: x.clamp(-1, 1).amin(),
    "max of all": lambda x: x.clamp(-1, 1).max(),
    "min of all": lambda x: x.clamp(-1, 1).min(),
    "max along": lambda x: x.clamp(-1, 1).max(0)[0],
    "logsumexp": lambda x: x.logsumexp(0),
    "softmax": lambda x: x.softmax(0),
    "softplus": functional.softplus,
    "gelu": functional.gelu,
    "hardswish": functional.hardswish,
    "elu": functional.elu,
}


class Function(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def slope(module: nn.Module, x: torch.Tensor, error: float = 1.0) -> torch.Tensor:
    leaf = x.clone().requires_grad_()
    out = module(leaf)
    (gradient,) = torch.autograd.grad(out, leaf, torch.linspace(error, 2 * error, out.numel()).reshape(out.shape))
    return gradient


@pytest.mark.parametrize("mode", ["float32", "round-results", "round-steps"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_gradient_at_each_breakpoint_is_torch_s(name: str, mode: str) -> None:
    near = RoleFormat(parse("float(exponent=8, mantissa=22)"))  # so near to float32 that only rules differ
    numerics = replace(Numerics(), activation=near, error=near, vector=mode)
    x = torch.tensor(NUMBERS)
    expected = slope(Function(FUNCTIONS[name]), x)
    found = slope(ps.emulate_(Function(FUNCTIONS[name]), numerics), x)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fmt", ["float16", "e5m2", "e4m3", "bfloat16"])
@pytest.mark.parametrize("name", ["sigmoid", "silu", "softplus", "gelu", "logsumexp", "softmax", "l1_loss", "relu6"])
def test_gradients_in_narrow_formats_are_finite_where_torch_s_are(name: str, fmt: str) -> None:
    narrow = RoleFormat(parse(fmt))
    numerics = replace(Numerics(), activation=narrow, error=narrow, vector="round-steps")
    model = ps.emulate_(Function(FUNCTIONS[name]), numerics)
    assert slope(model, torch.tensor(NUMBERS), error=0.25).isfinite().all(), "200 times the error is in every format"


def test_steps_are_recomputed_under_activation_checkpointing() -> None:
    numerics = replace(Numerics(), activation=RoleFormat(parse("bfloat16")), vector="round-steps")
    torch.manual_seed(0)
    block = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8))
    ps.emulate_(block, numerics)
    x = torch.randn(4, 8)
    plain = slope(block, x)
    kept = slope(Function(lambda x: checkpoint(block, x, use_reentrant=False)), x)
    assert torch.equal(plain, kept)
