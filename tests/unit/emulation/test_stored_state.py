"""Only what an optimizer stores from step to step takes the format of the state, in every optimizer of torch."""

import inspect
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from presilicon.designs import Numerics
from presilicon.emulation import emulate_, emulate_optimizer_, optimizers
from presilicon.emulation.attach import state_tensors
from presilicon.formats import parse, quantize

pytestmark = pytest.mark.filterwarnings("ignore::presilicon.emulation.UncoveredWarning")

KINDS = [
    kind
    for kind in vars(torch.optim).values()
    if isinstance(kind, type) and issubclass(kind, Optimizer) and kind not in (Optimizer, torch.optim.SparseAdam)
]
COARSE = "float(exponent=8, mantissa=2)"
CHOICES: dict[str, tuple[Any, Any]] = {
    "momentum": (0.0, 0.9),
    "weight_decay": (0.0, 0.1),
    "line_search_fn": (None, "strong_wolfe"),
    **dict.fromkeys(
        ("nesterov", "maximize", "amsgrad", "centered", "decoupled_weight_decay", "foreach"), (False, True)
    ),
}


def options_of(kind: type[Optimizer]) -> Iterator[dict[str, Any]]:
    """Every combination of the options that an optimizer has and allows."""
    names = [name for name in inspect.signature(kind).parameters if name in CHOICES]
    for values in product(*(CHOICES[name] for name in names)):
        options = dict(zip(names, values, strict=True))
        if kind is torch.optim.SGD and options["nesterov"] and not options["momentum"]:
            continue
        yield options


def trained(
    kind: type[Optimizer], options: dict[str, Any], state: str, vector: str = "float32"
) -> tuple[Optimizer, nn.Linear]:
    torch.manual_seed(0)
    model, x = nn.Linear(7, 5, bias=False), torch.randn(4, 7)
    numerics = Numerics(vector=vector, state=state, master="float(exponent=6, mantissa=9)")
    emulate_(model, numerics)
    optimizer = emulate_optimizer_(kind(model.parameters(), lr=0.1, **options), numerics, model=model)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for _ in range(3):
        if kind is torch.optim.LBFGS:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return optimizer, model


def stored(optimizer: Optimizer) -> list[torch.Tensor]:
    return [tensor for parameter, state in optimizer.state.items() for _, tensor in state_tensors(state, parameter)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_optimizer_that_stores_nothing_ignores_the_format_of_the_state(kind: type[Optimizer]) -> None:
    for options in options_of(kind):
        (exact, model), (coarse, other) = (trained(kind, options, state) for state in ("float32", COARSE))
        assert stored(exact) or torch.equal(model.weight, other.weight), options
        assert all(torch.equal(tensor, quantize(tensor, parse(COARSE))) for tensor in stored(coarse)), options


@pytest.mark.parametrize("vector", ["float32", "round-steps"])
def test_plain_descent_with_decay_ignores_the_format_of_the_state(vector: str) -> None:
    options = {"weight_decay": 0.1}
    exact, coarse = (trained(torch.optim.SGD, options, state, vector)[1].weight for state in ("float32", COARSE))
    assert torch.equal(exact, coarse)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_rounded_as_state_that_is_not_stored(kind: type[Optimizer], monkeypatch) -> None:
    rounded: list[torch.Tensor] = []
    round_in_place: Callable[..., None] = optimizers.round_in_place

    def spy(tensors, role_format, role, *rest) -> None:
        rounded.extend(tensor for tensor, _ in tensors if role == "state")
        round_in_place(tensors, role_format, role, *rest)

    monkeypatch.setattr(optimizers, "round_in_place", spy)
    for options in options_of(kind):
        rounded.clear()
        optimizer, _ = trained(kind, options, COARSE)
        kept = {tensor.data_ptr() for tensor in stored(optimizer)}
        if kind is not torch.optim.LBFGS:  # it stores other tensors after each step
            assert {tensor.data_ptr() for tensor in rounded} == kept, options
