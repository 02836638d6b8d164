"""A reversible ResNet in plain torch (Gomez et al., 2017): inputs of a block are recomputed, not stored."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class _Reversed(Function):
    """A chain of blocks that saves only its last output; backward recomputes the rest from it."""

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
            residual, from_g = _differentiate(block.g, y2, error1)
            error2 = error2 + from_g[0]
            y1 = y1 - residual
            residual, from_f = _differentiate(block.f, y1, error2)
            error1 = error1 + from_f[0]
            y2 = y2 - residual
            gradients[:0] = [*from_f[1:], *from_g[1:]]
        return error1, error2, None, *gradients


def _differentiate(function: nn.Module, x: Tensor, error: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The function's value at x, and the gradients with respect to x and each weight."""
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
        """Both halves, (batch, channels / 2, h, w) each, keep their shape."""
        y2 = self.f(x1) + x2
        return self.g(y2) + x1, y2


class ReversibleChain(nn.Module):
    """Reversible blocks of one width: the memory for the backward pass does not grow with their number."""

    def __init__(self, blocks: int, channels: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ReversibleBlock(channels) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        """The result has the shape of `x`: (batch, channels, h, w)."""
        x1, x2 = x.chunk(2, dim=1)
        y1, y2 = _Reversed.apply(x1, x2, tuple(self.blocks), *self.parameters())  # type: ignore[no-untyped-call]
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
    """Three stages of reversible blocks for 32x32 images; plain convolutions between stages halve the image."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1, bias=False)]
    channels = width
    for stage in range(3):
        if stage:
            layers.append(nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1, bias=False))
            channels *= 2
        layers.append(ReversibleChain(blocks, channels))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
