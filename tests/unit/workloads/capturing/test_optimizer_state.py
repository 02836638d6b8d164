"""An optimizer whose state is not where torch keeps it is refused by all that rounds or prices it."""

from collections.abc import Callable, Iterable
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer

from presilicon.base import ConfigError
from presilicon.designs import Numerics
from presilicon.emulation import coverage, emulate_, emulate_optimizer_
from presilicon.workloads import capture
from presilicon.workloads.capturing.optimizer_state import check_optimizer


class Both(Optimizer):
    """Two optimizers in one object."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        first, *rest = parameters
        self.parts = [SGD([first], lr=0.1, momentum=0.9), Adam(rest)]
        super().__init__([first, *rest], {})

    def step(self, closure: None = None) -> None:
        for part in self.parts:
            part.step()


class Lookahead(Optimizer):
    """Weights that follow those of another optimizer."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.inner = SGD(parameters, lr=0.1, momentum=0.9)
        super().__init__(self.inner.param_groups, {})

    def step(self, closure: None = None) -> None:
        self.inner.step()
        for parameter in self.param_groups[0]["params"]:
            slow = self.state[parameter].setdefault("slow", parameter.detach().clone())
            parameter.data.copy_(slow.lerp_(parameter.detach(), 0.5))


class Averaging(SGD):
    """Momentum in a list of its own, which is there from the start or from the first step on."""

    def __init__(self, parameters: Iterable[nn.Parameter], late: bool) -> None:
        super().__init__(parameters, lr=0.1)
        self.averages = {} if late else self.zeros()

    def zeros(self) -> dict[str, list[torch.Tensor]]:
        return {"averages": [torch.zeros_like(p) for p in self.param_groups[0]["params"]]}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        self.averages = self.averages or self.zeros()
        for parameter, average in zip(self.param_groups[0]["params"], self.averages["averages"], strict=True):
            parameter.sub_(average.mul_(0.9).add_(parameter.grad))


Make = Callable[[Iterable[nn.Parameter]], Optimizer]
REFUSED: dict[str, tuple[Make, str]] = {
    "two": (Both, r'Both wraps another optimizer \(SGD in "parts"\)'),
    "lookahead": (Lookahead, r'Lookahead wraps another optimizer \(SGD in "inner"\)'),
    "own list": (partial(Averaging, late=False), 'Averaging keeps tensors like its parameters in "averages"'),
    "own list later": (partial(Averaging, late=True), 'Averaging keeps tensors like its parameters in "averages"'),
}


def train(make: Make, numerics: Numerics) -> None:
    model = emulate_(nn.Linear(4, 3), numerics)
    optimizer = emulate_optimizer_(make(model.parameters()), numerics, model=model)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()


USES: dict[str, Callable[[Make], object]] = {
    "emulation": lambda make: train(make, Numerics(state="bfloat16", master="bfloat16")),
    "capture": lambda make: capture(nn.Linear(4, 3), torch.ones(2, 4), optimizer=make),
    "coverage": lambda make: coverage(nn.Linear(4, 3), Numerics(state="bfloat16"), torch.ones(2, 4), optimizer=make),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("case", REFUSED)
def test_state_that_would_be_neither_rounded_nor_priced_is_refused(case: str, use: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message):
        USES[use](make)


TORCH = [
    kind
    for kind in vars(torch.optim).values()
    if isinstance(kind, type) and issubclass(kind, Optimizer) and kind not in (Optimizer, torch.optim.SparseAdam)
]


@pytest.mark.parametrize("kind", TORCH)
def test_every_optimizer_of_torch_passes(kind: type[Optimizer]) -> None:
    parameter = nn.Parameter(torch.ones(3, 3))
    optimizer = kind([parameter], lr=0.1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = parameter.square().sum()
        loss.backward()
        return loss

    for _ in range(2):
        check_optimizer(optimizer)
        optimizer.step(closure)
    check_optimizer(optimizer)
