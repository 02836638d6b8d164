"""Updates of emulated optimizers on a GPU: few launches, and the bits of one parameter at a time."""

import copy

import pytest
import torch
from torch import nn

from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation import emulate_optimizer_, optimizers
from presilicon.formats import Key, Stochastic, parse, quantize, quantize_all_

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is seen"),
]

NEAREST, RANDOM = (RoleFormat(parse("bfloat16"), rounding) for rounding in ("nearest-even", "stochastic"))


@pytest.mark.parametrize("name", ["bfloat16", "e5m2", "fixed(8, 4)", "bfp(mantissa=4)", "posit(8, 1)"])
@pytest.mark.parametrize("mode", ["nearest-even", "toward-zero", Stochastic(), Stochastic(8, "lfsr")], ids=str)
def test_a_list_has_the_bits_of_its_tensors(name: str, mode) -> None:
    torch.manual_seed(0)
    fmt = parse(name)
    tensors = [torch.randn(shape) for shape in [(1,), (5000,), (33, 70), (4096,)]] + [torch.randn(30, 40).t()]
    keys = [Key(1, 2, f"tensor{number}") for number in range(len(tensors))]
    expected = [quantize(x, fmt, rounding=mode, key=key) for x, key in zip(tensors, keys, strict=True)]
    found = [x.cuda() for x in tensors]
    quantize_all_(found, fmt, rounding=mode, keys=keys)
    assert all(torch.equal(x.cpu(), y) for x, y in zip(found, expected, strict=True))


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(70, 65), nn.Tanh(), nn.Linear(65, 30)).cuda()


MAKES = {
    "momentum": lambda p, **o: torch.optim.SGD(p, lr=0.1, momentum=0.9, **o),
    "decay": lambda p, **o: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, **o),
    "adam": lambda p, **o: torch.optim.Adam(p, lr=0.01, **o),
    "adamw": lambda p, **o: torch.optim.AdamW(p, lr=0.01, amsgrad=True, **o),
}


def run(make, fmt: RoleFormat, steps: int = 5) -> list[torch.Tensor]:
    layers = model()
    optimizer = emulate_optimizer_(make(layers.parameters()), Numerics(master=fmt, state=fmt))
    generator = torch.Generator("cuda").manual_seed(1)
    for _ in range(steps):
        for parameter in layers.parameters():
            parameter.grad = torch.randn(parameter.shape, device="cuda", generator=generator)
        optimizer.step()
    return [*layers.parameters(), *(value for state in optimizer.state.values() for value in state.values())]


@pytest.mark.parametrize("fmt", [NEAREST, RANDOM], ids=["nearest", "stochastic"])
@pytest.mark.parametrize("name", MAKES)
def test_parameters_updated_together_have_the_bits_of_those_updated_alone(name: str, fmt: RoleFormat) -> None:
    together, alone = run(MAKES[name], fmt), run(lambda p: MAKES[name](p, foreach=False), fmt)
    assert optimizers.takes_lists(MAKES[name](model().parameters()))
    assert all(torch.equal(x, y) for x, y in zip(together, alone, strict=True))


@pytest.mark.parametrize("name", ["momentum", "decay", "adam"])
def test_a_captured_update_has_the_bits_of_an_eager_one(name: str) -> None:
    options = {"capturable": True} if name == "adam" else {}
    eager = model()
    captured = copy.deepcopy(eager)
    both = []
    for layers in (eager, captured):
        for parameter in layers.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer = MAKES[name](layers.parameters(), **options)
        both.append(emulate_optimizer_(optimizer, Numerics(master=NEAREST, state=NEAREST)))
        for _ in range(3):
            both[-1].step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        both[1].step()
    for _ in range(4):
        both[0].step()
        graph.replay()
    assert all(torch.equal(x, y) for x, y in zip(eager.parameters(), captured.parameters(), strict=True))
