"""Small networks whose loops are compared with those of Inductor."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from presilicon.workloads.networks.transformer import Gpt


class Chain(nn.Module):
    """Elementwise ops; their gradient needs the input and the error."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(64, 32))

    def forward(self, x: Tensor) -> Tensor:
        return ((x * self.gain).sigmoid() * 2).sum()


class Shortcut(nn.Module):
    """Convolutions with batch normalization beside a shortcut, as in ResNets."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm1(self.first(x)).relu()
        return (self.norm2(self.second(hidden)) + x).relu()


def residual() -> nn.Module:
    first = nn.Conv2d(3, 96, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*first, Shortcut(96), Shortcut(96), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10))


def perceptron() -> nn.Module:
    layers = nn.Linear(256, 512), nn.LayerNorm(512), nn.GELU(), nn.Dropout(0.1), nn.Linear(512, 512), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(512, 10))


def classify(scores: Tensor) -> Tensor:
    """The loss of the first class, for every row."""
    rows = scores.flatten(0, -2)
    return functional.cross_entropy(rows, torch.zeros(len(rows), dtype=torch.int64, device=rows.device))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "perceptron": (perceptron, lambda: torch.zeros(512, 256)),
    "residual": (residual, lambda: torch.zeros(8, 3, 32, 32)),
    "gpt": (lambda: Gpt(2, 256, 4, 1000, 256), lambda: torch.zeros(4, 256, dtype=torch.int64)),
}


def inductor_sizes(name: str) -> list[int]:
    """Bytes of each loop that Inductor makes of a network's training step."""
    from oracles.inductor import inductor_loops  # only where a GPU may be pretended

    if name == "chain":
        chain, x = Chain(), torch.zeros(64, 32)
        return [loop.size_bytes for loop in inductor_loops(lambda: chain(x))]
    make, batch = NETWORKS[name]
    model, inputs = make().train(), batch()
    return [loop.size_bytes for loop in inductor_loops(lambda: classify(model(inputs)))]
