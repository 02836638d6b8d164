"""Losses as the hardware would compute them."""

from collections.abc import Callable
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn import functional

from presilicon.base.errors import ConfigError
from presilicon.designs import Numerics
from presilicon.emulation.attach import emulation_of
from presilicon.emulation.emulation import Emulation
from presilicon.emulation.ops.arithmetic import Arithmetic

LAYER = "loss"
"""The layer that an emulated loss is, for overrides, observers and coverage."""


def emulated(loss: Callable[..., Tensor], numerics: Numerics | nn.Module, *, seed: int = 0) -> "EmulatedLoss":
    """`loss`, with every result in it rounded to the activation format and every error to the error format.

    `numerics` is a design's, or an emulated model: then seed, step and schedule are the model's. The loss may be a
    function or a module; `numerics.vector` does not matter, since this asks for it.

    Raises:
        ConfigError: the model is not emulated.

    >>> from presilicon.designs import load_recipe
    >>> loss = emulated(functional.mse_loss, load_recipe("bf16").numerics)
    >>> loss(torch.tensor([1.0, 0.3]), torch.zeros(2))
    tensor(0.5469)
    """
    if isinstance(numerics, nn.Module):
        of_model = emulation_of(numerics)
        if of_model is None:
            raise ConfigError("the model is not emulated; call emulate_ first, or give a design's numerics")
        return EmulatedLoss(loss, of_model.numerics, of_model.seed, of_model)
    if not isinstance(numerics, Numerics):
        raise ConfigError(f"emulated takes a loss and a design's numerics, not {type(numerics).__name__}")
    return EmulatedLoss(loss, numerics, seed, None)


class EmulatedLoss(nn.Module):
    """A loss whose arithmetic is emulated."""

    def __init__(self, loss: Callable[..., Tensor], numerics: Numerics, seed: int, of_model: Emulation | None) -> None:
        super().__init__()
        self.loss = loss
        self._of_model = of_model
        self._emulation = Emulation(replace(numerics, vector="round-results"), seed)
        if of_model is not None:
            self._emulation.ends, self._emulation.observers = of_model.ends, of_model.observers
            self._emulation.operators = of_model.operators

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """What the loss gives."""
        emulation = self._emulation
        training = self.training and torch.is_grad_enabled()
        if self._of_model is not None:
            emulation.step, emulation.watcher = self._of_model.step, self._of_model.watcher
        emulation.enter(LAYER, training, counts=self._of_model is None)
        try:
            return self.loss(*args, **kwargs)
        finally:
            emulation.leave(LAYER)


def cross_entropy(do: Arithmetic, input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Cross-entropy in two steps, each rounded; with smoothed or fractional targets, in one."""
    given = {
        key: value for key, value in kwargs.items() if value is not None and (key, value) != ("label_smoothing", 0)
    }
    if args or given.keys() - {"weight", "ignore_index", "reduction"} or target.is_floating_point():
        whole: Tensor = do.apply(functional.cross_entropy, input, target, *args, **kwargs)
        return whole
    scores = do.apply(functional.log_softmax, input, 1 if input.dim() > 1 else 0)
    out: Tensor = do.apply(functional.nll_loss, scores, target, **given)
    return out


def mse_loss(do: Arithmetic, input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The squared difference, and its mean or sum, each rounded."""
    given = {key: value for key, value in kwargs.items() if value is not None}
    if args or given.keys() - {"reduction"}:
        whole: Tensor = do.apply(functional.mse_loss, input, target, *args, **kwargs)
        return whole
    squares: Tensor = do.apply(torch.square, do.apply(torch.sub, input, target))
    reduction = given.get("reduction", "mean")
    if reduction == "none":
        return squares
    out: Tensor = do.apply(torch.mean if reduction == "mean" else torch.sum, squares)
    return out
