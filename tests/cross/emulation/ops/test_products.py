"""Our own three products of each layer against torch's autograd, in float64."""

import random

import pytest
import torch
from torch import nn
from torch.nn import functional

from presilicon.emulation.ops.calls import readers
from presilicon.emulation.ops.einsum import contract
from presilicon.formats import Patches


def matmul(a, b, bias=None) -> torch.Tensor:
    """A multiplication as a MAC unit's, in float64."""
    a, b = (x.dense() if isinstance(x, Patches) else x for x in (a, b))
    return a @ b if bias is None else a @ b + bias


MULTIPLIES = [None, matmul]


def check(func, *args, multiply=None, **kwargs) -> None:
    """Forward and every gradient of `func` equal torch's own."""
    call = readers()[func](*args, **kwargs)
    expected = func(*args, **kwargs)
    finish = call.finish or (lambda out: out)
    assert torch.allclose(finish(call.product.forward(call.a, call.b, call.bias, multiply)), expected)
    leaves = [tensor.detach().requires_grad_() for tensor in (call.a, call.b)]
    bias = None if call.bias is None else call.bias.detach().requires_grad_()
    out = call.product.forward(*leaves, bias, None)
    error = torch.randn_like(out)
    grads = torch.autograd.grad(out, [*leaves, *([] if bias is None else [bias])], error)
    a, b, product = call.a.detach(), call.b.detach(), call.product
    assert torch.allclose(product.input_grad(error, b, a.shape, multiply), grads[0])
    assert torch.allclose(product.weight_grad(product.rows(a), product.rows(error), b.shape, multiply), grads[1])
    if bias is not None:
        assert torch.allclose(product.bias_grad(error, bias.shape), grads[2])


def tensor(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("multiply", MULTIPLIES)
def test_linear_and_matmul(multiply) -> None:
    torch.manual_seed(0)
    check(functional.linear, tensor(2, 3, 4), tensor(5, 4), tensor(5), multiply=multiply)
    check(functional.linear, tensor(4), tensor(5, 4), multiply=multiply)
    check(torch.matmul, tensor(2, 1, 3, 4), tensor(6, 4, 5), multiply=multiply)
    check(torch.matmul, tensor(4), tensor(4, 5), multiply=multiply)
    check(torch.matmul, tensor(3, 4), tensor(4), multiply=multiply)
    check(torch.matmul, tensor(4), tensor(4), multiply=multiply)
    check(torch.matmul, tensor(4), tensor(2, 4, 3), multiply=multiply)
    check(torch.mm, tensor(3, 4), tensor(4, 5), multiply=multiply)
    check(torch.bmm, tensor(2, 3, 4), tensor(2, 4, 5), multiply=multiply)
    check(torch.mv, tensor(3, 4), tensor(4), multiply=multiply)
    check(torch.addmm, tensor(5), tensor(3, 4), tensor(4, 5), beta=2, alpha=3, multiply=multiply)
    check(torch.addmm, tensor(5), tensor(3, 4), tensor(4, 5), beta=0, multiply=multiply)
    check(torch.baddbmm, tensor(2, 3, 5), tensor(2, 3, 4), tensor(2, 4, 5), multiply=multiply)


@pytest.mark.parametrize("multiply", MULTIPLIES)
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_convolutions_of_random_geometry(multiply, spatial: int) -> None:
    draw = random.Random(spatial)
    torch.manual_seed(spatial)
    plain = [torch.conv1d, torch.conv2d, torch.conv3d][spatial - 1]
    transposed = [torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d][spatial - 1]
    for _ in range(25):
        groups = draw.choice([1, 1, 2, 3])
        channels = groups * draw.randint(1, 3), groups * draw.randint(1, 3)
        kernel = [draw.randint(1, 3) for _ in range(spatial)]
        stride = [draw.randint(1, 3) for _ in range(spatial)]
        dilation = [draw.randint(1, 2) for _ in range(spatial)]
        padding = [draw.randint(0, 3) for _ in range(spatial)]
        size = [draw.randint(5, 7) for _ in range(spatial)]
        x = tensor(2, channels[0], *size)
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        bias = tensor(channels[1])
        check(plain, x, tensor(channels[1], channels[0] // groups, *kernel), bias, multiply=multiply, **options)
        extra = [draw.randrange(max(s, d)) for s, d in zip(stride, dilation, strict=True)]
        weight = tensor(channels[0], channels[1] // groups, *kernel)
        options["padding"] = [draw.randint(0, 1) for _ in range(spatial)]
        check(transposed, x, weight, bias, multiply=multiply, output_padding=extra, **options)


@pytest.mark.parametrize("multiply", MULTIPLIES)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("kernel", [2, 3, 4])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_named_padding_and_unbatched_inputs(multiply, kernel: int, padding: str) -> None:
    check(torch.conv2d, tensor(2, 3, 8, 7), tensor(4, 3, kernel, kernel), None, 1, padding, 2, multiply=multiply)
    check(torch.conv1d, tensor(3, 9), tensor(4, 3, kernel), padding=padding, multiply=multiply)
    check(torch.conv_transpose1d, tensor(3, 9), tensor(3, 4, kernel), multiply=multiply)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)]),
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("...ij,...jk->...ik", [(5, 6, 2, 3), (6, 3, 4)]),
        ("i...,...j", [(2, 5), (5, 3)]),
        ("ij,ij->", [(2, 3), (2, 3)]),
        ("i,j->ij", [(2,), (3,)]),
        ("i,j->ji", [(2,), (3,)]),
        ("ij,kl->k", [(2, 3), (4, 5)]),
        ("iij,jk->ik", [(2, 2, 3), (3, 4)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("bn,anm,bm->ba", [(2, 3), (4, 3, 5), (2, 5)]),
        ("ij,jk->ik", [(2, 1), (3, 4)]),
        ("iji->j", [(2, 3, 2)]),
        ("ij->ji", [(2, 3)]),
        ("ii", [(3, 3)]),
    ],
)
def test_einsum_is_a_chain_of_products(equation: str, shapes: list[tuple[int, ...]]) -> None:
    operands = [tensor(*shape) for shape in shapes]
    found = contract(equation, operands, lambda pair: pair.finish(pair.a @ pair.b))
    expected = torch.einsum(equation, *operands)
    assert found.shape == expected.shape
    assert torch.allclose(found, expected)


def test_the_comparison_can_fail() -> None:
    wrong = nn.Conv2d(2, 3, 3)

    def multiply(a, b, bias=None) -> torch.Tensor:
        return matmul(a, b, bias) * 1.001

    with pytest.raises(AssertionError):
        check(torch.conv2d, tensor(1, 2, 5, 5), wrong.weight.detach().double(), multiply=multiply)
