"""Torch functions that are matrix products, and the conversion of their arguments to a `Call`."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from presilicon.emulation.ops.einsum import Arrangement
from presilicon.emulation.ops.products import (
    ConvolutionGeometry,
    ConvolutionProduct,
    LinearProduct,
    MatmulProduct,
    Product,
)
from presilicon.records import Role


class Call(NamedTuple):
    """A call of a matrix product: its operands, the addend, and how to shape the result."""

    product: Product
    a: Tensor
    b: Tensor
    bias: Tensor | None = None
    finish: Callable[[Tensor], Tensor] | None = None
    sources: tuple[Tensor, Tensor] | None = None
    """The operands as the function received them, whose origins decide on the roles; by default `a` and `b`."""
    roles: tuple[Role | None, Role | None] = (None, None)
    """Roles of the two operands, where they do not depend on the origin of the operand."""
    gradient_later: bool = False
    """Whether weight gradients are rounded later, after those of several products are added."""


_LAYER: tuple[Role | None, Role | None] = (None, "weight")
"""Roles in linear layers and convolutions, whose second operand is a weight whatever it is computed from."""


_LINEAR, _MATMUL = LinearProduct(), MatmulProduct()

Reader = Callable[..., Call]
"""Takes the arguments of the torch function."""


@cache
def readers() -> Mapping[Callable[..., Any], Reader]:
    """Every torch function that is emulated as one matrix product, with the reader of its arguments."""
    table: dict[Callable[..., Any], Reader] = {functional.linear: _linear}
    table |= dict.fromkeys([torch.conv1d, torch.conv2d, torch.conv3d], _convolution)
    table |= dict.fromkeys([torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d], _transposed)
    products = [torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.linalg.matmul]
    table |= dict.fromkeys(products, matmul_call)
    table |= dict.fromkeys([torch.Tensor.__rmatmul__], lambda input, other: matmul_call(other, input))
    table |= dict.fromkeys([torch.mm, torch.bmm, torch.Tensor.mm, torch.Tensor.bmm], _mm)
    table |= dict.fromkeys([torch.mv, torch.Tensor.mv], lambda input, vec: matmul_call(input, vec))
    table |= dict.fromkeys([torch.addmm, torch.Tensor.addmm], _addmm)
    table |= dict.fromkeys([torch.baddbmm, torch.Tensor.baddbmm], _baddbmm)
    table |= dict.fromkeys([torch.addmv, torch.Tensor.addmv], _addmv)
    table |= dict.fromkeys([torch.addbmm, torch.Tensor.addbmm], _addbmm)
    return table


@cache
def uncovered() -> frozenset[Callable[..., Any]]:
    """Torch functions that multiply matrices and are not emulated."""
    named = [
        (torch, "cdist cov corrcoef quantized_lstm quantized_gru _trilinear lobpcg svd_lowrank pca_lowrank"),
        (torch, "addr convolution _convolution conv_tbc matrix_power matrix_exp inverse sspaddmm hspmm"),
        (torch.sparse, "addmm"),
        (torch.Tensor, "addmm_ addbmm_ baddbmm_ addmv_ addr addr_ cov corrcoef matrix_power matrix_exp inverse"),
        (torch.linalg, "matrix_power matrix_exp inv solve lstsq pinv svd qr eigh cholesky householder_product"),
        (functional, "pdist"),
        (torch, "_scaled_mm _scaled_grouped_mm _scaled_grouped_mm_v2"),
        (functional, "scaled_mm scaled_grouped_mm"),
        (torch.sparse, "sampled_addmm spsolve"),
        (torch.fft, "fft ifft rfft irfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn"),
    ]
    functions = [getattr(home, name) for home, names in named for name in names.split() if hasattr(home, name)]
    packets = [getattr(torch.ops.aten, name) for name in _ATEN.split()]
    overloads = [getattr(packet, name) for packet in packets for name in packet.overloads()]
    return frozenset([*functions, *packets, *overloads])


_ATEN = """
    mm bmm mv dot vdot matmul linear inner tensordot einsum bilinear addmm addmv baddbmm addbmm addr convolution
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d scaled_dot_product_attention"""
"""Operators that can be called directly, bypassing the functions that emulation handles."""


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Call:
    if weight.dim() == 1:
        return Call(_LINEAR, input, weight.unsqueeze(0), bias, lambda out: out.squeeze(-1), (input, weight), _LAYER)
    return Call(_LINEAR, input, weight, bias, roles=_LAYER)


def _mm(input: Tensor, mat2: Tensor) -> Call:
    return Call(_MATMUL, input, mat2)


def matmul_call(input: Tensor, other: Tensor) -> Call:
    """The call of `torch.matmul`, including vectors."""
    a = input if input.dim() > 1 else input.unsqueeze(0)
    b = other if other.dim() > 1 else other.unsqueeze(1)

    def finish(out: Tensor) -> Tensor:
        out = out if other.dim() > 1 else out.squeeze(-1)
        return out if input.dim() > 1 else out.squeeze(-1 if other.dim() == 1 else -2)

    return Call(_MATMUL, a, b, finish=finish, sources=(input, other))


def part_call(a: Tensor, b: Tensor, sources: tuple[Tensor, Tensor]) -> Call:
    """The product of parts of two operands."""
    return Call(_MATMUL, a, b, sources=sources)


def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Call:
    scaled = mat1 if alpha == 1 else mat1 * alpha
    added = None if beta == 0 else input if beta == 1 else input * beta
    return Call(_MATMUL, scaled, mat2, added, sources=(mat1, mat2))


def _baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Call:
    return _addmm(input, batch1, batch2, beta=beta, alpha=alpha)


def _addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Call:
    call = _addmm(input.unsqueeze(-1), mat, vec.unsqueeze(1), beta=beta, alpha=alpha)
    return call._replace(finish=lambda out: out.squeeze(-1))


def _addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Call:
    """The sum over the batch is one longer reduction."""
    long = batch1.transpose(0, 1).flatten(1)
    call = _addmm(input, long, batch2.flatten(0, 1), beta=beta, alpha=alpha)
    return call._replace(sources=(batch1, batch2))


def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Call:
    spatial = weight.dim() - 2
    stride, dilation = _per_axis(stride, spatial), _per_axis(dilation, spatial)
    batched = input if input.dim() == weight.dim() else input.unsqueeze(0)
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        # An odd total pads one more on the right, as torch does; the difference is padded beforehand.
        extra = [side for t in reversed(total) for side in (0, t % 2)]
        batched = functional.pad(batched, extra) if any(extra) else batched
        padding = tuple(t // 2 for t in total)
    padding = (0,) * spatial if padding == "valid" else _per_axis(padding, spatial)
    product = _convolution_product(stride, padding, dilation, groups, False, (0,) * spatial)
    return Call(product, batched, weight, bias, _unbatch(input, weight), (input, weight), _LAYER)


def _transposed(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Call:
    spatial = weight.dim() - 2
    product = _convolution_product(
        _per_axis(stride, spatial),
        _per_axis(padding, spatial),
        _per_axis(dilation, spatial),
        groups,
        True,
        _per_axis(output_padding, spatial),
    )
    batched = input if input.dim() == weight.dim() else input.unsqueeze(0)
    return Call(product, batched, weight, bias, _unbatch(input, weight), (input, weight), _LAYER)


@cache
def _convolution_product(
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    transposed: bool,
    output_padding: tuple[int, ...],
) -> ConvolutionProduct:
    return ConvolutionProduct(ConvolutionGeometry(stride, padding, dilation, groups, transposed, output_padding))


def _unbatch(input: Tensor, weight: Tensor) -> Callable[[Tensor], Tensor] | None:
    return None if input.dim() == weight.dim() else lambda out: out.squeeze(0)


def _per_axis(value: Any, spatial: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    return values * spatial if len(values) == 1 else values


def pair_call(pair: Arrangement) -> Call:
    """The product of two arranged operands of an einsum."""
    return Call(_MATMUL, pair.a, pair.b, finish=pair.finish, sources=pair.sources)
