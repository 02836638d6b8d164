"""The matrix products of a training step: forward, input gradient and weight gradient.

A product has an operand `a` (the activation of a layer) and an operand `b` (its weight), and leads to three
multiplications: forward from a and b, the input gradient from the error and b, the weight gradient from a and the
error. Block formats group along the axis that a multiplication reduces.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from presilicon.emulation.ops.patches import ConvolutionGeometry, dilate, patches

Multiply = Callable[[Tensor, Tensor], Tensor]
"""Multiplies (..., m, k) by (..., k, n) as a MAC unit does; None instead means torch's own product."""


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

    def rows(self, tensor: Tensor) -> Tensor:
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
        out = multiply(self.rows(a), b.t()).view(*a.shape[:-1], b.shape[0])
        return out if bias is None else out + bias

    def input_grad(self, error: Tensor, b: Tensor, shape: torch.Size, multiply: Multiply | None) -> Tensor:
        return (multiply or torch.matmul)(self.rows(error), b).view(shape)

    def weight_grad(self, a: Tensor, error: Tensor, shape: torch.Size, multiply: Multiply | None) -> Tensor:
        return (multiply or torch.matmul)(error.t(), a)

    def bias_grad(self, error: Tensor, shape: torch.Size) -> Tensor:
        return self.rows(error).sum(0)

    def gradients(self, error: Tensor, a: Tensor, b: Tensor, needs: Needs) -> Gradients | None:
        rows = error if error.dim() == 2 else self.rows(error)
        flat = a if a.dim() == 2 else self.rows(a)
        grad_a = rows.mm(b).view(a.shape) if needs[0] else None
        return grad_a, rows.t().mm(flat) if needs[1] else None, rows.sum(0) if needs[2] else None

    def rows(self, tensor: Tensor) -> Tensor:
        return tensor.reshape(-1, tensor.shape[-1])


class MatmulProduct(Product):
    """Matrices (..., m, k) by (..., k, n); leading dimensions and the addend are broadcast."""

    axes = Axes(a_forward=-1, b_forward=-2, error_input=-1, b_input=-1, a_weight=-2, error_weight=-2)
    takes_types = True

    def forward(self, a: Tensor, b: Tensor, bias: Tensor | None, multiply: Multiply | None) -> Tensor:
        out = (multiply or torch.matmul)(a, b)
        return out if bias is None else out + bias

    def input_grad(self, error: Tensor, b: Tensor, shape: torch.Size, multiply: Multiply | None) -> Tensor:
        return (multiply or torch.matmul)(error, b.mT).sum_to_size(shape)

    def weight_grad(self, a: Tensor, error: Tensor, shape: torch.Size, multiply: Multiply | None) -> Tensor:
        return (multiply or torch.matmul)(a.mT, error).sum_to_size(shape)

    def bias_grad(self, error: Tensor, shape: torch.Size) -> Tensor:
        return error.sum_to_size(shape)


class ConvolutionProduct(Product):
    """Activations (batch, channels, ...) by kernels (out channels, in channels / groups, ...).

    Without a MAC unit, torch convolves. A MAC unit multiplies im2col matrices; there the input gradient is a
    convolution of the dilated error with the mirrored kernels, so that the unit computes every sum. Block formats group
    along the channels (which each kernel position reduces) and, for the weight gradient, along the batch.
    """

    has_kernels = True

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
        out = self._spread(a, b, multiply) if g.transposed else self._gather(a, b, multiply)
        return out if bias is None else out + bias.view(-1, *[1] * (out.dim() - 2))

    def input_grad(self, error: Tensor, b: Tensor, shape: torch.Size, multiply: Multiply | None) -> Tensor:
        if multiply is None:
            return self._backward(error, error.new_empty(shape), b, 0)
        if self.geometry.transposed:
            return self._gather(error, b, multiply, tuple(shape[2:]))
        return self._spread(error, b, multiply, tuple(shape[2:]))

    def weight_grad(self, a: Tensor, error: Tensor, shape: torch.Size, multiply: Multiply | None) -> Tensor:
        if multiply is None:
            return self._backward(error, a, error.new_empty(shape), 1)
        small, large = (a, error) if self.geometry.transposed else (error, a)
        columns = patches(large, tuple(shape[2:]), self.geometry, tuple(small.shape[2:]))
        rows = _by_group(small, self.geometry.groups)
        return multiply(rows.mT, columns).reshape(shape)

    def bias_grad(self, error: Tensor, shape: torch.Size) -> Tensor:
        return error.sum([0, *range(2, error.dim())])

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

    def _output_size(self, a: Tensor, b: Tensor) -> tuple[int, ...]:
        """Spatial size of a transposed convolution's result."""
        g = self.geometry
        return tuple(
            (size - 1) * s - 2 * p + d * (k - 1) + o + 1
            for size, k, s, p, d, o in zip(
                a.shape[2:], b.shape[2:], g.stride, g.padding, g.dilation, g.output_padding, strict=True
            )
        )

    def _gather(self, a: Tensor, b: Tensor, multiply: Multiply, size: tuple[int, ...] | None = None) -> Tensor:
        """A plain convolution: patches of `a` by the kernels."""
        g = self.geometry
        size = size or g.output_size(a.shape[2:], b.shape[2:])
        columns = patches(a, tuple(b.shape[2:]), g, size)
        kernels = b.reshape(g.groups, b.shape[0] // g.groups, -1)
        return _from_groups(multiply(columns, kernels.mT), a.shape[0], size)

    def _spread(self, a: Tensor, b: Tensor, multiply: Multiply, size: tuple[int, ...] | None = None) -> Tensor:
        """The transpose of a convolution: patches of the dilated `a` by the mirrored kernels."""
        g = self.geometry
        kernel = tuple(b.shape[2:])
        size = size or self._output_size(a, b)
        columns = patches(dilate(a, kernel, size, g), kernel, g.unit_stride(), size)
        mirrored = b.flip(list(range(2, b.dim())))
        per_group = mirrored.reshape(g.groups, b.shape[0] // g.groups, *b.shape[1:])
        kernels = per_group.movedim(2, -1).reshape(g.groups, -1, b.shape[1])
        return _from_groups(multiply(columns, kernels), a.shape[0], size)


def _by_group(tensor: Tensor, groups: int) -> Tensor:
    """(batch, channels, ...) as (groups, batch * positions, channels / groups)."""
    split: Tensor = tensor.flatten(2).unflatten(1, (groups, -1))
    return split.permute(1, 0, 3, 2).flatten(1, 2)


def _from_groups(tensor: Tensor, batch: int, size: tuple[int, ...]) -> Tensor:
    """(groups, batch * positions, channels / groups) as (batch, channels, ...)."""
    groups, _, channels = tensor.shape
    spread: Tensor = tensor.view(groups, batch, -1, channels).permute(1, 0, 3, 2)
    return spread.reshape(batch, groups * channels, *size)
