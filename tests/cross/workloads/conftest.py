"""Small models that between them hold every trap of capture."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Residual(nn.Module):
    """Two paths from one tensor, so that errors are summed."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.outer = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.inner(x)
        return self.outer(hidden + functional.relu(hidden))


class Shared(nn.Module):
    """One weight in three places: as an embedding, twice, and as the output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.register_buffer("positions", torch.arange(5))

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.table(tokens) + self.table(self.positions)
        return functional.linear(hidden, self.table.weight)


class Attention(nn.Module):
    """Causal self-attention through the fused operator."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.project = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.project(self.norm(x)).chunk(3, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Slices(nn.Module):
    """Writes into parts of a tensor, then over all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        both = x.new_zeros(len(x), 8)
        both[:, :4] = self.linear(x)
        both[:, 4:] = x
        return functional.relu_(both)


class Checkpointed(nn.Module):
    """Computes its activations twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, self.first(x), use_reentrant=False)


class Doubled(torch.autograd.Function):
    """x W^T with a backward pass of its own."""

    @staticmethod
    def forward(ctx, x, weight):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, error):  # type: ignore[no-untyped-def]
        x, weight = ctx.saved_tensors
        return error @ weight, error.t() @ x


class Custom(nn.Module):
    """Uses a custom autograd function whose first inner call is a view of the weight."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.weight = nn.Parameter(torch.ones(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return Doubled.apply(self.linear(x), self.weight)


def cnn() -> nn.Module:
    """Strides, dilation, padding, pooling and batch normalization."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 12, 3, dilation=2, bias=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(48, 5),
    )


def decoder() -> nn.Module:
    """Transposed convolutions."""
    return nn.Sequential(
        nn.ConvTranspose2d(6, 8, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 3, 3, stride=3, output_padding=1, bias=False),
    )


def tokens() -> Tensor:
    return torch.zeros(2, 5, dtype=torch.int64)


ZOO = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3)), lambda: torch.empty(4, 6)),
    "deep-linear": (lambda: nn.Linear(6, 7), lambda: torch.empty(2, 3, 6)),
    "cnn": (cnn, lambda: torch.empty(2, 3, 16, 16)),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(3, 4, 5), nn.Conv1d(4, 2, 1)), lambda: torch.empty(2, 3, 9)),
    "conv3d": (lambda: nn.Sequential(nn.Conv3d(2, 3, 2), nn.Conv3d(3, 2, 2)), lambda: torch.empty(2, 2, 4, 5, 6)),
    "decoder": (decoder, lambda: torch.empty(2, 6, 4, 4)),
    "residual": (Residual, lambda: torch.empty(3, 6)),
    "shared": (Shared, tokens),
    "attention": (Attention, lambda: torch.empty(2, 5, 8)),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), lambda: torch.empty(2, 5, 8)),
    "lstm": (lambda: nn.LSTM(4, 5, num_layers=2, batch_first=True), lambda: torch.empty(2, 3, 4)),
    "gru": (lambda: nn.GRU(4, 5, batch_first=True), lambda: torch.empty(2, 3, 4)),
    "slices": (Slices, lambda: torch.empty(3, 4)),
    "checkpointed": (Checkpointed, lambda: torch.empty(3, 4)),
    "custom": (Custom, lambda: torch.empty(3, 4)),
    "weight-norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), lambda: torch.empty(2, 4)),
}
"""A model and a batch by name."""


@dataclass(frozen=True)
class Case:
    name: str
    make_model: Callable[[], nn.Module]
    make_batch: Callable[[], Tensor]


@pytest.fixture(params=list(ZOO))
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param, *ZOO[request.param])


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
