"""The matrix products of a training step: forward, input gradient and weight gradient.

A product has an operand `a` (the activation of a layer) and an operand `b` (its weight), and leads to three
multiplications: forward from a and b, the input gradient from the error and b, the weight gradient from a and the
error. Block formats group along the axis that a multiplication reduces.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from presilicon.formats import Factored, Patches


class Multiply(Protocol):
    """Multiplies (..., m, k) by (..., k, n) as a MAC unit does, and adds a bias of n numbers in float32."""

    def __call__(
        self, a: Tensor | Patches | Factored, b: Tensor | Patches | Factored, bias: Tensor | None = None
    ) -> Tensor: ...


OperandT = TypeVar("OperandT", bound=Tensor | Factored)


def numbers_of(operand: Tensor | Factored) -> Tensor:
    """The numbers of an operand."""
    return operand.values() if isinstance(operand, Factored) else operand


Needs = tuple[bool, bool, bool]
"""Whether the gradients of a, b and the bias are needed."""


Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


class Axes(NamedTuple):
    """The reduction axis of each operand in each of the three multiplications."""

    a_forward: int
    b_forward: int
    error_input: int
    b_input: int
    a_weight: int
    error_weight: int


class Product(ABC):
    """A kind of matrix product, on operands that are already rounded."""

    axes: Axes
    groups: int = 1
    """Number of groups of a grouped convolution."""
    has_kernels: bool = False
    """Whether the weights are kernels of a convolution, which have more than two axes."""
    keeps_matrices: bool = False
    """Whether operands are multiplied as the matrices of their last two axes."""
    takes_types: bool = False
    """Whether operands may be tensors of the types that tensor cores read."""
    error_first: bool = False
    """Whether the error is the left factor of the weight gradient, for a MAC unit."""

    @abstractmethod
    def forward(self, a: Tensor, b: Tensor, bias: Tensor | None, multiply: Multiply | None) -> Tensor:
        """The product itself, with the bias added."""

    @abstractmethod
    def input_grad(self, error: Tensor, b: Tensor, shape: torch.Size, multiply: Multiply | None) -> Tensor:
        """The gradient of `a`, of the given shape."""

    @abstractmethod
    def weight_grad(self, a: Tensor, error: Tensor, shape: torch.Size, multiply: Multiply | None) -> Tensor:
        """The gradient of `b`, of the given shape."""

    @abstractmethod
    def bias_grad(self, error: Tensor, shape: torch.Size) -> Tensor:
        """The gradient of the bias, of the given shape."""

    def gradients(self, error: Tensor, a: Tensor, b: Tensor, needs: Needs) -> Gradients | None:
        """The gradients of `a`, `b` and the bias in one call, or None if torch has no such call."""
        return None

    def rows(self, tensor: OperandT) -> OperandT:
        """`a` or the error in the shape that the weight gradient reduces along the axis in `axes`."""
        return tensor


class LinearProduct(Product):
    """Activations (..., k) by weights (n, k)."""

    axes = Axes(a_forward=-1, b_forward=1, error_input=-1, b_input=0, a_weight=0, error_weight=0)
    error_first = True
    takes_types = True

    def forward(self, a: Tensor, b: Tensor, bias: Tensor | None, multiply: Multiply | None) -> Tensor:
        if multiply is None:
            return functional.linear(a, b, bias)
        return multiply(self.rows(a), b.t(), bias).view(*a.shape[:-1], b.shape[0])

    def input_grad(self, error: Tensor, b: Tensor, shape: torch.Size, multiply: Multiply | None) -> Tensor:
        return (multiply or torch.matmul)(self.rows(error), b).view(shape)

    def weight_grad(self, a: Tensor, error: Tensor, shape: torch.Size, multiply: Multiply | None) -> Tensor:
        return (multiply or torch.matmul)(error.t(), a)

    def bias_grad(self, error: Tensor, shape: torch.Size) -> Tensor:
        return self.rows(error).sum(0, dtype=torch.float32 if error.dtype.itemsize < 4 else None)

    def gradients(self, error: Tensor, a: Tensor, b: Tensor, needs: Needs) -> Gradients | None:
        rows = error if error.dim() == 2 else self.rows(error)
        flat = a if a.dim() == 2 else self.rows(a)
        grad_a = rows.mm(b).view(a.shape) if needs[0] else None
        return grad_a, rows.t().mm(flat) if needs[1] else None, rows.sum(0) if needs[2] else None

    def rows(self, tensor: OperandT) -> OperandT:
        rows: OperandT = tensor.reshape(-1, tensor.shape[-1])  # type: ignore[assignment]
        return rows


class MatmulProduct(Product):
    """Matrices (..., m, k) by (..., k, n); leading dimensions and the addend are broadcast."""

    axes = Axes(a_forward=-1, b_forward=-2, error_input=-1, b_input=-1, a_weight=-2, error_weight=-2)
    keeps_matrices = True
    takes_types = True

    def forward(self, a: Tensor, b: Tensor, bias: Tensor | None, multiply: Multiply | None) -> Tensor:
        out = (multiply or torch.matmul)(a, b)
        return out if bias is None else out + bias

    def input_grad(self, error: Tensor, b: Tensor, shape: torch.Size, multiply: Multiply | None) -> Tensor:
        return (multiply or torch.matmul)(error, b.mT).sum_to_size(shape)

    def weight_grad(self, a: Tensor, error: Tensor, shape: torch.Size, multiply: Multiply | None) -> Tensor:
        return (multiply or torch.matmul)(a.mT, error).sum_to_size(shape)

    def bias_grad(self, error: Tensor, shape: torch.Size) -> Tensor:
        return (error.float() if error.dtype.itemsize < 4 else error).sum_to_size(shape)


@dataclass(frozen=True)
class ConvolutionGeometry:
    """Stride, padding, dilation and groups; one entry per spatial dimension. Padding is the same on both sides."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    transposed: bool = False
    output_padding: tuple[int, ...] = ()

    def output_size(self, size: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, ...]:
        """Spatial size of the result."""
        axes = list(zip(size, kernel, self.stride, self.padding, self.dilation, strict=True))
        if not self.transposed:
            return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes)
        sizes = ((n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in axes)
        return tuple(n + o for n, o in zip(sizes, self.output_padding, strict=True))

    def gathered(self, x: Tensor, kernel: tuple[int, ...], size: tuple[int, ...]) -> Patches:
        """The padded input that a plain convolution reads for a result of `size`."""
        ones = (1,) * len(kernel)
        return Patches(x, kernel, size, self.stride, self.padding, self.dilation, ones, self.groups)

    def spread(self, x: Tensor, kernel: tuple[int, ...], size: tuple[int, ...]) -> Patches:
        """The spread input that the transpose of a convolution reads with mirrored kernels, for a result of `size`."""
        reach = tuple(d * (k - 1) - p for k, p, d in zip(kernel, self.padding, self.dilation, strict=True))
        return Patches(x, kernel, size, (1,) * len(kernel), reach, self.dilation, self.stride, self.groups)


class ConvolutionProduct(Product):
    """Activations (batch, channels, ...) by kernels (out channels, in channels / groups, ...).

    Without a MAC unit, torch convolves. A MAC unit multiplies im2col matrices; there the input gradient is a
    convolution of the dilated error with the mirrored kernels, so that the unit computes every sum. Block formats group
    along the channels (which each kernel position reduces) and, for the weight gradient, along the batch.
    """

    has_kernels = True
    takes_types = True

    def __init__(self, geometry: ConvolutionGeometry) -> None:
        self.geometry = geometry
        self.groups = geometry.groups
        self.error_first = not geometry.transposed
        b_forward, b_input = (0, 1) if geometry.transposed else (1, 0)
        self.axes = Axes(1, b_forward, 1, b_input, 0, 0)

    def forward(self, a: Tensor, b: Tensor, bias: Tensor | None, multiply: Multiply | None) -> Tensor:
        g = self.geometry
        if multiply is None:
            return torch.convolution(
                a, b, bias, g.stride, g.padding, g.dilation, g.transposed, g.output_padding, g.groups
            )
        size = g.output_size(a.shape[2:], b.shape[2:])
        return (self._spread if g.transposed else self._gather)(a, b, bias, size, multiply)

    def input_grad(self, error: Tensor, b: Tensor, shape: torch.Size, multiply: Multiply | None) -> Tensor:
        if multiply is None:
            return self._backward(error, error.new_empty(shape), b, 0)
        return (self._gather if self.geometry.transposed else self._spread)(error, b, None, shape[2:], multiply)

    def weight_grad(self, a: Tensor, error: Tensor, shape: torch.Size, multiply: Multiply | None) -> Tensor:
        if multiply is None:
            return self._backward(error, a, error.new_empty(shape), 1)
        small, large = (a, error) if self.geometry.transposed else (error, a)
        columns = self.geometry.gathered(large, shape[2:], small.shape[2:])
        rows = small.movedim(1, -1).flatten(0, -2).unflatten(1, (self.geometry.groups, -1))
        gradient = multiply(rows.permute(1, 2, 0), columns)
        gradient = gradient.reshape(shape[0], *shape[2:], shape[1]).movedim(-1, 1)
        return gradient if _is_channels_last(a) or _is_channels_last(error) else gradient.contiguous()

    def bias_grad(self, error: Tensor, shape: torch.Size) -> Tensor:
        return error.sum([0, *range(2, error.dim())], dtype=torch.float32 if error.dtype.itemsize < 4 else None)

    def gradients(self, error: Tensor, a: Tensor, b: Tensor, needs: Needs) -> Gradients | None:
        g = self.geometry
        bias = [error.shape[1]] if needs[2] else None
        gradients: Gradients = torch.ops.aten.convolution_backward(
            error, a, b, bias, g.stride, g.padding, g.dilation, g.transposed, g.output_padding, g.groups, list(needs)
        )
        return gradients

    def _backward(self, error: Tensor, a: Tensor, b: Tensor, which: int) -> Tensor:
        g = self.geometry
        mask = [which == 0, which == 1, False]
        gradient: Tensor = torch.ops.aten.convolution_backward(
            error, a, b, None, g.stride, g.padding, g.dilation, g.transposed, g.output_padding, g.groups, mask
        )[which]
        return gradient

    def _gather(self, a: Tensor, b: Tensor, bias: Tensor | None, size: tuple[int, ...], multiply: Multiply) -> Tensor:
        """A plain convolution: patches of `a` by the kernels."""
        columns = self.geometry.gathered(a, b.shape[2:], size)
        kernels = b.movedim(1, -1).reshape(self.groups, b.shape[0] // self.groups, -1)
        return self._result(columns, kernels.mT, bias, _is_channels_last(a) or _is_channels_last(b), multiply)

    def _spread(self, a: Tensor, b: Tensor, bias: Tensor | None, size: tuple[int, ...], multiply: Multiply) -> Tensor:
        """The transpose of a convolution: patches of the dilated `a` by the mirrored kernels."""
        columns = self.geometry.spread(a, b.shape[2:], size)
        mirrored = b.flip(list(range(2, b.dim()))) if b.shape[2:].numel() > 1 else b
        per_group = mirrored.unflatten(0, (self.groups, -1))  # (groups, in, out, kernel...)
        kernels = per_group.movedim((1, 2), (-2, -1)).reshape(self.groups, -1, b.shape[1])
        return self._result(columns, kernels, bias, _is_channels_last(a) or _is_channels_last(b), multiply)

    def _result(
        self, columns: Patches, kernels: Tensor, bias: Tensor | None, channels_last: bool, multiply: Multiply
    ) -> Tensor:
        """(batch, channels, ...), with channels last in memory if torch would have them there."""
        groups = multiply(columns, kernels, bias if self.groups == 1 else None)
        spread: Tensor = groups.transpose(0, 1).reshape(len(columns.x), *columns.positions, -1)
        out = (spread if bias is None or self.groups == 1 else spread + bias).movedim(-1, 1)
        return out if channels_last else out.contiguous()


def _is_channels_last(tensor: Tensor) -> bool:
    """Whether a tensor of pictures has its channels last in memory, by the strides that torch gives it."""
    if tensor.dim() != 4:
        return False
    _, channels, height, width = tensor.shape
    return tensor.stride() == (channels * height * width, 1, channels * width, channels)
