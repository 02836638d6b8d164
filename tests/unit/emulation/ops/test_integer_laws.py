"""Products of small integers are exact in every format that holds them, in every operator and layout."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import presilicon as ps
from presilicon.designs import Numerics, RoleFormat
from presilicon.formats import MacUnit, parse

FORMATS = (
    *("e4m3", "e4m3fn", "e5m2", "float16", "bfloat16", "float(exponent=3, mantissa=2)", "fixed(8, 0)", "fixed(6, 2)"),
    *("mxfp8_e4m3", "mxfp6_e2m3", "mxfp4", "bfp(mantissa=4, group=4)", "bfp(mantissa=4, group=2, square=true)"),
    *("posit(8, 1)", "posit(12, 1)", "mxint8", "table(values=[-3, -2, -1, 0, 1, 2, 3])"),
)  # fmt: skip
SUMS = {"float32": MacUnit(), "float16": MacUnit(accumulate=parse("float16"), order="pairwise")}


def integers(*shape: int) -> torch.Tensor:
    return torch.randint(-3, 4, shape).float()


def turned(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in another order of memory."""
    order = list(range(tensor.dim()))
    return tensor.permute(order[::-1]).contiguous().permute(order[::-1])


def vecdot(x: tuple[int, ...], y: tuple[int, ...], axis: int):
    return f"vecdot {x} {y} {axis}", ((x, y), lambda a, b: torch.linalg.vecdot(a, b, dim=axis))


def einsum(equation: str, *shapes: tuple[int, ...]):
    return f"einsum {equation}", (shapes, lambda *operands: torch.einsum(equation, *operands))


def convolution(size: int, *, transposed: bool, **options):
    function = getattr(functional, f"conv{'_transpose' if transposed else ''}{size}d")
    shapes = ((2, 4, *(5,) * size), (4, 2 if options.get("groups") else 4, *(3,) * size))
    return f"{function.__name__} {options}", (shapes, lambda x, w: function(x, w, **options))


OPS = dict([
    vecdot((5, 3), (5, 3), -1), vecdot((5, 3), (5, 3), 0), vecdot((2, 5, 3), (5, 3), 1), vecdot((5, 3), (2, 5, 3), 1),
    vecdot((2, 5, 3), (5, 3), -1), vecdot((2, 5, 3), (5, 3), 0), vecdot((2, 5, 3), (3,), 2), vecdot((5, 1), (5, 3), 0),
    einsum("ij,jk->ik", (4, 5), (5, 3)), einsum("ij,jk->ki", (4, 5), (5, 3)),
    einsum("bij,bkj->bik", (2, 4, 5), (2, 3, 5)),
    einsum("...i,i->...", (2, 4, 5), (5,)), einsum("ij,kl->ijkl", (2, 3), (4, 5)),
    einsum("iij,j->i", (3, 3, 4), (4,)), einsum("ij,ij->", (4, 5), (4, 5)),
    *(convolution(size, transposed=transposed, stride=2, padding=1, **groups)
      for size in (1, 2) for transposed in (False, True) for groups in ({}, {"groups": 2})),
    ("matmul", (((4, 5), (5, 3)), torch.matmul)), ("stacks", (((2, 1, 4, 5), (3, 5, 2)), torch.matmul)),
    ("vector", (((5,), (3, 5, 2)), torch.matmul)), ("vectors", (((5,), (5,)), torch.matmul)),
    ("linear", (((2, 3, 5), (4, 5)), functional.linear)), ("bmm", (((2, 3, 4), (2, 4, 5)), torch.bmm)),
    ("addmm", (((3, 5), (3, 4), (4, 5)), torch.addmm)), ("addbmm", (((3, 5), (2, 3, 4), (2, 4, 5)), torch.addbmm)),
    ("tensordot", (((3, 4, 5), (4, 3, 2)), lambda a, b: torch.tensordot(a, b, ([0, 1], [1, 0])))),
    ("inner", (((2, 3, 4), (5, 4)), torch.inner)),
])  # fmt: skip
QUICK = ("e4m3", "mxfp4", "bfp(mantissa=4, group=2, square=true)", "fixed(8, 0)")


class Function(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *operands):
        return self.function(*operands)


@pytest.mark.parametrize("fmt", [pytest.param(fmt, marks=() if fmt in QUICK else pytest.mark.slow) for fmt in FORMATS])
@pytest.mark.parametrize("sums", SUMS)
def test_products_of_small_integers_are_exact(fmt: str, sums: str) -> None:
    role = RoleFormat(parse(fmt))
    numerics = Numerics(weight=role, activation=role, error=role, mac=SUMS[sums])
    for name, (shapes, function) in OPS.items():
        torch.manual_seed(0)
        operands = [integers(*shape) for shape in shapes]
        for arranged in (operands, [turned(operand) for operand in operands]):
            leaves = [operand.clone(memory_format=torch.preserve_format).requires_grad_() for operand in arranged]
            exact = [operand.double().requires_grad_() for operand in arranged]
            out, expected = ps.emulate_(Function(function), numerics)(*leaves), function(*exact)
            error = integers(*expected.shape)
            out.backward(error)
            expected.backward(error.double())
            assert torch.equal(out.double(), expected), name
            assert all(torch.equal(a.grad.double(), b.grad) for a, b in zip(leaves, exact, strict=True)), name
