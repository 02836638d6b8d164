"""Emulated training on a GPU against the same on the CPU."""

import copy

import pytest
import torch
from torch import nn

from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation import emulate_, emulate_optimizer_, emulated
from presilicon.formats import parse, quantize

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
WIDE = RoleFormat(parse("float(exponent=5, mantissa=7)"))
NUMERICS = Numerics(
    weight=WIDE, activation=WIDE, error=WIDE, gradient=WIDE, master=WIDE, state=WIDE, vector="round-results"
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 16)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.lstm, self.out = nn.LSTM(16, 16, bidirectional=True, batch_first=True), nn.Linear(32, 30)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(self.encoder(self.words(words)))[0]).transpose(1, 2)


def losses(model: nn.Module, words: torch.Tensor, steps: int = 20) -> list[float]:
    emulate_(model, NUMERICS)
    loss_of = emulated(nn.functional.cross_entropy, model)
    optimizer = emulate_optimizer_(torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9), NUMERICS, model=model)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model(words), words)
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    for parameter in model.parameters():
        assert torch.equal(parameter.data, quantize(parameter.data, WIDE.format))
    return found


def test_a_gpu_trains_as_the_cpu_does() -> None:
    torch.manual_seed(0)
    model, words = Net(), torch.randint(30, (8, 12))
    on_cpu = losses(copy.deepcopy(model), words)
    on_gpu = losses(copy.deepcopy(model).cuda(), words.cuda())
    assert on_cpu[0] == pytest.approx(on_gpu[0], rel=0.02)
    assert on_cpu[-1] == pytest.approx(on_gpu[-1], rel=0.1)
    assert on_cpu[-1] < 0.7 * on_cpu[0]
