"""A reversible ResNet in plain torch (Gomez et al., 2017): inputs of a block are recomputed, not stored."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class _Reversible(Function):
    """y2 = f(x1) + x2, y1 = g(y2) + x1, with nothing kept but the outputs."""

    @staticmethod
    def forward(ctx: Any, x1: Tensor, x2: Tensor, block: ReversibleBlock, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        ctx.block = block
        y2 = block.f(x1) + x2
        y1 = block.g(y2) + x1
        ctx.save_for_backward(y1, y2)
        return y1, y2

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, error1: Tensor, error2: Tensor) -> tuple[Tensor | None, ...]:
        block: ReversibleBlock = ctx.block
        y1, y2 = ctx.saved_tensors
        f_weights, g_weights = tuple(block.f.parameters()), tuple(block.g.parameters())
        with torch.enable_grad():
            y2 = y2.detach().requires_grad_()
            moved = block.g(y2)
            from_g = torch.autograd.grad(moved, (y2, *g_weights), error1)
        error2 = error2 + from_g[0]
        with torch.enable_grad():
            x1 = (y1.detach() - moved.detach()).requires_grad_()
            from_f = torch.autograd.grad(block.f(x1), (x1, *f_weights), error2)
        return error1 + from_f[0], error2, None, *from_f[1:], *from_g[1:]


class ReversibleBlock(nn.Module):
    """Two residual functions of half the channels each; its inputs follow from its outputs."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.f, self.g = _residual(channels // 2), _residual(channels // 2)

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, channels, h, w) to the same."""
        x1, x2 = x.chunk(2, dim=1)
        parameters = (*self.f.parameters(), *self.g.parameters())
        y1, y2 = _Reversible.apply(x1, x2, self, *parameters)  # type: ignore[no-untyped-call]
        return torch.cat([y1, y2], dim=1)

    def inverse(self, y: Tensor) -> Tensor:
        """The input that gives `y`, up to rounding."""
        y1, y2 = y.chunk(2, dim=1)
        x1 = y1 - self.g(y2)
        return torch.cat([x1, y2 - self.f(x1)], dim=1)


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
        layers += [ReversibleBlock(channels) for _ in range(blocks)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
