"""im2col in any number of dimensions: the inputs of a convolution as a matrix, which need not be in memory."""

import math
from dataclasses import dataclass, replace

from presilicon.base import torch


@dataclass(frozen=True, eq=False)
class Patches:
    """The inputs under each position of a kernel: (groups, batch * positions, kernel elements * channels / groups).

    Position p of an axis and element k of the kernel read input (p * step - padding + k * dilation) / gap, or zero
    where that is no whole number or outside of the input. Channels vary fastest along the last axis, as in the memory
    of channels-last tensors. Sizes have one entry per spatial axis.

    >>> import torch
    >>> x = torch.arange(4.0).view(1, 1, 4)
    >>> Patches(x, kernel=(2,), positions=(3,), step=(1,), padding=(0,), dilation=(1,), gap=(1,)).dense()[0].tolist()
    [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]
    """

    x: "torch.Tensor"
    """(batch, channels, ...)."""
    kernel: tuple[int, ...]
    positions: tuple[int, ...]
    step: tuple[int, ...]
    padding: tuple[int, ...]
    """Zeros on the left; inputs are cut off if it is negative."""
    dilation: tuple[int, ...]
    gap: tuple[int, ...]
    """Distance of neighbouring inputs, with zeros between them."""
    groups: int = 1

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the matrices."""
        batch, channels = self.x.shape[:2]
        return self.groups, batch * math.prod(self.positions), math.prod(self.kernel) * channels // self.groups

    @property
    def device(self) -> "torch.device":
        """The device of the inputs."""
        return self.x.device

    def in_two_dimensions(self) -> "Patches":
        """These patches of one spatial axis as patches of two."""
        if len(self.kernel) != 1:
            return self
        one = (1,)
        return replace(
            self,
            x=self.x.unsqueeze(2),
            kernel=one + self.kernel,
            positions=one + self.positions,
            step=one + self.step,
            padding=(0, *self.padding),
            dilation=one + self.dilation,
            gap=one + self.gap,
        )

    def dense(self) -> "torch.Tensor":
        """The matrices in memory."""
        from torch.nn import functional

        # Bytes stand for numbers of 8 bits, which torch can copy, but not pad.
        dtype = self.x.dtype
        x = self._spread(self.x.view(torch.uint8) if dtype.itemsize == 1 else self.x)
        pads: list[int] = []
        sizes = zip(x.shape[2:], self.kernel, self.positions, self.step, self.padding, self.dilation, strict=True)
        for size, kernel, positions, step, padding, dilation in sizes:
            reach = (positions - 1) * step + (kernel - 1) * dilation + 1
            pads = [padding, reach - size - padding, *pads]
        x = functional.pad(x, pads)
        for axis, (kernel, step, dilation) in enumerate(zip(self.kernel, self.step, self.dilation, strict=True)):
            x = x.unfold(2 + axis, (kernel - 1) * dilation + 1, step)[..., ::dilation]
        spatial = len(self.kernel)
        # Now (batch, channels, positions..., kernel...).
        x = x.view(x.shape[0], self.groups, -1, *x.shape[2:]) if self.groups > 1 else x.unsqueeze(1)
        position_axes, kernel_axes = range(3, 3 + spatial), range(3 + spatial, 3 + 2 * spatial)
        x = x.permute(1, 0, *position_axes, *kernel_axes, 2)
        matrices: torch.Tensor = x.flatten(2 + spatial).flatten(1, 1 + spatial)
        return matrices.view(dtype)

    def _spread(self, x: "torch.Tensor") -> "torch.Tensor":
        """The inputs with zeros in the gaps."""
        if all(gap == 1 for gap in self.gap):
            return x
        spread = x.new_zeros(*x.shape[:2], *((n - 1) * gap + 1 for n, gap in zip(x.shape[2:], self.gap, strict=True)))
        spread[(slice(None), slice(None), *(slice(None, None, gap) for gap in self.gap))] = x
        return spread
