"""Normalization after convolutions: over the batch, over a sample, or over time."""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

Normalization = Literal["batch", "group", "instance", "layer", "online", "weight", "none"]

_BATCH_NORMS: dict[type[nn.Module], Any] = {nn.Conv2d: nn.BatchNorm2d, nn.Conv3d: nn.BatchNorm3d}
_GROUPS = 32


def make_norm(kind: Normalization, convolution: nn.Module) -> tuple[nn.Module, nn.Module]:
    """A convolution and its normalization, which is a layer except for weight normalization.

    >>> norm = make_norm("layer", nn.Conv2d(3, 64, 3))[1]
    >>> type(norm).__name__, norm.num_groups
    ('GroupNorm', 1)
    """
    channels = cast("int", convolution.out_channels)
    if kind == "batch":
        return convolution, _BATCH_NORMS[type(convolution)](channels)
    if kind == "online":
        return convolution, OnlineNorm(channels)
    if kind == "weight":
        return weight_norm(convolution), nn.Identity()
    if kind == "none":
        return convolution, nn.Identity()
    groups = {"group": min(_GROUPS, channels), "instance": channels, "layer": 1}[kind]
    return convolution, nn.GroupNorm(groups, channels)


class OnlineNorm(nn.Module):
    """Online normalization (Chiley et al., 2019) of (batch, channels, *sizes), one sample after another.

    Forward and backward statistics are running ones, so one sample is enough. Then each sample is scaled by its own
    root mean square.
    """

    mean: Tensor
    variance: Tensor
    error_mean: Tensor
    error_product: Tensor

    def __init__(self, channels: int, forward_decay: float = 0.999, backward_decay: float = 0.99) -> None:
        super().__init__()
        self.decays = (forward_decay, backward_decay)
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))
        self.register_buffer("error_mean", torch.zeros(channels))
        self.register_buffer("error_product", torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """`x` with about zero mean and unit variance in each channel over time."""
        statistics = (self.mean, self.variance, self.error_mean, self.error_product)
        y: Tensor = _Online.apply(x, *statistics, self.decays)  # type: ignore[no-untyped-call]
        wide = (-1,) + (1,) * (x.dim() - 2)
        y = y * self.weight.view(wide) + self.bias.view(wide)
        return y * torch.rsqrt(y.square().mean(dim=tuple(range(1, x.dim())), keepdim=True) + _EPS)


_EPS = 1e-5


class _Online(torch.autograd.Function):
    """The two control processes: a sample is normalized by the statistics of the samples before it."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        mean: Tensor,
        variance: Tensor,
        error_mean: Tensor,
        error_product: Tensor,
        decays: tuple[float, float],
    ) -> Tensor:
        keep = decays[0]
        results, scales = [], []
        for sample in x.unbind(0):
            scale = torch.rsqrt(variance + _EPS)
            flat = sample.flatten(1)
            results.append(((flat - mean[:, None]) * scale[:, None]).view_as(sample))
            scales.append(scale)
            own_mean, own_variance = flat.mean(1), flat.var(1, unbiased=False)
            away = own_mean - mean
            variance.mul_(keep).add_((1 - keep) * own_variance + keep * (1 - keep) * away * away)
            mean.add_((1 - keep) * away)
        y = torch.stack(results)
        ctx.save_for_backward(y, torch.stack(scales))
        ctx.errors, ctx.keep = (error_mean, error_product), decays[1]
        return y

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> tuple[Tensor | None, ...]:
        y, scales = ctx.saved_tensors
        error_mean, error_product = ctx.errors
        lose = 1 - ctx.keep
        results = []
        for sample_error, sample, scale in zip(error.unbind(0), y.unbind(0), scales.unbind(0), strict=True):
            flat, normal = sample_error.flatten(1), sample.flatten(1)
            first = flat - lose * error_product[:, None] * normal
            error_product.add_((first * normal).mean(1))
            second = first * scale[:, None] - lose * error_mean[:, None]
            error_mean.add_(second.mean(1))
            results.append(second.view_as(sample_error))
        return torch.stack(results), None, None, None, None, None
