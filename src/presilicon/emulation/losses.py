"""Emulated losses."""

from collections.abc import Callable
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn import functional

from presilicon.base import ConfigError
from presilicon.designs import Numerics
from presilicon.emulation.attach import emulation_of
from presilicon.emulation.emulation import Emulation
from presilicon.emulation.ops.arithmetic import Arithmetic
from presilicon.emulation.state.entry import save_with

LAYER = "loss"
"""Layer name of an emulated loss, for overrides, observers and coverage."""


def emulated(loss: Callable[..., Tensor], numerics: Numerics | nn.Module, *, seed: int = 0) -> "EmulatedLoss":
    """`loss`, with every result in it rounded to the activation format and every error to the error format.

    `numerics` is a design's numerics, or an emulated model, from which seed, step and schedule are then taken. The loss
    may be a function or a module. `numerics.vector = "float32"` has no effect here.

    Raises:
        ConfigError: the model is not emulated.

    >>> from presilicon.designs import load_recipe
    >>> loss = emulated(functional.mse_loss, load_recipe("bf16").numerics)
    >>> loss(torch.tensor([1.0, 0.3]), torch.zeros(2))
    tensor(0.5469)
    """
    if not callable(loss):
        raise ConfigError(f"emulated takes a loss that can be called, not {loss!r}")
    if isinstance(numerics, nn.Module):
        shared = emulation_of(numerics)
        if shared is None:
            raise ConfigError("the model is not emulated; call emulate_ first, or pass a design's numerics")
        return EmulatedLoss(loss, _rounding_results(shared.numerics), shared.seed, shared)
    if not isinstance(numerics, Numerics):
        raise ConfigError(f"emulated takes a loss and a design's numerics, not {type(numerics).__name__}")
    return EmulatedLoss(loss, _rounding_results(numerics), seed, None)


def loss_of_training(loss: Callable[..., Tensor], model: nn.Module) -> Callable[..., Tensor]:
    """`loss` as the numerics of an emulated model have it for the layer "loss": unchanged if they leave it in float32.

    Overrides of other layers do not reach it.
    """
    shared = emulation_of(model)
    assert shared is not None
    steps = (0, *(change.from_step for change in shared.numerics.schedule))
    if not any(shared.numerics.in_force(LAYER, step, shared.ends).computes_vectors for step in steps):
        return loss
    return EmulatedLoss(loss, shared.numerics, shared.seed, shared)


def _rounding_results(numerics: Numerics) -> Numerics:
    return replace(numerics, vector="round-results" if numerics.vector == "float32" else numerics.vector)


class EmulatedLoss(nn.Module):
    """A loss whose arithmetic is emulated."""

    def __init__(self, loss: Callable[..., Tensor], numerics: Numerics, seed: int, shared: Emulation | None) -> None:
        super().__init__()
        self.loss = loss
        self._shared = shared
        self._last_pass: tuple[int, str] | None = None
        self._repeats = 0
        self._emulation = Emulation(numerics, seed)
        if shared is None:
            self._emulation.count.follows_all = True
            save_with(self, self._emulation)
        else:
            self._emulation.ends, self._emulation.observers = shared.ends, shared.observers
            self._emulation.operators = shared.operators

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The loss of the given outputs and targets."""
        emulation = self._emulation
        training = self.training and torch.is_grad_enabled()
        if self._shared is not None:
            emulation.follow(self._shared, self._count_call(self._shared) if training else 0)
        depth, emulation.inputs = emulation.depth, (args, kwargs)
        try:
            emulation.enter(LAYER, training, counts=self._shared is None)
            return self.loss(*args, **kwargs)
        finally:
            emulation.unwind(depth)

    def _count_call(self, shared: Emulation) -> int:
        """The number of earlier calls since the model's last forward pass."""
        last_pass = (shared.step, shared.stream)
        self._repeats = self._repeats + 1 if last_pass == self._last_pass else 0
        self._last_pass = last_pass
        return self._repeats


def cross_entropy(do: Arithmetic, input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Cross-entropy in two steps, each rounded; in one with smoothed or fractional targets."""
    options = {
        key: value for key, value in kwargs.items() if value is not None and (key, value) != ("label_smoothing", 0)
    }
    if args or options.keys() - {"weight", "ignore_index", "reduction"} or target.is_floating_point():
        loss: Tensor = do.apply(functional.cross_entropy, input, target, *args, **kwargs)
        return loss
    scores = do.apply(functional.log_softmax, input, 1 if input.dim() > 1 else 0)
    out: Tensor = do.apply(functional.nll_loss, scores, target, **options)
    return out


def mse_loss(do: Arithmetic, input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The squared difference, and its mean or sum, each rounded."""
    options = {key: value for key, value in kwargs.items() if value is not None}
    if args or options.keys() - {"reduction"}:
        loss: Tensor = do.apply(functional.mse_loss, input, target, *args, **kwargs)
        return loss
    squares: Tensor = do.apply(torch.square, do.apply(torch.sub, input, target))
    reduction = options.get("reduction", "mean")
    if reduction == "none":
        return squares
    out: Tensor = do.apply(torch.mean if reduction == "mean" else torch.sum, squares)
    return out
