"""A reversible ResNet in plain torch (Gomez et al., 2017): inputs of a block are recomputed, not stored."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class _Reversed(Function):
    """Blocks one after another, of which nothing is kept but the last output; backward recomputes the rest from it."""

    @staticmethod
    def forward(
        ctx: Any, x1: Tensor, x2: Tensor, blocks: tuple[ReversibleBlock, ...], *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.blocks = blocks
        for block in blocks:
            x1, x2 = block(x1, x2)
        ctx.save_for_backward(x1, x2)
        return x1, x2

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, error1: Tensor, error2: Tensor) -> tuple[Tensor | None, ...]:
        y1, y2 = ctx.saved_tensors
        gradients: list[Tensor] = []
        for block in reversed(ctx.blocks):
            moved, from_g = _differentiate(block.g, y2, error1)
            error2 = error2 + from_g[0]
            y1 = y1 - moved
            moved, from_f = _differentiate(block.f, y1, error2)
            error1 = error1 + from_f[0]
            y2 = y2 - moved
            gradients[:0] = [*from_f[1:], *from_g[1:]]
        return error1, error2, None, *gradients


def _differentiate(function: nn.Module, x: Tensor, error: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The function's value at x, and the gradients of x and of each weight."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        value = function(x)
        return value.detach(), torch.autograd.grad(value, (x, *function.parameters()), error)


class ReversibleBlock(nn.Module):
    """Two residual functions of half the channels each: y2 = f(x1) + x2, y1 = g(y2) + x1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.f, self.g = _residual(channels // 2), _residual(channels // 2)

    def forward(self, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
        """From two halves of (batch, channels / 2, h, w) to the same."""
        y2 = self.f(x1) + x2
        return self.g(y2) + x1, y2

    def inverse(self, y1: Tensor, y2: Tensor) -> tuple[Tensor, Tensor]:
        """The halves that give these, up to rounding."""
        x1 = y1 - self.g(y2)
        return x1, y2 - self.f(x1)


class ReversibleChain(nn.Module):
    """Reversible blocks of one width: what they hold for the backward pass does not grow with their number."""

    def __init__(self, blocks: int, channels: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ReversibleBlock(channels) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, channels, h, w) to the same."""
        x1, x2 = x.chunk(2, dim=1)
        y1, y2 = _Reversed.apply(x1, x2, tuple(self.blocks), *self.parameters())  # type: ignore[no-untyped-call]
        return torch.cat([y1, y2], dim=1)

    def inverse(self, y: Tensor) -> Tensor:
        """The input that gives `y`, up to rounding."""
        y1, y2 = y.chunk(2, dim=1)
        for block in reversed(self.blocks):
            assert isinstance(block, ReversibleBlock)
            y1, y2 = block.inverse(y1, y2)
        return torch.cat([y1, y2], dim=1)


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
    """Three stages of reversible blocks for 32x32 images; between stages plain convolutions halve the picture."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1, bias=False)]
    channels = width
    for stage in range(3):
        if stage:
            layers.append(nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1, bias=False))
            channels *= 2
        layers.append(ReversibleChain(blocks, channels))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
