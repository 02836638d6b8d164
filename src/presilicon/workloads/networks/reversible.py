"""A reversible ResNet in plain torch (Gomez et al., 2017): inputs of a block are recomputed, not stored."""

from __future__ import annotations

from torch import nn

from presilicon.workloads.reversible import Coupling, Reversible


def reversible_chain(blocks: int, channels: int) -> Reversible:
    """Reversible blocks of one width: the memory for the backward pass does not grow with their number."""
    chain = Reversible(*(Coupling(_residual(channels // 2), _residual(channels // 2)) for _ in range(blocks)))
    chain.recomputes = True
    return chain


def _residual(channels: int) -> nn.Module:
    return nn.Sequential(
        nn.GroupNorm(4, channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        nn.GroupNorm(4, channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
    )


def reversible_resnet(blocks: int = 3, width: int = 64, classes: int = 10) -> nn.Module:
    """Three stages of reversible blocks for 32x32 images; plain convolutions between stages halve the image."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1, bias=False)]
    channels = width
    for stage in range(3):
        if stage:
            layers.append(nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1, bias=False))
            channels *= 2
        layers.append(reversible_chain(blocks, channels))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
