"""Optimizers of torch by name, with parameters as text: `adamw(weight_decay=0.1)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from presilicon.base import ConfigError
from presilicon.workloads.settings.spelling import read_call

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

_DECAY = ("weight_decay",)
_KINDS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "sgd": ("SGD", {}, _DECAY),
    "momentum": ("SGD", {"momentum": 0.9}, ("momentum", "dampening", *_DECAY)),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}, ("momentum", *_DECAY)),
    "adam": ("Adam", {}, ("betas", "eps", "amsgrad", *_DECAY)),
    "adamw": ("AdamW", {}, ("betas", "eps", "amsgrad", *_DECAY)),
    "nadam": ("NAdam", {}, ("betas", "eps", "momentum_decay", *_DECAY)),
    "rmsprop": ("RMSprop", {}, ("alpha", "eps", "momentum", "centered", *_DECAY)),
    "adagrad": ("Adagrad", {}, ("lr_decay", "eps", *_DECAY)),
}
"""torch's class of each optimizer, its fixed options, and the parameters it takes."""

OPTIMIZERS = tuple(_KINDS)


def torch_optimizer(
    parameters: Iterable[nn.Parameter], kind: str, learning_rate: float | None = None, **options: Any
) -> Optimizer:
    """An optimizer of torch, one parameter at a time; without a learning rate at torch's own.

    Raises:
        ConfigError: torch refuses the options.
    """
    from torch import optim

    name, fixed, _ = _KINDS[kind]
    rate = {} if learning_rate is None else {"lr": learning_rate}
    try:
        optimizer: Optimizer = getattr(optim, name)(parameters, **{**fixed, **rate, **options}, foreach=False)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"optimizer {kind}: {error}") from None
    return optimizer


def read_optimizer(text: str, learning_rate: float | None = None) -> Callable[[Iterable[nn.Parameter]], Optimizer]:
    """The optimizer written in a text, for `Workload.optimizer`.

    >>> read_optimizer("adamw(weight_decay=0.1)", 0.01).keywords
    {'kind': 'adamw', 'learning_rate': 0.01, 'weight_decay': 0.1}

    Raises:
        ConfigError: an unknown optimizer or parameter.
    """
    kind, options = read_call(text, "optimizer", {kind: parameters for kind, (_, _, parameters) in _KINDS.items()})
    return partial(torch_optimizer, kind=kind, learning_rate=learning_rate, **options)


def with_learning_rate(
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer], learning_rate: float, parameters: Iterable[nn.Parameter]
) -> Optimizer:
    """An optimizer at another learning rate; groups of parameters with rates of their own keep their proportions."""
    made = optimizer(parameters)
    own = made.defaults["lr"]
    for group in made.param_groups:
        group["lr"] = learning_rate if group["lr"] == own else group["lr"] * learning_rate / own
    made.defaults["lr"] = learning_rate
    return made
