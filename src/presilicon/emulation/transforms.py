"""Derivatives that emulation does not have: transforms of torch.func, forward mode, second derivatives.

Rounding works on the memory of whole tensors, and an emulated product has one backward pass, which is emulated too. All
else would compute other numbers than the hardware, so it is refused where it reaches an emulated op.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree

from presilicon.base import ConfigError

_HINTS = {
    "Vmap": "use a loop over the samples in place of torch.vmap",
    "Jvp": "use backward() in place of torch.func.jvp and jacfwd",
    "Grad": "use torch.autograd.grad or backward() in place of torch.func.grad, vjp and jacrev",
}


def refuse_transforms(layer: str, func: Callable[..., Any], values: Iterable[Any]) -> None:
    """Check that an emulated function is not run by a transform of torch.func or differentiated in forward mode.

    Raises:
        ConfigError: it is; the message names function, layer, transform and a way around it.
    """
    is_transformed = torch._C._functorch.peek_interpreter_stack() is not None
    is_forward_mode = int(forward_ad._current_level) >= 0
    if not (is_transformed or is_forward_mode):
        return
    tensors = [leaf for leaf in pytree.tree_leaves(list(values)) if _is_number(leaf)]
    if is_transformed and tensors:
        names = [entry.key().name for entry in torch._C._functorch.get_interpreter_stack() or ()]
        where = f"torch.func ({', '.join(name.lower() for name in names)})"
        hint = next((hint for name, hint in _HINTS.items() if name in names), "leave the transform out")
    elif is_forward_mode and any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        where, hint = "forward-mode differentiation", "use backward()"
    else:
        return
    raise ConfigError(
        f'layer "{layer}": {func.__name__} is emulated and cannot be transformed by {where}; {hint}, '
        "or compute it unrounded inside presilicon.exact()"
    )


def refuse_tracing() -> None:
    """Check that an emulated model is not being exported or traced, which would keep its operators without roundings.

    Raises:
        ConfigError: it is.
    """
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        raise ConfigError(
            "an emulated model cannot be exported or traced (torch.export, torch.onnx, torch.jit): the result would "
            "not round; export restore_(copy.deepcopy(model))"
        )


def has_gathered_parameters(model: nn.Module) -> bool:
    """Whether FSDP2 gathers distributed parameters of this model before its layers run."""
    if not is_distributed():
        return False
    from torch.distributed.fsdp import FSDPModule

    return any(isinstance(module, FSDPModule) for module in model.modules())


def refuse_distributed(layer: str, module: nn.Module) -> None:
    """Check that no parameter of a running layer is divided over processes, as tensor parallelism divides it.

    FSDP2 gathers its parameters before the layer runs.

    Raises:
        ConfigError: a parameter is a distributed tensor.
    """
    if not is_distributed():
        return
    for name, parameter in module._parameters.items():
        if parameter is not None and hasattr(parameter, "device_mesh"):
            raise ConfigError(
                f'layer "{layer}": {name} is a distributed tensor (tensor parallelism), which is not emulated; '
                "train with DDP or FSDP"
            )


def is_distributed() -> bool:
    """Whether this process trains together with others."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def refuse_second_derivative(error: Tensor) -> None:
    """Check, in a backward pass, that it is not being differentiated, and that it takes one error, not a batch.

    Raises:
        RuntimeError: it is, and rounding has no derivative, or the error is a batch of errors.
    """
    if torch.is_grad_enabled():
        raise RuntimeError("an emulated backward pass cannot be differentiated again (create_graph=True)")
    functorch: Any = torch._C._functorch
    if functorch.is_legacy_batchedtensor(error) or functorch.is_functorch_wrapped_tensor(error):
        raise RuntimeError(
            "an emulated backward pass takes one error at a time, not a batch of them (vectorize=True, "
            "is_grads_batched=True, torch.vmap)"
        )
