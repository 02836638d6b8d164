"""DenseNets in plain torch (Huang et al., 2016; as torchvision has them)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DenseLayer(nn.Module):
    """A 1x1 and a 3x3 convolution that compute a few new channels from all earlier ones."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.relu = nn.ReLU()

    def forward(self, features: list[Tensor]) -> Tensor:
        """The new channels."""
        x = self.conv1(self.relu(self.norm1(torch.cat(features, dim=1))))
        new: Tensor = self.conv2(self.relu(self.norm2(x)))
        return new


class DenseBlock(nn.Module):
    """Layers that each see the results of all before them."""

    def __init__(self, layers: int, channels: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(channels + number * growth, growth) for number in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels + layers growth, h, w) from (batch, channels, h, w)."""
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, dim=1)


def densenet201(classes: int = 1000) -> nn.Module:
    """DenseNet-201: 20 million parameters, 8.6 GFLOP per 224x224 image forward."""
    growth, channels = 32, 64
    layers: list[nn.Module] = [
        nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    for number, depth in enumerate((6, 12, 48, 32)):
        if number:
            layers += [
                nn.BatchNorm2d(channels),
                nn.ReLU(),
                nn.Conv2d(channels, channels // 2, 1, bias=False),
                nn.AvgPool2d(2),
            ]
            channels //= 2
        layers.append(DenseBlock(depth, channels, growth))
        channels += depth * growth
    head = [nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    return nn.Sequential(*layers, *head)
