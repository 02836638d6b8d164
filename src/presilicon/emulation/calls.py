"""Which torch functions are matrix products, and how their arguments become one."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from presilicon.emulation.einsum import Arrangement
from presilicon.emulation.patches import ConvolutionGeometry
from presilicon.emulation.products import ConvolutionProduct, LinearProduct, MatmulProduct, Product


class Call(NamedTuple):
    """A matrix product that was asked for: its operands, what is added, and how to shape the result."""

    product: Product
    a: Tensor
    b: Tensor
    bias: Tensor | None = None
    finish: Callable[[Tensor], Tensor] | None = None


Reader = Callable[..., Call]
"""Takes a function's own arguments."""


@cache
def readers() -> Mapping[Callable[..., Any], Reader]:
    """Every torch function that emulation takes for a matrix product, with what reads its arguments."""
    table: dict[Callable[..., Any], Reader] = {functional.linear: _linear}
    table |= dict.fromkeys([torch.conv1d, torch.conv2d, torch.conv3d], _convolution)
    table |= dict.fromkeys([torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d], _transposed)
    table |= dict.fromkeys([torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__], _matmul)
    table |= dict.fromkeys([torch.Tensor.__rmatmul__], lambda input, other: _matmul(other, input))
    table |= dict.fromkeys([torch.mm, torch.bmm, torch.Tensor.mm, torch.Tensor.bmm], _mm)
    table |= dict.fromkeys([torch.mv, torch.Tensor.mv], lambda input, vec: _matmul(input, vec))
    table |= dict.fromkeys([torch.addmm, torch.Tensor.addmm], _addmm)
    table |= dict.fromkeys([torch.baddbmm, torch.Tensor.baddbmm], _baddbmm)
    return table


@cache
def uncovered() -> frozenset[Callable[..., Any]]:
    """Torch functions that multiply matrices inside, out of emulation's reach so far."""
    named = [
        (torch, "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell"),
        (torch, "bilinear tensordot inner addbmm addmv dot vdot outer chain_matmul cdist"),
        (torch.Tensor, "inner addbmm addmv dot vdot outer"),
        (torch.linalg, "matmul multi_dot vecdot"),
        (functional, "scaled_dot_product_attention multi_head_attention_forward bilinear"),
    ]
    return frozenset(getattr(home, name) for home, names in named for name in names.split() if hasattr(home, name))


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Call:
    if weight.dim() == 1:
        return Call(LinearProduct(), input, weight.unsqueeze(0), bias, lambda out: out.squeeze(-1))
    return Call(LinearProduct(), input, weight, bias)


def _mm(input: Tensor, mat2: Tensor) -> Call:
    return Call(MatmulProduct(), input, mat2)


def _matmul(input: Tensor, other: Tensor) -> Call:
    a = input if input.dim() > 1 else input.unsqueeze(0)
    b = other if other.dim() > 1 else other.unsqueeze(1)

    def finish(out: Tensor) -> Tensor:
        out = out if other.dim() > 1 else out.squeeze(-1)
        return out if input.dim() > 1 else out.squeeze(-1 if other.dim() == 1 else -2)

    return Call(MatmulProduct(), a, b, finish=finish)


def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Call:
    scaled = mat1 if alpha == 1 else mat1 * alpha
    added = None if beta == 0 else input if beta == 1 else input * beta
    return Call(MatmulProduct(), scaled, mat2, added)


def _baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Call:
    return _addmm(input, batch1, batch2, beta=beta, alpha=alpha)


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
        # An odd total pads one more on the right, as torch does; that much is padded beforehand.
        extra = [side for t in reversed(total) for side in (0, t % 2)]
        batched = functional.pad(batched, extra) if any(extra) else batched
        padding = tuple(t // 2 for t in total)
    geometry = ConvolutionGeometry(
        stride, (0,) * spatial if padding == "valid" else _per_axis(padding, spatial), dilation, groups,
        output_padding=(0,) * spatial,
    )  # fmt: skip
    return Call(ConvolutionProduct(geometry), batched, weight, bias, _unbatch(input, weight))


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
    geometry = ConvolutionGeometry(
        _per_axis(stride, spatial),
        _per_axis(padding, spatial),
        _per_axis(dilation, spatial),
        groups,
        transposed=True,
        output_padding=_per_axis(output_padding, spatial),
    )
    batched = input if input.dim() == weight.dim() else input.unsqueeze(0)
    return Call(ConvolutionProduct(geometry), batched, weight, bias, _unbatch(input, weight))


def _unbatch(input: Tensor, weight: Tensor) -> Callable[[Tensor], Tensor] | None:
    return None if input.dim() == weight.dim() else lambda out: out.squeeze(0)


def _per_axis(value: Any, spatial: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    return values * spatial if len(values) == 1 else values


def pair_call(pair: Arrangement) -> Call:
    """Two arranged operands of an einsum as a product."""
    return Call(MatmulProduct(), pair.a, pair.b, finish=pair.finish)
