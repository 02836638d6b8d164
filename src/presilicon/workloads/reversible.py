"""Reversible networks (Gomez et al., "The Reversible Residual Network", arXiv 1707.04585).

A coupling computes y2 = F1(x1) + x2, then y1 = F2(y2) + x1, where x1 and x2 are the halves of its channels. Its inputs
follow from its outputs: x1 = y1 - F2(y2), x2 = y2 - F1(x1). So a sequence of couplings needs to keep only its last
outputs; the backward pass runs F1 and F2 of each coupling again.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from presilicon.base import ConfigError

Halves = tuple[Tensor, Tensor]


class Coupling(nn.Module):
    """Two functions of half of the channels each, without random numbers."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x1: Tensor, x2: Tensor) -> Halves:
        """The outputs."""
        y2 = self.first(x1) + x2
        return self.second(y2) + x1, y2

    @torch.no_grad()
    def inverse(self, y1: Tensor, y2: Tensor) -> Halves:
        """The inputs that give these outputs, up to rounding."""
        x1 = y1 - self.second(y2)
        return x1, y2 - self.first(x1)


class Reversible(nn.Module):
    """Couplings one after another; the channels (axis 1) of the input are split in two."""

    def __init__(self, *couplings: Coupling) -> None:
        super().__init__()
        self.couplings = nn.ModuleList(couplings)
        self.recomputes = False
        """Whether the inputs of couplings are recomputed in the backward pass instead of kept."""

    def forward(self, x: Tensor) -> Tensor:
        """Both halves of the last outputs."""
        if x.shape[1] % 2:
            raise ConfigError(f"a reversible network needs an even number of channels, not {x.shape[1]}")
        y1, y2 = x.chunk(2, 1)
        if self.recomputes and torch.is_grad_enabled():
            y1, y2 = _Recomputed.apply(self, y1, y2, *self.couplings.parameters())  # type: ignore[no-untyped-call]
        else:
            for coupling in self.couplings:
                y1, y2 = coupling(y1, y2)
        return torch.cat((y1, y2), 1)

    def inverse(self, y: Tensor) -> Tensor:
        """The input that gives this output, up to rounding."""
        x1, x2 = y.chunk(2, 1)
        for coupling in reversed(self.couplings):
            assert isinstance(coupling, Coupling)
            x1, x2 = coupling.inverse(x1, x2)
        return torch.cat((x1, x2), 1)


_thread = threading.local()


@contextmanager
def recomputing() -> Iterator[None]:
    """A context in custom autograd functions that run modules in both passes of a step, each module once in each.

    Emulation then repeats the roundings of the forward pass, stochastic ones too, and emulates the backward products.
    """
    before = is_recomputing()
    _thread.is_recomputing = True
    try:
        yield
    finally:
        _thread.is_recomputing = before


def is_recomputing() -> bool:
    """Whether such a context is open."""
    return getattr(_thread, "is_recomputing", False)


class _Recomputed(Function):
    @staticmethod
    def forward(ctx: Any, sequence: Reversible, x1: Tensor, x2: Tensor, *parameters: Tensor) -> Halves:
        with recomputing():
            for coupling in sequence.couplings:
                x1, x2 = coupling(x1, x2)
        ctx.couplings = sequence.couplings
        ctx.save_for_backward(x1, x2)
        return x1, x2

    @staticmethod
    def backward(ctx: Any, *errors: Tensor) -> tuple[Tensor | None, ...]:
        (y1, y2), (e1, e2) = ctx.saved_tensors, errors
        gradients: list[Tensor | None] = []
        for coupling in reversed(ctx.couplings):
            x1, e2, second = _pass_back(coupling.second, y2, y1, e1, e2)
            x2, e1, first = _pass_back(coupling.first, x1, y2, e2, e1)
            gradients = [*first, *second, *gradients]
            y1, y2 = x1, x2
        return (None, e1, e2, *gradients)


def _pass_back(
    function: nn.Module, inputs: Tensor, sums: Tensor, error: Tensor, other: Tensor
) -> tuple[Tensor, Tensor, list[Tensor | None]]:
    """The addend of the function's result, the error of its inputs with that of `other`, and its own gradients."""
    with torch.enable_grad(), recomputing():
        inputs = inputs.detach().requires_grad_()
        result = function(inputs)
    trained = [parameter for parameter in function.parameters() if parameter.requires_grad]
    back, *own = torch.autograd.grad(result, [inputs, *trained], error, allow_unused=True)
    found = {id(parameter): gradient for parameter, gradient in zip(trained, own, strict=True)}
    gradients = [found.get(id(parameter)) for parameter in function.parameters()]
    return sums - result.detach(), other if back is None else other + back, gradients
