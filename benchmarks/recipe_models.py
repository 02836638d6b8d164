"""The models that bench_emulation.py trains with every recipe."""

import torch
from torch import Tensor, nn

from presilicon.workloads.networks.resnet import BasicBlock


class Logits(nn.Module):
    """The scores of a language model of transformers, one row per token."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens, use_cache=False).logits.flatten(0, 1)


def llama() -> tuple[nn.Module, Tensor, Tensor]:
    """transformers' Llama with 4 layers of width 256 and a batch of 4 sequences of 128 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=512, hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=128,
    )  # fmt: skip
    tokens = torch.randint(512, (4, 128))
    return Logits(LlamaForCausalLM(config)), tokens, tokens.roll(-1, 1).flatten()


def resnet7() -> tuple[nn.Module, Tensor, Tensor]:
    """Seven 3x3 convolutions of 32 to 128 channels, with a batch of 16 images of 32 x 32."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        BasicBlock(32, 32, 1), BasicBlock(32, 64, 2), BasicBlock(64, 128, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip
    return model, torch.randn(16, 3, 32, 32), torch.randint(10, (16,))


MODELS = {"llama": llama, "resnet7": resnet7}
