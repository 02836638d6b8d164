"""Small instances of published models, from their libraries' own code with random weights, each with one batch."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

_SMALL = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}


class Published(NamedTuple):
    model: nn.Module
    batch: dict[str, Any]

    def loss(self) -> Tensor:
        return loss_of(self.model(**self.batch))


def loss_of(output: Any) -> Tensor:
    """The model's own loss, or the mean of all that it returns."""
    if getattr(output, "loss", None) is not None:
        return output.loss
    values = output if isinstance(output, Tensor) else output.values()
    tensors = [values] if isinstance(values, Tensor) else [value for value in values if isinstance(value, Tensor)]
    return torch.stack([tensor.float().square().mean() for tensor in tensors]).sum()


def language_model(family: str, **changes: Any) -> Published:
    import transformers

    config = getattr(transformers, f"{family}Config")(**_SMALL | changes)
    ids = torch.randint(0, 50, (2, 8))
    return Published(getattr(transformers, f"{family}ForCausalLM")(config), {"input_ids": ids, "labels": ids})


def _mixtral(experts: str) -> Published:
    published = language_model("Mixtral", num_key_value_heads=1, num_local_experts=4, num_experts_per_tok=2)
    published.model.set_experts_implementation(experts)
    return published


def _deepseek() -> Published:
    heads = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
    experts = {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1}
    return language_model(
        "DeepseekV3", num_key_value_heads=2, moe_intermediate_size=8, first_k_dense_replace=1, **heads, **experts
    )


def _t5() -> Published:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=50, d_model=16, d_kv=8, d_ff=20, num_layers=2, num_heads=2, dropout_rate=0, decoder_start_token_id=0
    )
    ids = torch.randint(1, 50, (2, 8))
    return Published(T5ForConditionalGeneration(config), {"input_ids": ids, "labels": ids})


def _vit() -> Published:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {name: _SMALL[name] for name in _SMALL if name != "vocab_size"}
    config = ViTConfig(image_size=16, patch_size=8, num_labels=4, **sizes)
    batch = {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.tensor([0, 3])}
    return Published(ViTForImageClassification(config), batch)


def _whisper() -> Published:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    sides = {"layers": 1, "attention_heads": 2, "ffn_dim": 20}
    sizes = {f"{side}_{name}": sides[name] for side in ("encoder", "decoder") for name in sides}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = WhisperConfig(
        vocab_size=50, num_mel_bins=8, d_model=16, max_source_positions=16, max_target_positions=16, **sizes, **tokens
    )
    batch = {"input_features": torch.randn(2, 8, 32), "labels": torch.randint(3, 50, (2, 6))}
    return Published(WhisperForConditionalGeneration(config), batch)


def _mamba(family: str, **changes: Any) -> Published:
    import transformers

    config = getattr(transformers, f"{family}Config")(
        vocab_size=50, hidden_size=16, state_size=4, num_hidden_layers=2, **changes
    )
    ids = torch.randint(0, 50, (2, 8))
    return Published(getattr(transformers, f"{family}ForCausalLM")(config), {"input_ids": ids, "labels": ids})


def _detr() -> Published:
    from transformers import DetrConfig, DetrModel, ResNetConfig

    backbone = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic", out_features=["stage2"]
    )
    sides = {"layers": 1, "attention_heads": 2, "ffn_dim": 20}
    sizes = {f"{side}_{name}": sides[name] for side in ("encoder", "decoder") for name in sides}
    config = DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone, d_model=16,
        num_queries=4, num_labels=3, **sizes,
    )  # fmt: skip
    return Published(DetrModel(config), {"pixel_values": torch.randn(2, 3, 32, 32)})


class GraphNetwork(nn.Module):
    """A graph convolution network (Kipf and Welling, 2017): sparse adjacency by projected features, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8, bias=False), nn.Linear(8, 4, bias=False)

    def forward(self, graph: Tensor, features: Tensor) -> Tensor:
        hidden = torch.sparse.mm(graph, self.first(features)).relu()
        return torch.sparse.mm(graph, self.second(hidden))


def _graph_network() -> Published:
    edges = (torch.rand(12, 12) < 0.3).float() + torch.eye(12)
    graph = (edges / edges.sum(1, keepdim=True)).to_sparse()
    return Published(GraphNetwork(), {"graph": graph, "features": torch.randn(12, 6)})


def _unet() -> Published:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=8, in_channels=2, out_channels=2, block_out_channels=(8, 16), layers_per_block=1,
        norm_num_groups=4, cross_attention_dim=8, attention_head_dim=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    sample = torch.randn(2, 2, 8, 8)
    batch = {"sample": sample, "timestep": torch.tensor([1, 500]), "encoder_hidden_states": torch.randn(2, 4, 8)}
    return Published(model, batch)


MODELS: dict[str, Callable[[], Published]] = {
    "Llama": lambda: language_model("Llama", num_key_value_heads=1),
    "Mistral": lambda: language_model("Mistral", num_key_value_heads=1, sliding_window=4),
    "Mixtral, grouped experts": lambda: _mixtral("grouped_mm"),
    "Mixtral, batched experts": lambda: _mixtral("batched_mm"),
    "Mixtral, experts in a loop": lambda: _mixtral("eager"),
    "DeepSeek-V3": _deepseek,
    "T5": _t5,
    "ViT": _vit,
    "Whisper": _whisper,
    "Mamba": lambda: _mamba("Mamba"),
    "Mamba-2": lambda: _mamba("Mamba2", num_heads=4, head_dim=8, n_groups=2, chunk_size=4),
    "DETR with a ResNet backbone": _detr,
    "graph convolution network": _graph_network,
    "UNet of diffusers": _unet,
}


def make(name: str) -> Published:
    torch.manual_seed(0)
    published = MODELS[name]()
    published.model.train()
    return published
