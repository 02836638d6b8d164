"""Modules that are one operator: capture records a pass of theirs instead of what their Python calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from presilicon.ops import OpEntry, entry_of_module
from presilicon.workloads.capturing.layers import next_sequence_number
from presilicon.workloads.capturing.recorder import CallRecorder


def declare_wholes(model: nn.Module, recorder: CallRecorder) -> None:
    """Let each module of a replica that the op table has as one operator be recorded as one."""
    for module in model.modules():
        entry = entry_of_module(type(module))
        if entry is not None:
            module.forward = _recorded(module, module.forward, entry, recorder)


def _recorded(
    module: nn.Module, forward: Callable[..., Any], entry: OpEntry, recorder: CallRecorder
) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        structure: list[Any] = []

        def compute() -> list[Any]:
            with recorder.paused():
                leaves, found = pytree.tree_flatten(forward(*args, **kwargs))
            structure.append(found)
            return leaves

        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        leaves = _Whole.apply(recorder, entry, compute, *given, *module.parameters())  # type: ignore[no-untyped-call]
        return pytree.tree_unflatten(list(leaves), structure[0])

    return run


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, recorder: CallRecorder, entry: OpEntry, compute: Callable[[], list[Any]], *tensors: Tensor
    ) -> tuple[Any, ...]:
        assert entry.forward is not None
        following = next_sequence_number()  # its own node is there; what it computes may make others
        results = [torch.empty_like(leaf) if isinstance(leaf, Tensor) else leaf for leaf in compute()]
        ctx.recorder, ctx.entry = recorder, entry
        ctx.save_for_backward(*tensors)
        with torch.enable_grad():  # with gradients on, capture knows its node
            written = [leaf for leaf in results if isinstance(leaf, Tensor)]
            recorder.note_whole(entry.name, entry.forward, list(tensors), written, following)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *errors: Any) -> tuple[Any, ...]:
        entry: OpEntry = ctx.entry
        assert entry.backward is not None
        tensors = ctx.saved_tensors
        gradients = [
            torch.empty_like(tensor) if needed else None
            for tensor, needed in zip(tensors, ctx.needs_input_grad[3:], strict=True)
        ]
        read = [*(error for error in errors if isinstance(error, Tensor)), *tensors]
        written = [gradient for gradient in gradients if gradient is not None]
        ctx.recorder.note_whole(f"{entry.name}_backward", entry.backward, read, written)
        return None, None, None, *gradients
