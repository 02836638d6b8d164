"""Errors and gradients in a backward pass, and the layers that they come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from presilicon.base import ConfigError
from presilicon.records import Role
from presilicon.workloads.capturing.layers import Layers, named_layers, sequence_number_of


class Flows:
    """Tracks a backward pass from autograd node to autograd node.

    `report` is called with each tensor that leaves or enters a node, and its role: `gradient` if it is the gradient of
    a weight or of a tensor computed from weights alone (a transposed view, a normalised weight), else `error`.
    """

    def __init__(self, model: nn.Module, layers: Layers, report: Callable[[Tensor, Role], None]) -> None:
        self.visit = -1
        """Number of nodes entered so far, minus one."""
        self.layer = ""
        """The layer whose forward pass made the node that is running."""
        self.node = -1
        """Sequence number of the node that is running; -1 between nodes, where gradients are added up."""
        self.recurrent = False
        """Whether that layer is recurrent."""
        self.owners = parameter_owners(model)
        """The layer of each parameter, by the `id` of the parameter."""
        self._layers = layers
        self._report = report
        self._made_of_weights: dict[int, bool] = {}
        self._nodes: list[Any] = []

    def note_node(self, number: int, made_of_weights: bool) -> None:
        """Record whether the node of this sequence number computes from weights alone; only the first call counts."""
        self._made_of_weights.setdefault(number, made_of_weights)

    def watch(self, loss: Tensor) -> None:
        """Hook every node under the loss.

        Raises:
            ConfigError: the loss depends on trainable tensors outside the model.
        """
        seen: dict[Any, None] = {loss.grad_fn: None}
        pending: list[Any] = [loss.grad_fn]
        while pending:
            node = pending.pop()
            following = [edge[0] for edge in node.next_functions]
            recurrent = self._layers.recurs(node)
            enter = self._entering(self._layer_of(node), sequence_number_of(node), recurrent, self._flow_into(node))
            node.register_prehook(enter)
            if following:
                node.register_hook(self._leaving([self._flow_into(other) for other in following]))
            fresh = [other for other in following if other is not None and other not in seen]
            seen.update(dict.fromkeys(fresh))
            pending.extend(dict.fromkeys(fresh))
        # Nodes are recognised by identity, which is only stable while they are referenced.
        self._nodes = list(seen)

    def unwatch(self) -> None:
        """Release the autograd graph."""
        self._nodes.clear()
        self.visit, self.layer, self.node, self.recurrent = -1, "", -1, False

    def _layer_of(self, node: Any) -> str:
        leaf = getattr(node, "variable", None)
        if leaf is None:
            return self._layers.of_node(node)
        if not leaf.is_meta:
            raise ConfigError(
                f"the loss depends on a trainable tensor of shape {tuple(leaf.shape)} outside the model; compute "
                "the loss from the model's output, or use the optimizer's weight decay"
            )
        return self.owners.get(id(leaf), "")

    def _flow_into(self, node: Any) -> Role | None:
        if node is None:
            return None
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            return "gradient" if id(leaf) in self.owners else "error"
        number = sequence_number_of(node)
        if number is None:
            # Without sequence numbers, at least the transposed view in every linear layer is known by its name.
            of_weights = (
                node.name().startswith("TBackward") and self._flow_into(node.next_functions[0][0]) == "gradient"
            )
        else:
            of_weights = self._made_of_weights.get(number, False)
        return "gradient" if of_weights else "error"

    def _entering(self, layer: str, number: int | None, recurrent: bool, flow: Role | None) -> Callable[[Any], None]:
        def enter(gradients: tuple[Tensor | None, ...]) -> None:
            self.visit += 1
            self.layer, self.recurrent = layer, recurrent
            self.node = -1 if number is None else number
            # A tensor that enters may be the sum of several that left other nodes.
            self._report_all([flow] * len(gradients), gradients)

        return enter

    def _leaving(self, flows: list[Role | None]) -> Callable[[Any, Any], None]:
        def leave(gradients: tuple[Tensor | None, ...], _: Any) -> None:
            self.node = -1
            self._report_all(flows, gradients)

        return leave

    def _report_all(self, flows: list[Role | None], gradients: tuple[Tensor | None, ...]) -> None:
        for flow, gradient in zip(flows, gradients, strict=False):
            if flow is not None and gradient is not None:
                self._report(gradient, flow)


def parameter_owners(model: nn.Module) -> dict[int, str]:
    """The qualified name of the first module that holds each parameter, by the `id` of the parameter."""
    owners: dict[int, str] = {}
    for name, module in named_layers(model):
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), name)
    return owners
