"""Steps, recomputation, exact code and resuming on a GPU, whose backward pass runs in a thread of its own."""

import io

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation import emulate_, emulation_of, exact
from presilicon.formats import parse

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
RANDOM = RoleFormat(parse("e4m3"), "stochastic")
NUMERICS = Numerics(weight=RANDOM, activation=RANDOM, error=RANDOM, gradient=RANDOM)


class Net(nn.Module):
    def __init__(self, checkpointed: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.router, self.last = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 4)
        self.checkpointed = checkpointed

    def run(self, part: nn.Module, x: Tensor) -> Tensor:
        return checkpoint(part, x, use_reentrant=False) if self.checkpointed else part(x)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.run(self.first, x))
        with exact():
            gates = torch.softmax(self.run(self.router, x), -1)
        return self.run(self.last, x * gates)


def make(checkpointed: bool = False) -> nn.Module:
    return emulate_(Net(checkpointed).cuda(), NUMERICS, seed=3)


def train(model: nn.Module, steps: int) -> list[Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(0)).cuda()
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(2):
            model(x).square().mean().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_checkpointing_repeats_steps_passes_and_exact_code() -> None:
    plain, checkpointed = make(), make(checkpointed=True)
    assert all(map(torch.equal, train(plain, 3), train(checkpointed, 3)))
    assert emulation_of(plain).step == emulation_of(checkpointed).step == 2


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_resumed_run_gives_the_same_bits(device: str) -> None:
    first = make()
    train(first, 2)
    buffer = io.BytesIO()
    torch.save(first.state_dict(), buffer)
    buffer.seek(0)
    again = make()
    again.load_state_dict(torch.load(buffer, map_location=device, weights_only=True))
    assert all(map(torch.equal, train(first, 2), train(again, 2)))
