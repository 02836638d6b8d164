"""Copies of models and batches on the meta device: structure and shapes, without values."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from presilicon.base import ConfigError

Anything = TypeVar("Anything")

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_EMULATION = "presilicon.emulation"


def replicate_tensor(tensor: Tensor) -> Tensor:
    """A meta tensor with the same shape, strides, type and `requires_grad`."""
    replica = torch.empty_like(tensor, device="meta", requires_grad=False)
    return replica.requires_grad_(tensor.requires_grad)


def replicate_tensors(value: Anything) -> Anything:
    """A copy of nested containers with every tensor on the meta device."""
    replica: Anything = pytree.tree_map(
        lambda leaf: replicate_tensor(leaf) if isinstance(leaf, Tensor) else leaf, value
    )
    return replica


def replicate_model(model: nn.Module) -> nn.Module:
    """The model on the meta device: modules are copied, weights are not, sharing is kept.

    Emulation's hooks are not copied, so that an emulated model is captured like the plain one.

    Raises:
        ConfigError: a lazy module does not know its shapes yet, or a part of the model cannot be copied.
    """
    # deepcopy does not copy what is in the memo, so the weights are never touched.
    memo: dict[int, Any] = {}
    for name, parameter in model.named_parameters():
        if isinstance(parameter, UninitializedParameter):
            raise ConfigError(f'parameter "{name}" has no shape yet; call the model once before capturing it')
        memo[id(parameter)] = nn.Parameter(
            torch.empty_like(parameter, device="meta", requires_grad=False), requires_grad=parameter.requires_grad
        )
    for buffer in model.buffers():
        memo[id(buffer)] = replicate_tensor(buffer)
    for module in model.modules():
        for attribute in _HOOKS:
            hooks = getattr(module, attribute)
            others = {key: hook for key, hook in hooks.items() if not _belongs_to_emulation(hook)}
            if len(others) < len(hooks):
                memo[id(hooks)] = type(hooks)(others)
    try:
        with _MetaCopies():
            return copy.deepcopy(model, memo)
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise ConfigError(
            f"{type(model).__name__} cannot be copied to the meta device: {error}; "
            "keep what cannot be copied (locks, open files, generators) out of the model"
        ) from error


class _MetaCopies(TorchFunctionMode):
    """A mode in which deep copies of plain tensors (neither parameters nor buffers) are meta tensors."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is Tensor.__deepcopy__:
            tensor, memo = args
            replica = memo.get(id(tensor))
            if replica is None:
                replica = memo[id(tensor)] = replicate_tensor(tensor)
            return replica
        return func(*args, **(kwargs or {}))


def _belongs_to_emulation(hook: object) -> bool:
    owner = getattr(hook, "__self__", hook)
    modules = (getattr(hook, "__module__", None), type(owner).__module__)
    return any(isinstance(module, str) and module.startswith(_EMULATION) for module in modules)
