"""Transformers in plain torch: BERT's encoder (Devlin et al., 2018) and GPT-2's decoder (Radford et al., 2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Multi-head self-attention, optionally causal."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """The result has the shape of `x`: (batch, tokens, width)."""
        batch, tokens, width = x.shape
        parts: Tensor = self.query_key_value(x)
        query, key, value = parts.view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        out: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return out


class TransformerBlock(nn.Module):
    """Attention and a two-layer perceptron with residual connections, normalized before (GPT) or after (BERT)."""

    def __init__(self, width: int, heads: int, *, causal: bool, before: bool) -> None:
        super().__init__()
        self.before = before
        self.attention = Attention(width, heads, causal)
        self.norm1 = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """The result has the shape of `x`: (batch, tokens, width)."""
        if self.before:
            x = x + self.attention(self.norm1(x))
            x = x + self.perceptron(self.norm2(x))
        else:
            x = self.norm1(x + self.attention(x))
            x = self.norm2(x + self.perceptron(x))
        return x


class Bert(nn.Module):
    """BERT's encoder with its masked-language head: scores of every word at every position."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int = 30522, places: int = 512) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(places, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.Sequential(
            *(TransformerBlock(width, heads, causal=False, before=False) for _ in range(layers))
        )
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores, (batch, tokens, vocabulary), from (batch, tokens) word indices."""
        position = torch.arange(tokens.shape[1], device=tokens.device)
        embedded = self.words(tokens) + self.places(position) + self.segments(torch.zeros_like(tokens))
        features: Tensor = self.transform(self.blocks(self.norm(embedded)))
        return functional.linear(features, self.words.weight, self.bias)


class Gpt(nn.Module):
    """GPT-2's decoder; the word embedding is also its output layer."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int = 50257, places: int = 1024) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(places, width)
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads, causal=True, before=True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next word, (batch, tokens, vocabulary), from (batch, tokens) word indices."""
        position = torch.arange(tokens.shape[1], device=tokens.device)
        features: Tensor = self.norm(self.blocks(self.words(tokens) + self.places(position)))
        return functional.linear(features, self.words.weight)


def bert_base() -> nn.Module:
    """BERT-Base with its masked-language head: 109.5 million parameters."""
    return Bert(12, 768, 12)


def bert_large() -> nn.Module:
    """BERT-Large with its masked-language head: 335.2 million parameters."""
    return Bert(24, 1024, 16)


def gpt2() -> nn.Module:
    """GPT-2 small: 124.4 million parameters."""
    return Gpt(12, 768, 12)


def gpt_block(width: int = 768, heads: int = 12) -> nn.Module:
    """One block of a GPT."""
    return TransformerBlock(width, heads, causal=True, before=True)


def regression_loss(output: Tensor, target: Tensor) -> Tensor:
    """Mean squared error, the loss for a single block."""
    return functional.mse_loss(output, target)


def token_loss(output: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy over all positions of all sequences."""
    return functional.cross_entropy(output.flatten(0, 1), target.flatten())
