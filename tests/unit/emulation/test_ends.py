"""The layers that "first" and "last" mean are those that the captured step multiplies by first and last.

The emulator decides from the model, before a step has run; capture records the same in the graph for the simulator. The
judge below looks at the products of the captured forward pass instead.
"""

from itertools import takewhile

import pytest
import torch
from torch import nn

from presilicon.records import Ends, StepGraph
from presilicon.workloads import capture, capture_workload, ends_of, load_workload


def ends_of_products(graph: StepGraph, model: nn.Module) -> Ends:
    """First and last layer, in the order of registration, with a product of weights in the forward pass."""
    layers = {
        op.layer
        for op in takewhile(lambda op: op.phase == "forward", graph.ops)  # what checkpointing recomputes comes later
        if op.gemm is not None and any(tensor.role == "weight" for tensor in op.inputs)
    }
    ordered = [name for name, _ in model.named_modules() if name in layers]
    named = [layer for layer in ordered if layer] or ordered
    return Ends(named[0], named[-1])


def check(graph: StepGraph, model: nn.Module) -> None:
    assert graph.ends == ends_of(model) == ends_of_products(graph, model)


class Positioned(nn.Module):
    """Adds an embedding of positions, and norms whole images."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(1, 8, 16))
        self.embed = nn.Linear(4, 16)
        self.norm = nn.LayerNorm([8, 16])
        self.encoder = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(self.norm(self.embed(x) + self.positions))
        return self.attention(hidden, hidden, hidden, need_weights=False)[0]


class Bare(nn.Module):
    """Multiplies by a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class Words(nn.Module):
    """A recurrent layer between tables and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.cell = nn.LSTM(8, 8)
        self.mixing = Bare()
        self.norm = nn.LayerNorm(3)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.norm(self.mixing(self.cell(self.table(words))[0][..., :4]))


@pytest.mark.parametrize(
    ("model", "inputs", "first", "last"),
    [
        (Positioned, torch.randn(2, 8, 4), "embed", "attention"),
        (Bare, torch.randn(2, 4), "", ""),
        (Words, torch.randint(0, 20, (5, 2)), "cell", "mixing"),
    ],
)
def test_ends_of_models(model, inputs: torch.Tensor, first: str, last: str) -> None:
    assert ends_of(model()) == (first, last)
    check(capture(model(), inputs), model())


@pytest.mark.parametrize(
    "name", ["digits-cnn", "digits-mlp", "shakespeare-gpt", "dcgan-generator", "reversible-resnet", "inception-v3"]
)
def test_ends_of_workloads(name: str) -> None:
    workload = load_workload(name)
    with torch.device("meta"):
        model = workload.model()
    check(capture_workload(workload), model)


def test_ends_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    words = {"input_ids": torch.randint(0, 40, (3, 8))}
    gpt2 = transformers.GPT2Config(
        vocab_size=40, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    bert = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    for model in (transformers.GPT2LMHeadModel(gpt2), transformers.BertForMaskedLM(bert)):
        check(capture(model, words), model)
