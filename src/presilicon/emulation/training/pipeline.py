"""Continuous propagation: the forward pass of a layer sees weights that are some updates older than the current ones.

In a pipeline of layers that update at once, the activations of a sample pass through a layer before the errors of the
samples ahead of it have come back. With D such samples, the forward pass uses the weights of D updates ago, and the
backward pass the current ones. Taking the samples one after another, each with its forward pass on old weights, gives
the same numbers as the pipeline itself, slot by slot (tests/oracles/continuous_propagation.py).
"""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from presilicon.base import ConfigError
from presilicon.emulation.attach import owner_of


class StaleWeights:
    """The weights of a model before its last updates, by parameter."""

    def __init__(self, model: nn.Module, delays: Mapping[str, int]) -> None:
        """`delays` are the updates, by layer, between the weights of its forward and its backward pass."""
        for name, module in model.named_modules():
            if isinstance(module, nn.RNNBase | nn.RNNCellBase | nn.MultiheadAttention):
                raise ConfigError(
                    f'layer "{name}" is a {type(module).__name__}: continuous propagation is emulated for layers that '
                    "use their weights in one product, such as Linear and Conv2d; choose another schedule"
                )
        self._parameters: dict[str, nn.Parameter] = {}
        self._versions: dict[str, deque[Tensor]] = {}
        for name, parameter in model.named_parameters():
            delay = delays.get(owner_of(name), 0)
            if delay:
                self._parameters[name] = parameter
                self._versions[name] = deque([parameter.detach().clone()] * delay, maxlen=delay)

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """A context for the forward pass, in which parameters have their old values.

        The values are exchanged in the parameter's memory without autograd noticing, so that a backward pass after the
        context reads the current ones.
        """
        current = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        for name, parameter in self._parameters.items():
            parameter.data.copy_(self._versions[name][0])
        try:
            yield
        finally:
            for name, parameter in self._parameters.items():
                parameter.data.copy_(current[name])

    def push(self) -> None:
        """Remember the current weights, before an update changes them."""
        for name, parameter in self._parameters.items():
            self._versions[name].append(parameter.detach().clone())

    def state_dict(self) -> dict[str, Any]:
        """The old weights of each parameter, oldest first."""
        return {name: torch.stack(list(versions)) for name, versions in self._versions.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        for name, versions in self._versions.items():
            versions.extend(state[name].to(versions[0].device).unbind(0))
