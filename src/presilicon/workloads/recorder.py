"""Watches a training step and writes down every operator call in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from presilicon.base.errors import ConfigError
from presilicon.records import Convolution, Gemm, OpKind, Role
from presilicon.workloads.layers import Layers, next_sequence_number, sequence_number_of
from presilicon.workloads.operators import Operator, count_flops, describe_operator
from presilicon.workloads.products import Product, find_products
from presilicon.workloads.replica import replicate_tensor
from presilicon.workloads.storages import Storages

Stage = Literal["forward", "backward", "update"]

_NATIVE_BATCH_NORM = torch.ops.aten.native_batch_norm.default


class DataDependentError(RuntimeError):
    """The step asked for the value of a tensor that has none."""


@dataclass(frozen=True, slots=True)
class View:
    """A tensor as a call saw it."""

    storage: int
    shape: tuple[int, ...]


@dataclass(slots=True)
class Call:
    """One operator call, or one part of it, before phases and roles are settled."""

    operator: str
    label: str
    kind: OpKind
    stage: Stage
    layer: str
    node: int
    """Which visit of an autograd node it happened in; -1 outside the backward pass."""
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]
    flops: int
    depends_on: tuple[int, ...]
    gemm: Gemm | None = None
    convolution: Convolution | None = None


@dataclass(slots=True)
class Record:
    """Everything that a step showed."""

    calls: list[Call] = field(default_factory=list)
    roles: dict[int, Role] = field(default_factory=dict)
    """Of the storages that exist before the step or are made by its forward pass."""
    flowing: dict[int, set[Role]] = field(default_factory=dict)
    """Of the storages that the backward pass handed from node to node: `error`, `gradient`, or both."""
    owners: dict[int, str] = field(default_factory=dict)
    """The layer that a parameter, its gradient or its optimizer state belongs to."""


class Recorder(TorchDispatchMode):
    """A dispatch mode that records the calls of one step on the meta device.

    The one who runs the step sets `stage`, and calls `watch` between the forward and the backward pass.
    """

    def __init__(self, layers: Layers) -> None:
        super().__init__()
        self.record = Record()
        self.storages = Storages()
        self.stage: Stage = "forward"
        self.recording = False
        self._layers = layers
        self._producers: dict[int, int] = {}
        self._weight_nodes: dict[int, bool] = {}
        self._node = -1
        self._node_layer = ""
        self._nodes: list[Any] = []
        self._constants: dict[int, tuple[Tensor, Tensor]] = {}

    def claim(self, tensor: Tensor, role: Role, owner: str = "") -> int:
        """Says what a tensor is that exists before the step, or was left by its backward pass."""
        number = self.storages.number(tensor)
        self.record.roles.setdefault(number, role)
        if owner:
            self.record.owners.setdefault(number, owner)
        return number

    def leave_gradient(self, gradient: Tensor, owner: str) -> None:
        """Says that the backward pass ended with this gradient of a parameter."""
        number = self.storages.number(gradient)
        self.record.flowing.setdefault(number, set()).add("gradient")
        self.record.owners.setdefault(number, owner)

    def watch(self, loss: Tensor, owners: dict[int, str]) -> None:
        """Hooks every autograd node under the loss: which layer made it, and what flows out of it.

        `owners` names the layer of each parameter by the `id` of the parameter.
        """
        seen = {loss.grad_fn}
        pending = [loss.grad_fn]
        while pending:
            node = pending.pop()
            leaf = getattr(node, "variable", None)
            layer = owners.get(id(leaf), "") if leaf is not None else self._layers.of_node(node)
            flows = [self._flow_into(following, owners) for following, _ in node.next_functions]
            node.register_prehook(self._entering(layer))
            if flows:
                node.register_hook(self._leaving(flows))
            for following, _ in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    pending.append(following)
        # A node's Python face lives as long as somebody holds it, and the hooks with it.
        self._nodes = list(seen)

    def unwatch(self) -> None:
        """Lets go of the autograd graph."""
        self._nodes.clear()
        self._node, self._node_layer = -1, ""

    def _flow_into(self, node: Any, owners: dict[int, str]) -> Role | None:
        """What a gradient is that enters this node: the forward tensor that the node made says it."""
        if node is None:
            return None
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            return "gradient" if id(leaf) in owners else "error"
        number = sequence_number_of(node)
        return "gradient" if number is not None and self._weight_nodes.get(number) else "error"

    def _entering(self, layer: str) -> Any:
        def enter(_: Any) -> None:
            self._node += 1
            self._node_layer = layer

        return enter

    def _leaving(self, flows: list[Role | None]) -> Any:
        def leave(gradients: tuple[Tensor | None, ...], _: Any) -> None:
            if self.recording:
                for flow, gradient in zip(flows, gradients, strict=False):
                    if flow is not None and gradient is not None:
                        self.record.flowing.setdefault(self.storages.number(gradient), set()).add(flow)

        return leave

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs the call, and writes it down when recording."""
        kwargs = kwargs or {}
        tensors = list(_tensors([args, kwargs]))
        if any(not tensor.is_meta for tensor in tensors) and any(tensor.is_meta for tensor in tensors):
            args, kwargs = self._to_meta(args), self._to_meta(kwargs)
            tensors = list(_tensors([args, kwargs]))
        if func is torch.ops.aten._local_scalar_dense.default and tensors[0].is_meta:
            raise DataDependentError("it needs the value of a tensor")
        output = func(*args, **kwargs)
        if self.recording:
            results = [tensor for tensor in _tensors([output]) if tensor.is_meta]
            # A call without meta tensors is the host's bookkeeping, such as an optimizer's step counter.
            if results or any(tensor.is_meta for tensor in tensors):
                self._write(func, args, kwargs, tensors, results, output)
        return output

    def _write(
        self, func: Any, args: Any, kwargs: dict[str, Any], tensors: list[Tensor], results: list[Tensor], output: Any
    ) -> None:
        operator = describe_operator(func)
        recomputed = self._node >= 0 and torch.is_grad_enabled()
        stage: Stage = "forward" if self.stage == "backward" and recomputed else self.stage
        if stage == "forward":
            self._note_roles(tensors, results)
        if operator.free:
            return
        if not operator.mutable:
            known = {self.storages.number(tensor) for tensor in tensors}
            if all(self.storages.number(tensor) in known for tensor in results):
                return
        products = find_products(operator.name, args, output)
        for product in products:
            self._write_product(func, operator, product, stage)
        if not products:
            unread = {id(_argument(args, kwargs, key)) for key in operator.unread}
            reads = [tensor for tensor in tensors if id(tensor) not in unread]
            writes = [*results]
            if func is _NATIVE_BATCH_NORM and args[5]:
                # Its schema hides that training updates the running statistics.
                writes += [tensor for tensor in args[3:5] if tensor is not None]
            for key in operator.written:
                writes += _tensors([_argument(args, kwargs, key)])
            shapes = [tuple(tensor.shape) for tensor in reads]
            flops = count_flops(operator, shapes, [tuple(tensor.shape) for tensor in results], args)
            self._append(func, operator.name, operator.kind, stage, reads, writes, flops)

    def _write_product(self, func: Any, operator: Operator, product: Product, stage: Stage) -> None:
        label = f"{operator.name}.{product.label}" if product.label else operator.name
        flops = product.gemm.flops if product.gemm else product.operands[0].numel()
        self._append(func, label, product.kind, stage, product.operands, [product.output], flops, product)

    def _append(
        self,
        func: Any,
        label: str,
        kind: OpKind,
        stage: Stage,
        reads: Iterable[Tensor],
        writes: list[Tensor],
        flops: int,
        product: Product | None = None,
    ) -> None:
        inputs = [self._view(tensor) for tensor in reads if tensor.is_meta]
        outputs = [self._view(tensor) for tensor in writes if tensor.is_meta]
        sources = {view.storage for view in inputs}
        # Who writes to a part of a storage leaves the rest as the writer before made it.
        sources |= {self.storages.number(tensor) for tensor in writes if _is_part(tensor)}
        depends = sorted({self._producers[source] for source in sources if source in self._producers})
        index = len(self.record.calls)
        for view in outputs:
            self._producers[view.storage] = index
        self.record.calls.append(
            Call(
                operator=str(func),
                label=label,
                kind=kind,
                stage=stage,
                layer=self._layer(stage),
                node=self._node if stage == "backward" else -1,
                inputs=tuple(inputs) if product else tuple(dict.fromkeys(inputs)),
                outputs=tuple(dict.fromkeys(outputs)),
                flops=flops,
                depends_on=tuple(depends),
                gemm=product.gemm if product else None,
                convolution=product.convolution if product else None,
            )
        )

    def _layer(self, stage: Stage) -> str:
        if self._layers.inside:
            return self._layers.current
        return self._node_layer if self._node >= 0 and self.stage == "backward" else ""

    def _view(self, tensor: Tensor) -> View:
        # An expanded tensor holds no more numbers than before: its repeated axes (stride 0) count once.
        shape = tuple(1 if step == 0 else size for size, step in zip(tensor.shape, tensor.stride(), strict=True))
        return View(self.storages.number(tensor), shape)

    def _note_roles(self, tensors: list[Tensor], results: list[Tensor]) -> None:
        """What is made of weights alone is still a weight (a transposed view, a normalised weight)."""
        roles = self.record.roles
        inputs = [roles.get(self.storages.number(tensor), "activation") for tensor in tensors if tensor.is_meta]
        role: Role = "weight" if inputs and all(given == "weight" for given in inputs) else "activation"
        for tensor in results:
            roles.setdefault(self.storages.number(tensor), role)
        number = next_sequence_number()
        # A custom autograd function computes without gradients; the calls inside say nothing of its node.
        if number is not None and torch.is_grad_enabled():
            self._weight_nodes.setdefault(number - 1, role == "weight")

    def _to_meta(self, value: Any) -> Any:
        """Replaces constants that a closure brought along; scalars may stay where they are."""
        if isinstance(value, Tensor) and not value.is_meta and value.dim() > 0:
            if value.requires_grad:
                raise ConfigError(
                    f"the step uses a trainable tensor of shape {tuple(value.shape)} that is no part of the model: "
                    "make it a parameter, and let the loss reach weights through the model's output only"
                )
            if id(value) not in self._constants:
                self._constants[id(value)] = (value, replicate_tensor(value))
            return self._constants[id(value)][1]
        if isinstance(value, list | tuple):
            return type(value)([self._to_meta(item) for item in value])
        if isinstance(value, dict):
            return {key: self._to_meta(item) for key, item in value.items()}
        return value


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple | dict):
            yield from _tensors(value)


def _argument(args: Any, kwargs: dict[str, Any], key: int | str) -> Any:
    if isinstance(key, str):
        return kwargs.get(key)
    return args[key] if key < len(args) else None


def _is_part(tensor: Tensor) -> bool:
    return tensor.numel() * tensor.element_size() < tensor.untyped_storage().nbytes()


def parameter_owners(model: nn.Module) -> dict[int, str]:
    """The qualified name of the first module that holds each parameter, by the `id` of the parameter."""
    owners: dict[int, str] = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), name)
    return owners
