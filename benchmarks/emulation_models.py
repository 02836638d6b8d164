"""The models of bench_emulation.py, in plain torch: the peers' environment has nothing else."""

import torch
from torch import Tensor, nn
from torch.nn import functional


def cnn() -> tuple[nn.Module, Tensor, Tensor]:
    """digits-cnn with a batch of 32."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip
    return model, torch.randn(32, 1, 8, 8), torch.randint(10, (32,))


def fashion_cnn() -> tuple[nn.Module, Tensor, Tensor]:
    """fashion-cnn with its batch of 64."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1568, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    return model, torch.randn(64, 1, 28, 28), torch.randint(10, (64,))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.query_key_value(x).view(batch, tokens, 3, self.heads, width // self.heads)
        mixed = self.mix(*parts.permute(2, 0, 3, 1, 4))
        return self.output(mixed.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.perceptron(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, places: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(places, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        place = torch.arange(tokens.shape[1], device=tokens.device)
        features = self.norm(self.blocks(self.words(tokens) + self.places(place)))
        return self.scores(features).flatten(0, 1)


def gpt(width: int) -> tuple[nn.Module, Tensor, Tensor]:
    """Two layers, 65 characters, a batch of 32 sequences of 64: with a width of 64, shakespeare-gpt."""
    tokens = torch.randint(65, (32, 64))
    return Gpt(2, width, 4, 65, 64), tokens, tokens.roll(-1, 1).flatten()


MODELS = {
    "digits-cnn": cnn,
    "fashion-cnn": fashion_cnn,
    "shakespeare-gpt": lambda: gpt(64),
    "gpt, width 128": lambda: gpt(128),
}


def stepper(model: nn.Module, inputs: Tensor, targets: Tensor):
    """One training step as a function."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=False)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    return step


def peak_bytes(step) -> int:
    """The most memory that a step holds above what it found, by torch's own account of allocations."""
    step()
    with torch.profiler.profile(profile_memory=True) as profile:
        step()
    now = most = 0
    for event in sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most
