"""The matrix products inside ATen operators: their dimensions, their operands, and the geometry of convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from torch import Tensor

from presilicon.records import Convolution, Gemm, OpKind


@dataclass(frozen=True, slots=True)
class Product:
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


_CONVOLUTIONS = frozenset(
    ["convolution", "convolution_backward", "convolution_overrideable", "cudnn_convolution", "mkldnn_convolution"]
)


def product_kind(name: str) -> OpKind | None:
    """The kind of an operator that multiplies matrices; None for every other operator."""
    if name in _CONVOLUTIONS:
        return "convolution"
    return "gemm" if name in _SHAPES else None


def find_products(name: str, args: Sequence[Any], output: Any) -> list[Product]:
    """The matrix products in one operator call; empty if the operator is not a product.

    One call may contain several: `convolution_backward` computes the gradients of the input, the weight and the bias.
    """
    if name == "convolution_backward":
        return _convolution_backward(args, output)
    if name == "convolution":
        convolution = _geometry(args[0].shape, output.shape, args[1].shape, args[3], args[4], args[5], args[6], args[8])
        operands = tuple(tensor for tensor in args[:3] if tensor is not None)
        return [Product("convolution", im2col(convolution), operands, output, convolution)]
    shape = _SHAPES.get(name)
    if shape is None:
        return []
    gemm, operands = shape(*args)
    return [Product("gemm", gemm, operands, output)]


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


def _convolution_backward(args: Sequence[Any], outputs: Any) -> list[Product]:
    error, activation, weight, _, stride, padding, dilation, transposed, _, groups, _ = args
    convolution = _geometry(activation.shape, error.shape, weight.shape, stride, padding, dilation, transposed, groups)
    forward = im2col(convolution)
    parts: list[Product] = []
    if outputs[0] is not None:
        gemm = input_gradient(forward)
        parts.append(Product("convolution", gemm, (error, weight), outputs[0], convolution))
    if outputs[1] is not None:
        gemm = weight_gradient(forward)
        parts.append(Product("convolution", gemm, (activation, error), outputs[1], convolution))
    if outputs[2] is not None:
        parts.append(Product("reduction", None, (error,), outputs[2], label="bias"))
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


Shaped = tuple[Gemm, tuple[Tensor, ...]]


def _mm(left: Tensor, right: Tensor, *_: Any) -> Shaped:
    return Gemm(left.shape[0], left.shape[1], right.shape[1]), (left, right)


def _bmm(left: Tensor, right: Tensor, *_: Any) -> Shaped:
    return Gemm(left.shape[1], left.shape[2], right.shape[2], left.shape[0]), (left, right)


def _mv(left: Tensor, right: Tensor, *_: Any) -> Shaped:
    return Gemm(left.shape[0], left.shape[1], 1), (left, right)


def _added(product: Callable[..., Shaped]) -> Callable[..., Shaped]:
    """The shape of a product to which its first argument is added."""
    return lambda added, left, right, *_: (product(left, right)[0], (left, right, added))


def _dot(left: Tensor, right: Tensor, *_: Any) -> Shaped:
    return Gemm(1, left.shape[0], 1), (left, right)


def _linear(left: Tensor, weight: Tensor, bias: Tensor | None = None) -> Shaped:
    operands = (left, weight) if bias is None else (left, weight, bias)
    return Gemm(prod(left.shape[:-1]), left.shape[-1], weight.shape[0]), operands


def _grouped_mm(left: Tensor, right: Tensor, offs: Tensor | None = None, *_: Any) -> Shaped:
    """A grouped product: as many equal ones as there are groups, or a single one if the groups cannot be equal."""
    m, k, n = left.shape[-2], left.shape[-1], right.shape[-1]
    if offs is None:
        return Gemm(m, k, n, left.shape[0]), (left, right)
    groups = len(offs)
    sizes = {"m": m, "k": k, "n": n}
    divided = "k" if left.dim() == right.dim() else "m" if left.dim() == 2 else "n"
    if sizes[divided] % groups:
        return Gemm(**sizes), (left, right)
    sizes[divided] //= groups
    return Gemm(**sizes, count=groups), (left, right)


_SHAPES: dict[str, Callable[..., Shaped]] = {
    "mm": _mm,
    "_int_mm": _mm,
    **dict.fromkeys(("addmm", "addmm_", "_addmm_activation", "_sparse_addmm"), _added(_mm)),
    "bmm": _bmm,
    **dict.fromkeys(("baddbmm", "baddbmm_", "addbmm"), _added(_bmm)),
    "mv": _mv,
    **dict.fromkeys(("addmv", "addmv_"), _added(_mv)),
    "dot": _dot,
    "vdot": _dot,
    "linear": _linear,
    "_grouped_mm": _grouped_mm,
    "grouped_mm_fallback": _grouped_mm,
    "_scaled_mm": _mm,
    "_sparse_mm": _mm,
}
