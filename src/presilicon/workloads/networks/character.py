"""A small transformer that predicts the next character, or token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from presilicon.workloads.networks.transformer import TransformerBlock


class CharacterGpt(nn.Module):
    """Blocks of causal attention between an embedding of characters and positions and a linear output layer."""

    def __init__(self, vocabulary: int, layers: int = 2, width: int = 64, heads: int = 4, places: int = 64) -> None:
        super().__init__()
        self.characters = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(places, width)
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads, causal=True, before=True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, vocabulary)

    def forward(self, characters: Tensor) -> Tensor:
        """Scores of the next character, (batch, tokens, vocabulary), from (batch, tokens) character indices."""
        position = torch.arange(characters.shape[1], device=characters.device)
        scores: Tensor = self.output(self.norm(self.blocks(self.characters(characters) + self.places(position))))
        return scores
