"""What emulation remembers saves time only: without its memory every bit is the same."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn import functional

import presilicon as ps
from presilicon.designs import Numerics, Override, ProductNumerics, RoleFormat
from presilicon.formats import MacUnit, parse

E5M2 = RoleFormat(parse("e5m2"))
DELAYED = RoleFormat(parse("scaled(element=e4m3fn)"), amax_history=2)
FORMATS = Numerics(weight="e4m3fn", activation="float(exponent=5, mantissa=4)", error="e5m2", gradient="bfloat16")
OTHERS = Override(layers="second*", weight="bfloat16", activation="e5m2", error="bfloat16")
BLOCKS = Numerics(
    weight="mx(element=fp4_e2m1, block=4)", activation="bfp(mantissa=3, group=4)", error="mx(element=e5m2, block=4)"
)
SUMS = MacUnit(accumulate=parse("float16"), order="chunked", chunk=4)
OWN_PRODUCTS = {
    "weight_grad": ProductNumerics(activation="bfloat16"),
    "input_grad": ProductNumerics(weight="e5m2"),
}
NUMERICS = {
    "formats": FORMATS,
    "override": replace(FORMATS, overrides=(OTHERS,)),
    "one product": replace(FORMATS, **OWN_PRODUCTS),
    "blocks": BLOCKS,
    "transforms": replace(FORMATS, weight_grad=ProductNumerics(hadamard=4)),
    "results": replace(FORMATS, vector="round-results"),
    "steps": replace(FORMATS, vector="round-steps"),
    "delayed": Numerics(weight=DELAYED, activation=DELAYED, error=DELAYED),
    "tensor cores": replace(FORMATS, activation=E5M2, sums="tensor-core"),
    "sums": Numerics(weight="bfloat16", activation="bfloat16", error="bfloat16", mac=SUMS),
}


class Net(nn.Module):
    """Two layers that read one tensor, each with the forward pass of a case."""

    def __init__(self, case: Callable[["Net", Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.case, self.first, self.second = case, nn.Linear(8, 8), nn.Linear(8, 8)
        self.second_of_first = nn.Linear(8, 8)
        self.second_of_first.weight = self.first.weight
        self.table = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.case(self, x)


def write_between(net: Net, x: Tensor) -> Tensor:
    h = torch.tanh(x)
    before = net.first(h.detach())
    with torch.no_grad():
        h.mul_(1.37)
    return before + net.second(h.detach())


def write_a_view(net: Net, x: Tensor) -> Tensor:
    h = torch.relu(x + 0.1).detach()
    before = net.first(h)
    h[1:].add_(0.3)
    return before + net.first(h)


def write_a_weight(net: Net, x: Tensor) -> Tensor:
    before = x @ net.table
    with torch.no_grad():
        net.table.add_(0.11)
    return before + x @ net.table


def share(net: Net, x: Tensor) -> Tensor:
    return net.first(x) * net.second(x) + net.first(x.t()[:8].t().contiguous())


def both_sides(net: Net, x: Tensor) -> Tensor:
    return net.second(x @ net.table) + (x.t() @ x)[:4] @ net.table.t()


def many(net: Net, x: Tensor) -> Tensor:
    parts = [torch.sigmoid(x * number) for number in range(1, 8)]
    return sum(net.first(part) for part in parts) + sum(net.second(part) for part in reversed(parts))


def tied(net: Net, x: Tensor) -> Tensor:
    """One weight in two layers, as the left and the right factor, and along both of its axes."""
    both_axes = functional.linear(x, net.table) + x @ net.table + functional.linear(x, net.table.view(8, 8))
    return functional.linear(net.first(x), net.first.weight.t()) + net.second_of_first(x) + both_axes


def views(net: Net, x: Tensor) -> Tensor:
    left, right = (torch.tanh(x) + 0.2).chunk(2)
    return torch.cat([net.first(left), net.second(right)]) + net.first(torch.tanh(x).t().reshape(4, 8))


WRITES = (write_between, write_a_view, write_a_weight)
"""Autograd refuses to differentiate these."""
CASES = (*WRITES, share, both_sides, many, tied, views)


class Forgetful(dict):
    """Has what was put in last, and says that it has nothing."""

    def __contains__(self, key: object) -> bool:
        return False


def defined(name: str, modules: list[ModuleType]) -> type:
    """The class of that name, in whichever module it stands."""
    return next(value for module in modules for value in vars(module).values()
                if isinstance(value, type) and value.__name__ == name)  # fmt: skip


@pytest.fixture
def without_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Turns off everything that emulation remembers of formats, tensors and functions."""

    def forget() -> None:
        modules = [module for name, module in sys.modules.items() if name.startswith("presilicon.emulation")]
        plan = defined("LayerPlan", modules)
        made = plan.__init__

        def init(self: Any, *args: object, **options: object) -> None:
            made(self, *args, **options)
            self._units = Forgetful()

        monkeypatch.setattr(plan, "__init__", init)
        monkeypatch.setattr(defined("Rounded", modules), "find", lambda self, tensor, role, how: None)
        for module in modules:
            for attribute, value in vars(module).copy().items():
                if hasattr(value, "cache_info"):
                    monkeypatch.setattr(module, attribute, value.__wrapped__)

    return forget


def bits(
    case: Callable[[Net, Tensor], Tensor], numerics: Numerics, *, evaluations: int = 0, larger: float = 1.0
) -> tuple[list[Tensor], list[Tensor]]:
    """Results, gradients and weights of three training steps; results of evaluations of each batch times `larger`."""
    model = ps.emulate_(Net(case), numerics, seed=3)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    draw, trained, evaluated = torch.Generator().manual_seed(1), [], []
    for size in (1.0, 2.5, 0.1):
        x = (size * torch.randn(4, 8, generator=draw)).requires_grad_()
        with torch.set_grad_enabled(case not in WRITES):
            out = model(x)
        trained.append(out.detach().clone())
        if case not in WRITES:
            out.square().mean().backward()
            trained += [leaf.grad.clone() for leaf in (x, *model.parameters()) if leaf.grad is not None]
        model.eval()
        with torch.no_grad():
            evaluated += [model(larger * x.detach()) for _ in range(evaluations)]
        model.train()
        optimizer.step()
        optimizer.zero_grad()
        model.table.data.mul_(1.1)  # a write that torch does not count
        trained += [p.detach().clone() for p in model.parameters()]
    return trained, evaluated


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.filterwarnings('ignore:sums = "tensor-core"')
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("name", NUMERICS)
def test_without_its_memory_emulation_computes_the_same_bits(name: str, case, without_memory) -> None:
    trained, evaluated = bits(case, NUMERICS[name], evaluations=1)
    without_memory()
    again, evaluated_again = bits(case, NUMERICS[name], evaluations=1)
    assert all(torch.isfinite(tensor).all() for tensor in trained)
    assert same(again, trained)
    assert same(evaluated_again, evaluated)


RANDOM = RoleFormat(parse("float(exponent=5, mantissa=1)"), "stochastic")


@pytest.mark.parametrize("vector", ["float32", "round-results"])
@pytest.mark.parametrize("case", [share, many, tied], ids=lambda case: case.__name__)
def test_evaluations_between_steps_change_no_bit_of_training_and_draw_numbers_of_their_own(case, vector: str) -> None:
    numerics = Numerics(weight=RANDOM, activation=RANDOM, error=RANDOM, gradient=RANDOM, vector=vector)
    alone, _ = bits(case, numerics)
    beside, evaluated = bits(case, numerics, evaluations=2)
    assert same(beside, alone)
    outputs = alone[:: len(alone) // 3]
    for step, output in enumerate(outputs):
        assert all(not torch.equal(output, found) for found in evaluated[2 * step : 2 * step + 2])


@pytest.mark.parametrize("name", ["delayed", "formats"])
def test_an_evaluation_records_nothing_for_later_scales(name: str) -> None:
    alone, _ = bits(share, NUMERICS[name])
    beside, _ = bits(share, NUMERICS[name], evaluations=3, larger=64.0)
    assert same(beside, alone)
