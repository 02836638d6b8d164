"""In place is as out of place, frozen as trained, and training as evaluation."""

import pytest
import torch
from msgspec.structs import replace
from torch import nn

import presilicon as ps
from presilicon.designs import Numerics, RoleFormat
from presilicon.formats import parse, quantize

BF16 = RoleFormat(parse("bfloat16"))
RESULTS = replace(Numerics(), activation=BF16, error=BF16, vector="round-results")
FORMS = {
    "add": (lambda z, y: z + y, lambda z, y: z.add_(y)),
    "operator": (lambda z, y: z + y, lambda z, y: z.__iadd__(y)),
    "mul": (lambda z, y: z * y, lambda z, y: z.mul_(y)),
    "relu": (lambda z, y: (z + y).relu(), lambda z, y: z.add_(y).relu_()),
}


class Block(nn.Module):
    def __init__(self, form) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.form = nn.Linear(16, 16), nn.Linear(16, 16), form
        self.register_buffer("seen", torch.zeros(16))

    def forward(self, x):
        with torch.no_grad():
            self.seen += 1.2345678
        return self.form(self.first(x), self.second(x))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("train", [False, True])
def test_results_are_rounded_however_they_are_written(name: str, frozen: bool, train: bool) -> None:
    x, outs = torch.randn(32, 16), []
    for form in FORMS[name]:
        block = ps.emulate_(Block(form), RESULTS).train(train).requires_grad_(not frozen)
        out = block(x).detach()
        assert torch.equal(out, quantize(out, BF16.format))
        outs.append(out)
        assert torch.equal(block.seen, torch.full((16,), 1.2345678)), "a buffer is no activation"
    assert torch.equal(*outs)
