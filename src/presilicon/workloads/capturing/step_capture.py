"""Capture: one training step of any torch model as a graph of ops, on the meta device, without data."""

from __future__ import annotations

import linecache
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from presilicon.base import ConfigError
from presilicon.records import StepGraph, TensorRef
from presilicon.workloads.capturing.assembly import assemble
from presilicon.workloads.capturing.device_ops import DeviceOps
from presilicon.workloads.capturing.layers import constants_of, ends_of
from presilicon.workloads.capturing.module_ops import record_module_ops
from presilicon.workloads.capturing.optimizer_state import check_optimizer
from presilicon.workloads.capturing.recorder import CallRecorder, DataDependentError
from presilicon.workloads.capturing.replica import replicate_model, replicate_tensors
from presilicon.workloads.user import workload_errors
from presilicon.workloads.workload import Workload, sgd


def capture(
    model: nn.Module,
    batch: Any,
    *,
    targets: Any = None,
    loss: Callable[..., Tensor] | None = None,
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
    name: str | None = None,
    accumulate: int = 1,
    training: bool | None = None,
) -> StepGraph:
    """One training step of a model: forward, input gradients, weight gradients and update.

    The step runs on the meta device: only shapes are computed, so a model that is larger than memory can be captured.
    The model itself is not changed: its structure is copied, its weights are not. Modules run in the mode (training or
    evaluation) that they are in.

    The second step is captured, because the first one also creates the optimizer's state. Views and allocations are not
    ops, but dependencies pass through them. A product's inputs begin with its two factors. Gradients are always written
    as E W^T and A^T E, even if autograd computed their transposes.

    Args:
        model: any module that can be trained by backpropagation.
        batch: the model's arguments: a tensor, a tuple of positional arguments, or a dict of keyword arguments. The
            tensors may be real or meta; only their shapes and types are used, except for integers and booleans: a model
            may branch on the values of masks and positions if they are real.
        targets: if given, passed to the loss after the model's output.
        loss: computes a scalar from the output; by default the mean of each floating-point output, summed.
        optimizer: creates an optimizer for the parameters; by default SGD with momentum. It always updates one
            parameter at a time (`foreach` and `fused` off), so that each update belongs to its layer.
        name: name of the graph; by default the model's class.
        accumulate: number of micro-batches; each has a forward and a backward pass, their gradients are added up, and
            one update follows.
        training: False for the forward pass alone, as in inference; by default, whether any parameter is trainable.

    Raises:
        ConfigError: the step needs values of tensors, with the file and line that asked for one.

    >>> graph = capture(nn.Linear(3, 2), torch.empty(5, 3))
    >>> [(op.phase, op.gemm) for op in graph.ops if op.gemm]
    [('forward', Gemm(m=5, k=3, n=2, count=1)), ('weight_grad', Gemm(m=3, k=5, n=2, count=1))]
    """
    if not isinstance(model, nn.Module):
        raise ConfigError(f"capture takes a torch.nn.Module, not {type(model).__name__}")
    if optimizer is not None and (isinstance(optimizer, Optimizer) or not callable(optimizer)):
        raise ConfigError(
            "optimizer must be a function that creates an optimizer for the parameters, such as "
            f"functools.partial(torch.optim.Adam, lr=1e-3), not {type(optimizer).__name__}"
        )
    is_trainable = any(parameter.requires_grad for parameter in model.parameters())
    if training and not is_trainable:
        raise ConfigError(
            f"{type(model).__name__} has no trainable parameter, so there is no training step to capture; "
            "training=False captures its forward pass"
        )
    training = is_trainable if training is None else training
    args, kwargs = _arguments(batch)
    label = type(model).__name__
    size = _batch_size((args, kwargs))
    if size == 0:
        raise ConfigError(f"the batch of {label} must have at least one example")
    if not 1 <= accumulate <= size:
        raise ConfigError(f"a batch of {size} examples cannot be split into {accumulate} micro-batches")
    # The caller's random numbers must not depend on whether a graph was captured.
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
        with _explained(f"capturing {label}"):
            replica = replicate_model(model)
            step = _Step(
                model=replica,
                args=replicate_tensors(args),
                kwargs=replicate_tensors(kwargs),
                targets=replicate_tensors(targets),
                loss=replicate_model(loss) if isinstance(loss, nn.Module) else loss,
                optimizer=_make_optimizer(optimizer or sgd, replica) if training else None,
                accumulate=accumulate,
            )
        recorder = CallRecorder(replica)
        record_module_ops(replica, recorder)
        originals = pytree.tree_leaves((args, kwargs, targets, list(model.buffers())))
        replicas = pytree.tree_leaves((step.args, step.kwargs, step.targets, list(replica.buffers())))
        for original, tensor in zip(originals, replicas, strict=True):
            if isinstance(original, Tensor):
                recorder.values.learn(tensor, original)
        with nullcontext() if training else torch.no_grad():
            return _capture(step, recorder, label, name or label)


def capture_workload(workload: Workload, batch_size: int | None = None) -> StepGraph:
    """One training step of a workload, at its own batch size or another.

    >>> from presilicon.workloads import load_workload
    >>> capture_workload(load_workload("digits-mlp"), batch_size=16).flops("forward", matrix_only=True)
    282624
    """
    size = workload.batch_size if batch_size is None else batch_size
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ConfigError(f"batch_size must be a whole number of at least 1, not {size!r}")
    loss, optimizer, name = workload.loss, workload.optimizer, workload.name
    with workload_errors():
        inputs, targets = workload.batch(size)
        with torch.random.fork_rng(devices=[]):
            model = _make_model(workload)
        return capture(
            model, inputs, targets=targets, loss=loss, optimizer=optimizer, name=name, accumulate=workload.accumulate
        )


def _make_model(workload: Workload) -> nn.Module:
    """The workload's model, on the meta device if possible, because initializing a large model takes long."""
    try:
        with torch.device("meta"):
            return workload.model()
    except (RuntimeError, NotImplementedError):
        return workload.model()


@dataclass(frozen=True, slots=True)
class _Step:
    """Model, batch, loss and optimizer of a training step, on the meta device."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    targets: Any
    loss: Callable[..., Tensor] | None
    optimizer: Optimizer | None
    """None for the forward pass alone."""
    accumulate: int = 1

    def micro_batches(self) -> Iterator[_Step]:
        """The step of each micro-batch: the same model with a part of the batch, as views of it."""
        size = _batch_size((self.args, self.kwargs))
        parts = [_split(leaf, size, self.accumulate) for leaf in (self.args, self.kwargs, self.targets)]
        for args, kwargs, targets in zip(*parts, strict=True):
            yield replace(self, args=args, kwargs=kwargs, targets=targets, accumulate=1)

    def share(self, whole: _Step) -> float:
        """The fraction of a batch's examples that are in this micro-batch."""
        return _batch_size((self.args, self.kwargs)) / _batch_size((whole.args, whole.kwargs))


def _split(values: Any, size: int, count: int) -> list[Any]:
    """Nested containers, with the examples of every tensor divided among `count` copies."""
    leaves, structure = pytree.tree_flatten(values)
    parts = [
        leaf.tensor_split(count) if isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == size else [leaf] * count
        for leaf in leaves
    ]
    return [pytree.tree_unflatten([part[index] for part in parts], structure) for index in range(count)]


def _make_optimizer(make: Callable[[Iterable[nn.Parameter]], Optimizer], model: nn.Module) -> Optimizer:
    optimizer = make(model.parameters())
    if not isinstance(optimizer, Optimizer):
        raise ConfigError(f"optimizer must return a torch.optim.Optimizer, not {type(optimizer).__name__}")
    check_optimizer(optimizer)
    for group in optimizer.param_groups:
        group.update({key: False for key in ("foreach", "fused") if key in group})
    return optimizer


def _capture(step: _Step, recorder: CallRecorder, label: str, name: str) -> StepGraph:
    parameters = [parameter for parameter in step.model.parameters() if parameter.requires_grad]
    with recorder, sdpa_kernel(SDPBackend.MATH):
        _run(step, recorder, label)
        if step.optimizer is not None:
            step.optimizer.zero_grad(set_to_none=True)
            check_optimizer(step.optimizer)
        recorder.recording = True
        _claim(step, recorder)
        _run(step, recorder, label)
    gradients = frozenset(
        recorder.storages.number(parameter.grad) for parameter in parameters if parameter.grad is not None
    )
    numbers = frozenset(recorder.storages.number(parameter) for parameter in step.model.parameters())
    return StepGraph(
        name=name,
        batch_size=_batch_size((step.args, step.kwargs)),
        micro_batches=step.accumulate,
        ops=assemble(recorder.record, numbers, gradients),
        parameters=tuple(
            TensorRef(recorder.storages.number(parameter), tuple(parameter.shape), "weight") for parameter in parameters
        ),
        state=tuple(
            TensorRef(recorder.storages.number(tensor), tuple(tensor.shape), "state")
            for parameter in step.model.parameters()
            for tensor in _state(step.optimizer, parameter)
        ),
        ends=ends_of(step.model),
    )


def _claim(step: _Step, recorder: CallRecorder) -> None:
    """Tell the recorder about every tensor that exists before the step."""
    owners = recorder.flows.owners
    for parameter in step.model.parameters():
        recorder.claim(parameter, "weight", owners[id(parameter)])
        recorder.accesses.note_existing(parameter)
    for buffer in step.model.buffers():
        recorder.claim(buffer, "state")
        recorder.claim_constant(buffer)
    for tensor in constants_of(step.model.modules()):
        recorder.claim_constant(tensor)
    for leaf in pytree.tree_leaves((step.args, step.kwargs, step.targets)):
        if isinstance(leaf, Tensor):
            recorder.claim(leaf, "activation")
            recorder.accesses.note_existing(leaf)
    for parameter in step.model.parameters():
        for tensor in _state(step.optimizer, parameter):
            recorder.claim(tensor, "state", owners[id(parameter)])
            recorder.accesses.note_existing(tensor)


def _run(step: _Step, recorder: CallRecorder, label: str) -> None:
    """Run one training step, keeping the recorder's stage up to date."""
    for part in step.micro_batches() if step.accumulate > 1 else [step]:
        _run_passes(part, part.share(step), recorder, label)
    if step.optimizer is None:
        return
    with _explained(f"the optimizer of {label}"):
        for parameter in step.model.parameters():
            if parameter.grad is not None:
                recorder.claim_gradient(parameter.grad, recorder.flows.owners[id(parameter)])
        recorder.stage = "update"
        step.optimizer.step()


def _run_passes(step: _Step, share: float, recorder: CallRecorder, label: str) -> None:
    """Forward and backward pass of a batch or micro-batch, whose loss counts by its share."""
    # Tensors that the model creates belong on its device; an optimizer's step counters must keep their values.
    with _explained(f"the forward pass of {label}"), torch.device("meta"), DeviceOps():
        recorder.stage = "forward"
        output = step.model(*step.args, **step.kwargs)
        if step.optimizer is None and step.loss is None:
            return
        loss = _scalar_loss(step, output)
        loss = loss if share == 1.0 else loss * share
    if step.optimizer is None:
        return
    with _explained(f"the backward pass of {label}"), torch.device("meta"):
        recorder.stage = "backward"
        recorder.flows.watch(loss)
        loss.backward()  # type: ignore[no-untyped-call]
        recorder.flows.unwatch()


def _scalar_loss(step: _Step, output: Any) -> Tensor:
    if step.loss is not None:
        loss = step.loss(output) if step.targets is None else step.loss(output, step.targets)
    else:
        loss = mean_of_outputs(output)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
        raise ConfigError(f"the loss must be a single number, not {shape}")
    if loss.grad_fn is None and step.optimizer is not None:
        raise ConfigError("the loss does not depend on any trainable parameter")
    return loss


def mean_of_outputs(output: Any) -> Tensor:
    """The default loss: the mean of each trainable output, summed.

    Raises:
        ConfigError: no output depends on a trainable parameter.
    """
    leaves = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor) and leaf.requires_grad]
    if not leaves:
        raise ConfigError(
            f"the model must return a trainable output, not a {type(output).__name__} without one; "
            "for the forward pass alone, as in inference, give training=False"
        )
    total = leaves[0].mean()
    for leaf in leaves[1:]:
        total = total + leaf.mean()
    return total


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn any exception of the user's code into an error that names file and line."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        where = _locate(error.__traceback__)
        intro = f"{where}: {what}" if where else what
        text = str(error).strip().partition("\n")[0].partition(". ")[0]
        if isinstance(error, DataDependentError) or any(words in text for words in _NO_VALUES):
            raise ConfigError(
                f"{intro} needs the values of tensors, but capture only knows shapes ({text}); "
                "decide by shapes or compute with torch.where, give masks and positions in the batch as real tensors, "
                "or capture each branch as a model of its own"
            ) from error
        raise ConfigError(f"{intro} failed: {type(error).__name__}: {text}") from error


_MACHINERY = (str(Path(torch.__file__).parent), str(Path(__file__).parent) + os.sep, "<frozen")


def _locate(trace: TracebackType | None) -> str:
    """File, line and text of the innermost frame outside torch and this package; empty if there is none."""
    location = ""
    for frame, line in traceback.walk_tb(trace):
        file = frame.f_code.co_filename
        if not file.startswith(_MACHINERY):
            text = linecache.getline(file, line).strip()
            location = f"{file}:{line}" + (f" (`{text}`)" if text else "")
    return location


_NO_VALUES = ("meta tensor", "Meta tensor", "meta device", "data-dependent", "data-independent")
"""Phrases in torch's errors for reading a value of a meta tensor, or a shape that depends on values."""


def _arguments(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(batch, Tensor):
        return (batch,), {}
    if isinstance(batch, dict):
        return (), dict(batch)
    if isinstance(batch, tuple):
        return tuple(batch), {}
    raise ConfigError(
        "batch must be a tensor, a tuple of positional arguments or a dict of keyword arguments, "
        f"not {type(batch).__name__}"
    )


def _batch_size(values: Any) -> int:
    tensors = [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]
    return int(tensors[0].shape[0]) if tensors and tensors[0].dim() else 1


def _state(optimizer: Optimizer | None, parameter: Tensor) -> list[Tensor]:
    """The optimizer's tensors for a parameter, without its counters on the host."""
    state = optimizer.state.get(parameter, {}) if optimizer else {}
    return [value for value in state.values() if isinstance(value, Tensor) and value.is_meta]
