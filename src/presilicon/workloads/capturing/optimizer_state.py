"""Where an optimizer keeps its parameters and state: nothing else of it is rounded or priced."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from presilicon.base import ConfigError

_OWN = ("param_groups", "state", "defaults")


def check_optimizer(optimizer: Optimizer) -> None:
    """Check that an optimizer keeps its state in `optimizer.state`, and wraps no other that has a state of its own.

    Raises:
        ConfigError: it holds another optimizer, or tensors like its parameters somewhere else.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    shapes = {parameter.shape for parameter in parameters if parameter.dim()}
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    known = {id(tensor) for tensor in (*parameters, *gradients, *_tensors(optimizer.state.values()))}
    kind = type(optimizer).__name__
    for name, value in vars(optimizer).items():
        for leaf in pytree.tree_leaves(value) if name not in _OWN else ():
            if isinstance(leaf, Optimizer) and leaf is not optimizer:
                raise ConfigError(
                    f'{kind} wraps another optimizer ({type(leaf).__name__} in "{name}"), whose state would be neither '
                    "rounded nor priced; use one torch optimizer, with a group of parameters for each setting"
                )
            if isinstance(leaf, Tensor) and id(leaf) not in known and leaf.shape in shapes:
                raise ConfigError(
                    f'{kind} keeps tensors like its parameters in "{name}", where they would be neither rounded nor '
                    "priced; keep them in optimizer.state"
                )


def _tensors(values: Iterable[object]) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(list(values)) if isinstance(leaf, Tensor)]
