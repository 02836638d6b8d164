"""The matrix products inside ATen operators: their dimensions, their operands, and the geometry of convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from torch import Tensor

from presilicon.ops.entry import Captured
from presilicon.records import Convolution, Gemm, OpKind


@dataclass(frozen=True, slots=True)
class CallProduct:
    """A matrix product in an operator call."""

    kind: OpKind
    gemm: Gemm | None
    """None for a bias gradient, which is a sum."""
    operands: tuple[Tensor, ...]
    """Left factor, right factor, and the addend if there is one."""
    output: Tensor
    convolution: Convolution | None = None
    label: str = ""
    """Distinguishes the parts of one call."""

    @property
    def flops(self) -> int:
        """Two per multiply-add; one per element for the sum of a bias gradient."""
        return self.gemm.flops if self.gemm else self.operands[0].numel()


def find_products(name: str, captured: Captured, args: Sequence[Any], output: Any) -> list[CallProduct]:
    """The matrix products in one operator call; empty if the operator is not a product.

    One call may contain several: `convolution_backward` computes the gradients of the input, the weight and the bias.
    """
    if name == "convolution_backward":
        return _convolution_backward(args, output)
    if name == "convolution":
        convolution = _geometry(args[0].shape, output.shape, args[1].shape, args[3], args[4], args[5], args[6], args[8])
        operands = tuple(tensor for tensor in args[:3] if tensor is not None)
        return [CallProduct("convolution", im2col(convolution), operands, output, convolution)]
    if captured.product is None:
        return []
    gemm, operands = captured.product(*args)
    return [CallProduct("gemm", gemm, operands, output)]


def im2col(convolution: Convolution) -> Gemm:
    """The forward pass of a convolution as a matrix product, one per group.

    Rows are the positions of the kernel: those of the output, or for a transposed convolution those of the input, which
    multiplies each of its pixels by the whole kernel and adds the overlapping results, so that no inserted zero is
    multiplied.

    >>> im2col(Convolution(batch=2, in_channels=3, out_channels=8, input_size=(8, 8), output_size=(6, 6),
    ...                    kernel=(3, 3), stride=(1, 1), padding=(0, 0), dilation=(1, 1)))
    Gemm(m=72, k=27, n=8, count=1)
    """
    groups = convolution.groups
    into, out = convolution.in_channels // groups, convolution.out_channels // groups
    window = prod(convolution.kernel)
    if convolution.transposed:
        return Gemm(convolution.batch * prod(convolution.input_size), into, window * out, groups)
    return Gemm(convolution.batch * prod(convolution.output_size), window * into, out, groups)


def input_gradient(forward: Gemm) -> Gemm:
    """E W^T: from the forward product A[m, k] W[k, n], the product E[m, n] W^T[n, k]."""
    return Gemm(forward.m, forward.n, forward.k, forward.count)


def weight_gradient(forward: Gemm) -> Gemm:
    """A^T E: from the forward product A[m, k] W[k, n], the product A^T[k, m] E[m, n]."""
    return Gemm(forward.k, forward.m, forward.n, forward.count)


def _convolution_backward(args: Sequence[Any], outputs: Any) -> list[CallProduct]:
    error, activation, weight, _, stride, padding, dilation, transposed, _, groups, _ = args
    convolution = _geometry(activation.shape, error.shape, weight.shape, stride, padding, dilation, transposed, groups)
    forward = im2col(convolution)
    parts: list[CallProduct] = []
    if outputs[0] is not None:
        gemm = input_gradient(forward)
        parts.append(CallProduct("convolution", gemm, (error, weight), outputs[0], convolution))
    if outputs[1] is not None:
        gemm = weight_gradient(forward)
        parts.append(CallProduct("convolution", gemm, (activation, error), outputs[1], convolution))
    if outputs[2] is not None:
        parts.append(CallProduct("reduction", None, (error,), outputs[2], label="bias"))
    return parts


def _geometry(
    input_shape: Sequence[int],
    output_shape: Sequence[int],
    weight_shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
) -> Convolution:
    spatial = len(input_shape) - 2

    def per_dimension(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(values) if len(values) == spatial else tuple(values) * spatial

    return Convolution(
        batch=input_shape[0],
        in_channels=input_shape[1],
        out_channels=output_shape[1],
        input_size=tuple(input_shape[2:]),
        output_size=tuple(output_shape[2:]),
        kernel=tuple(weight_shape[2:]),
        stride=per_dimension(stride),
        padding=per_dimension(padding),
        dilation=per_dimension(dilation),
        groups=groups,
        transposed=transposed,
    )
