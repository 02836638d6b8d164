"""A small vision transformer (Dosovitskiy et al., 2020), with the mean of all patches in place of a class token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from presilicon.workloads.networks.transformer import TransformerBlock


class VisionTransformer(nn.Module):
    """Patches of an image as tokens, blocks of attention, and a classifier of their mean."""

    def __init__(
        self, side: int = 28, patch: int = 4, layers: int = 6, width: int = 192, heads: int = 6, classes: int = 10
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, patch, stride=patch)
        self.places = nn.Parameter(0.02 * torch.randn((side // patch) ** 2, width))
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads, causal=False, before=True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores, (batch, classes), from (batch, 1, side, side) images."""
        tokens: Tensor = self.patches(images).flatten(2).transpose(1, 2)
        features: Tensor = self.norm(self.blocks(tokens + self.places))
        scores: Tensor = self.output(features.mean(dim=1))
        return scores
