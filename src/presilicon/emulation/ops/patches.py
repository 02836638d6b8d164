"""im2col in any number of dimensions: convolutions as matrices."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class ConvolutionGeometry:
    """Stride, padding, dilation and groups; one entry per spatial dimension. Padding is the same on both sides."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    transposed: bool = False
    output_padding: tuple[int, ...] = ()

    def unit_stride(self) -> "ConvolutionGeometry":
        """This geometry without stride and padding, for inputs that were dilated and padded beforehand."""
        ones, zeros = (1,) * len(self.stride), (0,) * len(self.stride)
        return replace(self, stride=ones, padding=zeros)

    def output_size(self, size: torch.Size | tuple[int, ...], kernel: torch.Size | tuple[int, ...]) -> tuple[int, ...]:
        """Spatial size of a plain convolution's result."""
        return tuple(
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, p, d in zip(size, kernel, self.stride, self.padding, self.dilation, strict=True)
        )


def patches(x: Tensor, kernel: tuple[int, ...], geometry: ConvolutionGeometry, positions: tuple[int, ...]) -> Tensor:
    """The inputs under each position of the kernel: (groups, batch * positions, channels / groups * kernel elements).

    `positions` is the number of positions along each dimension; output padding may leave room for more.

    >>> geometry = ConvolutionGeometry(stride=(1,), padding=(0,), dilation=(1,))
    >>> patches(torch.arange(4.0).view(1, 1, 4), (2,), geometry, (3,))[0].tolist()
    [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]
    """
    pads = [p for p in reversed(geometry.padding) for _ in range(2)]
    x = functional.pad(x, pads)
    for axis, (size, stride, dilation) in enumerate(zip(kernel, geometry.stride, geometry.dilation, strict=True)):
        x = x.unfold(2 + axis, (size - 1) * dilation + 1, stride)[..., ::dilation].narrow(2 + axis, 0, positions[axis])
    spatial = len(kernel)
    # Now (batch, channels, positions..., kernel...).
    x = x.unflatten(1, (geometry.groups, -1))
    position_axes, kernel_axes = range(3, 3 + spatial), range(3 + spatial, 3 + 2 * spatial)
    x = x.permute(1, 0, *position_axes, 2, *kernel_axes)
    return x.flatten(2 + spatial).flatten(1, 1 + spatial)


def dilate(x: Tensor, kernel: tuple[int, ...], size: tuple[int, ...], geometry: ConvolutionGeometry) -> Tensor:
    """`x` with stride - 1 zeros between elements, padded so that patches of the kernel give a result of `size`."""
    spread = x.new_zeros(*x.shape[:2], *((n - 1) * s + 1 for n, s in zip(x.shape[2:], geometry.stride, strict=True)))
    strided: tuple[slice, ...] = tuple(slice(None, None, s) for s in geometry.stride)
    spread[(slice(None), slice(None), *strided)] = x
    pads: list[int] = []
    for n, k, p, d, target in zip(spread.shape[2:], kernel, geometry.padding, geometry.dilation, size, strict=True):
        left = d * (k - 1) - p
        right = target + d * (k - 1) - n - left
        pads = [left, right, *pads]
    # A negative pad crops, if the padding of the convolution was wider than its kernel.
    return functional.pad(spread, pads)
