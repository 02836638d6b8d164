"""Gradients of a product are torch's in formats near float32, whatever its operands are computed from."""

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.nn import functional

import presilicon as ps
from presilicon.designs import Numerics, ProductNumerics, RoleFormat
from presilicon.formats import MacUnit, parse

NEAR, NEARER = (RoleFormat(parse(f"float(exponent=8, mantissa={bits})")) for bits in (20, 21))
BLOCK = RoleFormat(parse("bfp(mantissa=22, group=4)"))
ROWS = RoleFormat(parse("scaled(element=float(exponent=8, mantissa=15), per=row)"))
FLAT = Numerics(weight=NEAR, activation=NEAR, error=NEAR, gradient=NEAR)
MIXED = ProductNumerics(hadamard=4)
OWN = ProductNumerics(weight=NEARER, activation=NEARER, error=NEARER, mac=MacUnit(accumulate=NEAR.format))
PHASES = ("forward", "input_grad", "weight_grad")
NUMERICS = {
    "flat": FLAT,
    "results": replace(FLAT, vector="round-results"),
    "steps": replace(FLAT, vector="round-steps"),
    "blocks": Numerics(weight=BLOCK, activation=BLOCK, error=BLOCK),
    "rows": Numerics(weight=ROWS, activation=ROWS, error=ROWS),
    "sums": replace(FLAT, mac=MacUnit(accumulate=NEAR.format)),
    **{f"transforms of {phase}": replace(FLAT, **{phase: MIXED}) for phase in PHASES},
    **{f"formats of {phase}": replace(FLAT, **{phase: OWN}) for phase in PHASES},
    "transforms of blocks": Numerics(weight=BLOCK, activation=BLOCK, error=BLOCK, weight_grad=MIXED, input_grad=MIXED),
}
OPS = {
    "matmul": lambda a, b: a @ b,
    "einsum": lambda a, b: torch.einsum("ij,jk->ik", a, b),
    "tensordot": lambda a, b: torch.tensordot(a, b, 1),
    "bmm": lambda a, b: torch.bmm(a.expand(2, 8, 8), b.expand(2, 8, 8)),
    "broadcast": lambda a, b: a.expand(2, 3, 8, 8) @ b,
    "addmm": lambda a, b: torch.addmm(b, a, b, beta=0.5, alpha=2.0),
    "vector": lambda a, b: a @ b[:, 0],
    "linear": lambda a, b: functional.linear(a, b, b[0]),
    "bilinear": lambda a, b: functional.bilinear(a, a.flip(0), b.expand(3, 8, 8)),
    "convolution": lambda a, b: functional.conv1d(a.expand(3, 8, 8), b.reshape(16, 4, 1), groups=2),
    "transposed": lambda a, b: functional.conv_transpose1d(a.expand(3, 8, 8), b.reshape(8, 4, 2), groups=2),
    "attention": lambda a, b: functional.scaled_dot_product_attention(a[None], b[None], b[None]),
    "grouped": lambda a, b: torch._grouped_mm(a, b.expand(2, 8, 8), torch.tensor([3, 8], dtype=torch.int32)),
}  # fmt: skip
QUICK_OPS = ("matmul", "linear", "convolution", "attention")
QUICK_NUMERICS = ("transforms of weight_grad", "formats of input_grad", "transforms of blocks", "steps")
CASES = [
    pytest.param(op, numerics, marks=() if op in QUICK_OPS and numerics in QUICK_NUMERICS else pytest.mark.slow)
    for op in OPS
    for numerics in NUMERICS
]


class Pair(nn.Module):
    """An operator on two operands, each of them data, a parameter or computed from parameters."""

    def __init__(self, op: str, left: str, right: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.op, self.kinds = OPS[op], (left, right)
        self.own = nn.ParameterList(torch.randn(8, 8) for _ in range(2))

    def forward(self, *data: torch.Tensor) -> torch.Tensor:
        made = {"data": lambda number: data[number], "weight": lambda number: self.own[number]}
        made["made"] = lambda number: torch.cat([self.own[number][4:], self.own[number][:4]])
        return self.op(*(made[kind](number) for number, kind in enumerate(self.kinds)))


def gradients(model: Pair) -> torch.Tensor:
    torch.manual_seed(1)
    inputs = [torch.randn(8, 8, requires_grad=True) for _ in range(2)]
    out = model(*inputs)
    leaves = [leaf for leaf in (*inputs, *model.own) if leaf is not None]
    parts = torch.autograd.grad(out, leaves, torch.randn(out.shape), allow_unused=True)
    return [part for part in parts if part is not None]


@pytest.mark.filterwarnings("ignore::presilicon.emulation.emulation.UncoveredWarning")
@pytest.mark.parametrize(("op", "numerics"), CASES)
def test_every_pair_of_roles_has_the_gradients_of_torch(op: str, numerics: str) -> None:
    for left in ("data", "weight", "made"):
        for right in ("data", "weight", "made"):
            expected = gradients(Pair(op, left, right))
            found = gradients(ps.emulate_(Pair(op, left, right), NUMERICS[numerics]))
            assert len(found) == len(expected) > 0
            for ours, theirs in zip(found, expected, strict=True):
                cosine = functional.cosine_similarity(ours.flatten(), theirs.flatten(), dim=0)
                assert cosine > 0.9999, (left, right)
