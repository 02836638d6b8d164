"""Inception v3 in plain torch (Szegedy et al., 2015), with its auxiliary classifier."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def _unit(channels: int, width: int, kernel: Any, **options: Any) -> nn.Sequential:
    """A convolution, a batch normalization and a ReLU."""
    convolution = nn.Conv2d(channels, width, kernel, bias=False, **options)
    return nn.Sequential(convolution, nn.BatchNorm2d(width, eps=0.001), nn.ReLU())


class Branches(nn.Module):
    """Paths with the same input, whose results are concatenated along the channels."""

    def __init__(self, *paths: nn.Module) -> None:
        super().__init__()
        self.paths = nn.ModuleList(paths)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels of all paths, h, w) from (batch, channels, h, w)."""
        return torch.cat([path(x) for path in self.paths], dim=1)


def _pooled(channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), _unit(channels, width, 1))


def _block35(channels: int, pooled: int) -> nn.Module:
    return Branches(
        _unit(channels, 64, 1),
        nn.Sequential(_unit(channels, 48, 1), _unit(48, 64, 5, padding=2)),
        nn.Sequential(_unit(channels, 64, 1), _unit(64, 96, 3, padding=1), _unit(96, 96, 3, padding=1)),
        _pooled(channels, pooled),
    )


def _reduce35(channels: int) -> nn.Module:
    return Branches(
        _unit(channels, 384, 3, stride=2),
        nn.Sequential(_unit(channels, 64, 1), _unit(64, 96, 3, padding=1), _unit(96, 96, 3, stride=2)),
        nn.MaxPool2d(3, stride=2),
    )


def _block17(channels: int, narrow: int) -> nn.Module:
    row: dict[str, Any] = {"kernel": (1, 7), "padding": (0, 3)}
    column: dict[str, Any] = {"kernel": (7, 1), "padding": (3, 0)}
    return Branches(
        _unit(channels, 192, 1),
        nn.Sequential(_unit(channels, narrow, 1), _unit(narrow, narrow, **row), _unit(narrow, 192, **column)),
        nn.Sequential(
            _unit(channels, narrow, 1),
            _unit(narrow, narrow, **column),
            _unit(narrow, narrow, **row),
            _unit(narrow, narrow, **column),
            _unit(narrow, 192, **row),
        ),
        _pooled(channels, 192),
    )


def _reduce17(channels: int) -> nn.Module:
    return Branches(
        nn.Sequential(_unit(channels, 192, 1), _unit(192, 320, 3, stride=2)),
        nn.Sequential(
            _unit(channels, 192, 1),
            _unit(192, 192, (1, 7), padding=(0, 3)),
            _unit(192, 192, (7, 1), padding=(3, 0)),
            _unit(192, 192, 3, stride=2),
        ),
        nn.MaxPool2d(3, stride=2),
    )


def _block8(channels: int) -> nn.Module:
    def fork() -> nn.Module:
        return Branches(_unit(384, 384, (1, 3), padding=(0, 1)), _unit(384, 384, (3, 1), padding=(1, 0)))

    return Branches(
        _unit(channels, 320, 1),
        nn.Sequential(_unit(channels, 384, 1), fork()),
        nn.Sequential(_unit(channels, 448, 1), _unit(448, 384, 3, padding=1), fork()),
        _pooled(channels, 192),
    )


class Inception(nn.Module):
    """The whole network; in training it returns the scores of the main and the auxiliary classifier."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.early = nn.Sequential(
            _unit(3, 32, 3, stride=2),
            _unit(32, 32, 3),
            _unit(32, 64, 3, padding=1),
            nn.MaxPool2d(3, stride=2),
            _unit(64, 80, 1),
            _unit(80, 192, 3),
            nn.MaxPool2d(3, stride=2),
            _block35(192, 32),
            _block35(256, 64),
            _block35(288, 64),
            _reduce35(288),
            _block17(768, 128),
            _block17(768, 160),
            _block17(768, 160),
            _block17(768, 192),
        )
        self.auxiliary = nn.Sequential(
            nn.AvgPool2d(5, stride=3),
            _unit(768, 128, 1),
            _unit(128, 768, 5),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(768, classes),
        )
        self.late = nn.Sequential(
            _reduce17(768),
            _block8(1280),
            _block8(2048),
            nn.AdaptiveAvgPool2d(1),
            nn.Dropout(),
            nn.Flatten(),
            nn.Linear(2048, classes),
        )

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Class scores of (batch, 3, 299, 299) images."""
        features: Tensor = self.early(images)
        scores: Tensor = self.late(features)
        return (scores, self.auxiliary(features)) if self.training else scores


def inception_v3(classes: int = 1000) -> nn.Module:
    """Inception v3: 27.2 million parameters (3.3 of them auxiliary), 11.4 GFLOP per 299x299 image forward."""
    return Inception(classes)


def inception_loss(output: Tensor | tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    """Cross-entropy of the main classifier and 0.4 times that of the auxiliary one."""
    from torch.nn import functional

    if isinstance(output, Tensor):
        return functional.cross_entropy(output, target)
    return functional.cross_entropy(output[0], target) + 0.4 * functional.cross_entropy(output[1], target)
