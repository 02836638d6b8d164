"""U-Nets in plain torch: images (Ronneberger et al., 2015) and volumes (Cicek et al., 2016), unpadded as published."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from presilicon.workloads.networks.normalization import Normalization, make_norm

_CONVOLUTIONS: dict[int, Any] = {2: nn.Conv2d, 3: nn.Conv3d}
_POOLS: dict[int, Any] = {2: nn.MaxPool2d, 3: nn.MaxPool3d}
_UPWARDS: dict[int, Any] = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


class UNet(nn.Module):
    """A path down and a path up, joined at each size; convolutions have no padding, so the result is smaller."""

    def __init__(
        self,
        dimensions: int,
        channels: int,
        down: tuple[tuple[int, int], ...],
        up: tuple[tuple[int, int, int], ...],
        classes: int,
        normalization: Normalization,
    ) -> None:
        super().__init__()
        self.down = nn.ModuleList()
        for first, second in down:
            self.down.append(_pair(dimensions, channels, first, second, normalization))
            channels = second
        self.pool = _POOLS[dimensions](2)
        self.rise = nn.ModuleList()
        self.up = nn.ModuleList()
        for (raised, first, second), (_, joined) in zip(up, reversed(down[:-1]), strict=True):
            self.rise.append(_UPWARDS[dimensions](channels, raised, 2, stride=2))
            self.up.append(_pair(dimensions, raised + joined, first, second, normalization))
            channels = second
        self.classifier = _CONVOLUTIONS[dimensions](channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of (batch, channels, *sizes), at the positions that the unpadded convolutions leave."""
        joined: list[Tensor] = []
        for number, pair in enumerate(self.down):
            x = pair(x if number == 0 else self.pool(x))
            joined.append(x)
        for rise, pair, beside in zip(self.rise, self.up, reversed(joined[:-1]), strict=True):
            x = rise(x)
            x = pair(torch.cat([_cropped(beside, x), x], dim=1))
        scores: Tensor = self.classifier(x)
        return scores


def unet2d(classes: int = 2, normalization: Normalization = "batch") -> nn.Module:
    """The U-Net for images: 64 channels at full size, doubled at each of four halvings; 31 million parameters."""
    down = ((64, 64), (128, 128), (256, 256), (512, 512), (1024, 1024))
    up = ((512, 512, 512), (256, 256, 256), (128, 128, 128), (64, 64, 64))
    return UNet(2, 1, down, up, classes, normalization)


def unet3d(classes: int = 3, normalization: Normalization = "batch") -> nn.Module:
    """The U-Net for volumes: channels double before each of three halvings; 19 million parameters."""
    down = ((32, 64), (64, 128), (128, 256), (256, 512))
    up = ((512, 256, 256), (256, 128, 128), (128, 64, 64))
    return UNet(3, 3, down, up, classes, normalization)


def place_loss(output: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy over positions; targets are cropped to the positions that have scores."""
    return nn.functional.cross_entropy(output, _cropped(target[:, None], output)[:, 0])


def _pair(dimensions: int, channels: int, first: int, second: int, normalization: Normalization) -> nn.Module:
    layers: list[nn.Module] = []
    for width in (first, second):
        convolution = _CONVOLUTIONS[dimensions](channels, width, 3)
        layers += [*make_norm(normalization, convolution), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers)


def _cropped(x: Tensor, like: Tensor) -> Tensor:
    """The middle of `x`, with the size of `like`."""
    for axis in range(2, x.dim()):
        size = like.shape[axis]
        x = x.narrow(axis, (x.shape[axis] - size) // 2, size)
    return x
