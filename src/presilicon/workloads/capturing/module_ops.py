"""Modules that are one operator: capture records a pass of theirs instead of what their Python calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations
from torch.utils import _pytree as pytree

from presilicon.base import ConfigError
from presilicon.ops import OpEntry, entry_of_module
from presilicon.workloads.capturing.layers import next_sequence_number
from presilicon.workloads.capturing.recorder import CallRecorder


def record_module_ops(model: nn.Module, recorder: CallRecorder) -> None:
    """Let each module of a replica that the op table has as one operator be recorded as one.

    Raises:
        ConfigError: an entry of a module has no cost for one of its passes.
    """
    for module in model.modules():
        entry = entry_of_module(type_before_parametrizations(module))
        if entry is not None and (entry.forward is None or entry.backward is None):
            missing = "forward" if entry.forward is None else "backward"
            raise ConfigError(
                f"the op {entry.name} has no {missing} pass, but is declared for the module {type(module).__name__}; "
                "make its entry by `module_op`"
            )
        if entry is not None:
            module.forward = _recorded(module, module.forward, entry, recorder)


def _recorded(
    module: nn.Module, forward: Callable[..., Any], entry: OpEntry, recorder: CallRecorder
) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        structure: list[Any] = []
        has_gradients = torch.is_grad_enabled()

        def compute() -> list[Any]:
            with torch.set_grad_enabled(has_gradients):  # which tells what the module detaches
                leaves, found = pytree.tree_flatten(forward(*args, **kwargs))
            structure.append(found)
            return leaves

        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        leaves = _ModuleOp.apply(recorder, entry, compute, *given, *module.parameters())  # type: ignore[no-untyped-call]
        return pytree.tree_unflatten(list(leaves), structure[0])

    return run


class _ModuleOp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, recorder: CallRecorder, entry: OpEntry, compute: Callable[[], list[Any]], *tensors: Tensor
    ) -> tuple[Any, ...]:
        following = next_sequence_number()  # its own node is there; what it computes may make others
        with recorder.paused():
            leaves = compute()
            results = [torch.empty_like(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        detached = [isinstance(leaf, Tensor) and not leaf.requires_grad for leaf in leaves]
        ctx.mark_non_differentiable(*(result for result, is_cut in zip(results, detached, strict=True) if is_cut))
        ctx.set_materialize_grads(False)  # a result that nothing reads has no error
        ctx.recorder, ctx.entry = recorder, entry
        ctx.save_for_backward(*tensors)
        with torch.enable_grad():  # with gradients on, capture knows its node
            written = [leaf for leaf in results if isinstance(leaf, Tensor)]
            recorder.note_module_op(entry, list(tensors), written, following=following)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *errors: Any) -> tuple[Any, ...]:
        tensors = ctx.saved_tensors
        gradients = [
            torch.empty_like(tensor) if needed else None
            for tensor, needed in zip(tensors, ctx.needs_input_grad[3:], strict=True)
        ]
        read = [*(error for error in errors if isinstance(error, Tensor)), *tensors]
        written = [gradient for gradient in gradients if gradient is not None]
        ctx.recorder.note_module_op(ctx.entry, read, written, is_gradient=True)
        return None, None, None, *gradients
