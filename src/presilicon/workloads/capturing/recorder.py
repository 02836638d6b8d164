"""Records every operator call of a training step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from presilicon.base import ConfigError
from presilicon.ops import Captured, OpEntry, OperatorFacts, OpPart, count_flops, describe_operator, ops_of_call
from presilicon.records import Role, Stage
from presilicon.workloads.capturing.access import Accesses
from presilicon.workloads.capturing.calls import Record, RecordedCall, View
from presilicon.workloads.capturing.flows import Flows
from presilicon.workloads.capturing.layers import Layers, next_sequence_number, tensors_in
from presilicon.workloads.capturing.origins import Origin, origin_of_result
from presilicon.workloads.capturing.replica import replicate_tensor
from presilicon.workloads.capturing.values import Values

_READ_VALUE = torch.ops.aten._local_scalar_dense.default
_GROUPED = getattr(torch.ops.aten, "_grouped_mm", None)
_NATIVE_BATCH_NORM = torch.ops.aten.native_batch_norm.default


class DataDependentError(RuntimeError):
    """The step read a value of a meta tensor."""


class Storages:
    """Numbers tensor storages: views and in-place results have the number of their storage.

    References to the tensors themselves would change what is recorded, because autograd copies a gradient that is
    referenced elsewhere. A weak reference to the storage does not have this effect, and keeps its address from being
    reused.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, StorageWeakRef]] = {}

    def number(self, tensor: Tensor) -> int:
        """The number of the tensor's storage.

        Raises:
            ConfigError: the tensor is sparse, and so has no storage.
        """
        if tensor.layout is not torch.strided:
            raise ConfigError("sparse tensors cannot be captured; make the gradients dense (`sparse=False`)")
        storage = tensor.untyped_storage()
        address = storage._cdata
        known = self._known.get(address)
        if known is None:
            known = (len(self._known), StorageWeakRef(storage))  # type: ignore[no-untyped-call]
            self._known[address] = known
        return known[0]


class CallRecorder(TorchDispatchMode):
    """A dispatch mode that records the calls of one training step on the meta device.

    The caller sets `stage` while the step runs, and `recording` for the step to record.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.record = Record()
        self.storages = Storages()
        self.values = Values()
        self.accesses = Accesses(self.storages.number)
        self.stage: Stage = "forward"
        self.recording = False
        self._layers = Layers(model)
        self.flows = Flows(model, self._layers, self._note_flow)
        self._producers: dict[int, int] = {}
        self._nodes: dict[int, int] = {}
        """Position of the call that each autograd node belongs to, by the node's sequence number."""
        self._constants: dict[int, tuple[Tensor, Tensor]] = {}
        self._fixed: set[int] = set()
        """Storages that hold constants: buffers, attributes of modules, and what is computed from them alone."""

    def claim(self, tensor: Tensor, role: Role, owner: str = "") -> None:
        """Set the role, and the layer, of a tensor that exists before the step."""
        number = self.storages.number(tensor)
        self.record.roles.setdefault(number, role)
        if owner:
            self.record.owners.setdefault(number, owner)

    def claim_constant(self, tensor: Tensor) -> None:
        """Mark a tensor of the model that is neither a parameter nor data."""
        self._fixed.add(self.storages.number(tensor))

    def claim_gradient(self, gradient: Tensor, owner: str) -> None:
        """Mark a tensor as the final gradient of a parameter of the layer `owner`."""
        if self.recording:
            self._note_flow(gradient, "gradient")
            self.record.owners.setdefault(self.storages.number(gradient), owner)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the call, and record it if this step is to be recorded."""
        kwargs = kwargs or {}
        tensors = list(tensors_in([args, kwargs]))
        on_meta = [tensor.is_meta for tensor in tensors]
        if any(on_meta) and not all(on_meta):
            args, kwargs = self._to_meta(args), self._to_meta(kwargs)
            tensors = list(tensors_in([args, kwargs]))
        if func is _READ_VALUE and any(on_meta):
            value = self.values.read(args[0])
            if value is None:
                raise DataDependentError("it reads a value of a tensor")
            return value.item()
        output = _empty_grouped(*args) if func.overloadpacket is _GROUPED and all(on_meta) else func(*args, **kwargs)
        # A call without meta tensors is the host's bookkeeping, such as an optimizer's step counter.
        if not any(on_meta) and not any(tensor.is_meta for tensor in tensors_in([output])):
            return output
        if self.stage == "forward":
            operator = describe_operator(func)
            written = [kwargs.get(key) if isinstance(key, str) else args[key] for key in operator.written]
            self.values.follow(func, args, kwargs, tensors_in(written), output)
        if self.recording:
            self._write(func, args, kwargs, [tensor for tensor in tensors if tensor.is_meta], output)
        return output

    def _write(self, func: Any, args: Any, kwargs: dict[str, Any], tensors: list[Tensor], output: Any) -> None:
        operator = describe_operator(func)
        results = list(tensors_in([output]))
        # Gradients are off in a backward pass; if they are on, activations are being recomputed.
        recomputes = self.stage == "backward" and self.flows.visit >= 0 and torch.is_grad_enabled()
        stage: Stage = "forward" if recomputes else self.stage
        if stage == "forward":
            self._note_roles(operator, tensors, results)
        if operator.free or (not operator.mutable and self._only_views(tensors, results)):
            return
        reads, writes = _traffic(func, operator, args, kwargs, tensors, results)
        for part in ops_of_call(func, args, output, reads, results):
            if part.product is None:
                self._append(str(func), operator.captured, part, stage, reads, writes)
            else:
                own = [part.product.output]
                self._append(str(func), operator.captured, part, stage, part.product.operands, own)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A context whose calls are not recorded."""
        before, self.recording = self.recording, False
        try:
            yield
        finally:
            self.recording = before

    def note_module_op(
        self,
        entry: OpEntry,
        reads: list[Tensor],
        writes: list[Tensor],
        *,
        is_gradient: bool = False,
        following: int | None = None,
    ) -> None:
        """Record a pass of a module that is one operator; `following` is the number after that of its node."""
        captured = entry.backward if is_gradient else entry.forward
        if not self.recording or captured is None:
            return
        name = f"{entry.name}_backward" if is_gradient else entry.name
        # A forward pass inside of the backward pass recomputes activations.
        stage: Stage = self.stage if is_gradient or self.stage != "backward" else "forward"
        if stage == "forward":
            self._note_origins(name, reads, writes, following)
        shapes = [[tuple(tensor.shape) for tensor in tensors] for tensors in (reads, writes)]
        part = OpPart(name, captured.kind, count_flops(captured, *shapes))
        self._append(f"presilicon.{name}", captured, part, stage, reads, writes, following)

    def _append(
        self, operator: str, captured: Captured, part: OpPart, stage: Stage, reads: Iterable[Tensor],
        writes: Iterable[Tensor], following: int | None = None,
    ) -> None:  # fmt: skip
        product = part.product
        reads, writes = list(reads), list(writes)
        inputs = tuple(self._view(tensor) for tensor in reads)
        outputs = tuple(dict.fromkeys(self._view(tensor) for tensor in writes))
        if captured.reads_table:
            inputs = (View(inputs[0].storage, outputs[0].shape, inputs[0].integer_bits), *inputs[1:])
        sources = {view.storage for view in inputs}
        # A call that writes to a part of a storage keeps the rest as the previous writer left it.
        sources |= {self.storages.number(tensor) for tensor in writes if _is_part(tensor)}
        depends_on = sorted({self._producers[source] for source in sources if source in self._producers})
        self._producers.update(dict.fromkeys((view.storage for view in outputs), len(self.record.calls)))
        in_node = stage == "backward" and not self._layers.inside
        sequence = next_sequence_number() if following is None else following
        if stage == "forward" and sequence is not None and torch.is_grad_enabled():
            # A call that makes no node of its own comes after the one that has made the latest.
            self._nodes.setdefault(sequence - 1, len(self.record.calls))
        self.record.calls.append(
            RecordedCall(
                operator=operator if part.work is None else f"presilicon.{part.work.name}",
                label=part.label,
                kind=part.kind,
                stage=stage,
                layer=self.flows.layer if in_node else self._layers.current,
                differentiates=self._nodes.get(self.flows.node) if in_node else None,
                access=self.accesses.access(captured.last_axis, part.kind, reads, writes),
                recurrent=self.flows.recurrent if in_node else self._layers.recurrent,
                node=self.flows.visit if stage == "backward" else -1,
                # The two factors of a product are both listed, even if they are the same tensor.
                inputs=inputs if product else tuple(dict.fromkeys(inputs)),
                outputs=outputs,
                flops=part.flops,
                fixed_statistics=part.fixed_statistics,
                depends_on=tuple(depends_on),
                gemm=product.gemm if product else None,
                convolution=product.convolution if product else None,
                work=part.work,
            )
        )

    def _view(self, tensor: Tensor) -> View:
        # Repeated axes of an expanded tensor (stride 0) hold no additional values, so they count once.
        shape = tuple(1 if step == 0 else size for size, step in zip(tensor.shape, tensor.stride(), strict=True))
        integer_bits = 0 if tensor.is_floating_point() or tensor.is_complex() else 8 * tensor.element_size()
        return View(self.storages.number(tensor), shape, integer_bits)

    def _only_views(self, tensors: list[Tensor], results: list[Tensor]) -> bool:
        inputs = {self.storages.number(tensor) for tensor in tensors}
        return all(self.storages.number(tensor) in inputs for tensor in results)

    def _note_roles(self, operator: OperatorFacts, tensors: list[Tensor], results: list[Tensor]) -> None:
        """Set the roles of results: a tensor computed from weights and constants alone is still a weight."""
        origin = self._note_origins(
            operator.name, tensors, results, next_sequence_number(), multiplies=operator.multiplies
        )
        if operator.mutable and origin != "constant":
            self._fixed.difference_update(self.storages.number(tensor) for tensor in results)

    def _note_origins(
        self,
        name: str,
        tensors: list[Tensor],
        results: list[Tensor],
        sequence: int | None,
        *,
        multiplies: bool = False,
    ) -> Origin:
        numbers = [self.storages.number(tensor) for tensor in tensors if tensor.is_floating_point()]
        origin = origin_of_result(name, map(self._origin, numbers), multiplies=multiplies)
        written = [self.storages.number(tensor) for tensor in results]
        if origin == "constant":
            self._fixed.update(number for number in written if number not in self.record.roles)
        for number in written:
            self.record.roles.setdefault(number, "weight" if origin == "weight" else "activation")
        # A custom autograd function computes without gradients, so the calls inside say nothing about its node.
        if sequence is not None and torch.is_grad_enabled():
            self.flows.note_node(sequence - 1, made_of_weights=origin == "weight")
        return origin

    def _origin(self, number: int) -> Origin:
        if number in self._fixed:
            return "constant"
        return "weight" if self.record.roles.get(number) == "weight" else "data"

    def _note_flow(self, tensor: Tensor, role: Role) -> None:
        if self.recording:
            self.record.flowing.setdefault(self.storages.number(tensor), set()).add(role)

    def _to_meta(self, value: Any) -> Any:
        """Replace real tensors, such as constants of a closure, by meta tensors; scalars may stay."""
        if isinstance(value, Tensor) and not value.is_meta and value.dim() > 0:
            # The constant is referenced, so that its id is not reused.
            if id(value) not in self._constants:
                self._constants[id(value)] = (value, replicate_tensor(value.detach()))
                self.values.learn(self._constants[id(value)][1], value)
            return self._constants[id(value)][1]
        if isinstance(value, list | tuple):
            return type(value)([self._to_meta(item) for item in value])
        if isinstance(value, dict):
            return {key: self._to_meta(item) for key, item in value.items()}
        return value


def _empty_grouped(left: Tensor, right: Tensor, offs: Tensor | None = None, *_: Any) -> Tensor:
    """The result of a grouped product on the meta device, where torch's own only knows bfloat16."""
    rows, columns = left.shape[-2], right.shape[-1]
    if left.dim() != right.dim():
        return left.new_empty(rows, columns)
    return left.new_empty(len(left) if offs is None else len(offs), rows, columns)


def _traffic(
    func: Any,
    operator: OperatorFacts,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensors: list[Tensor],
    results: list[Tensor],
) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors that a call reads, and those that it writes."""
    if operator.shape_only:
        return [], results
    written = {key: kwargs.get(key) if isinstance(key, str) else args[key] for key in operator.written}
    unread = {id(written[key]) for key in operator.unread}
    writes = [*results, *(tensor for tensor in tensors_in(written) if tensor.is_meta)]
    if func is _NATIVE_BATCH_NORM and args[5]:
        # Its schema does not say that training updates the running statistics.
        writes += [tensor for tensor in args[3:5] if tensor is not None]
    return [tensor for tensor in tensors if id(tensor) not in unread], writes


def _is_part(tensor: Tensor) -> bool:
    return tensor.numel() * tensor.element_size() < tensor.untyped_storage().nbytes()
