"""Functions that the CPU computes by other ops than an accelerator does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_HAS_RMS_NORM = hasattr(torch.ops.aten, "_fused_rms_norm_backward")  # not in older versions


class DeviceOps(TorchFunctionMode):
    """A mode in which functions are computed by the ops that an accelerator has.

    Dropout and RMS normalization are one op each, as on a GPU: no mask, its scaling and a product, and no squares,
    their mean and its root. A bilinear form is two matrix products, the same ones as in emulation.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        compute = _FUNCTIONS.get(func)
        result = NotImplemented if compute is None else compute(*args, **kwargs or {})
        return func(*args, **kwargs or {}) if result is NotImplemented else result


def _drop(*args: Any, **kwargs: Any) -> Any:
    given = inspect.signature(functional.dropout).bind(*args, **kwargs).arguments
    share = given.get("p", 0.5)
    if not given.get("training", True) or not 0 < share < 1 or given.get("inplace", False):
        return NotImplemented
    return torch.native_dropout(given["input"], share, True)[0]


def _bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The weights times the second operand, in the order in which they lie, and the results times the first one."""
    flat = functional.linear(input2, weight.flatten(0, 1))
    rows = flat.reshape(*flat.shape[:-1], *weight.shape[:2])
    result = torch.matmul(rows, input1.unsqueeze(-1)).squeeze(-1)
    return result if bias is None else result + bias


def _normalize(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Any:
    is_plain = input.is_floating_point() and input.dim() >= len(normalized_shape)
    is_plain &= weight is None or (weight.dtype == input.dtype and weight.shape == torch.Size(normalized_shape))
    is_plain &= torch._C._functorch.peek_interpreter_stack() is None
    if not is_plain:
        return NotImplemented
    return _RmsNorm.apply(input, list(normalized_shape), weight, eps)  # type: ignore[no-untyped-call]


class _RmsNorm(torch.autograd.Function):
    """RMS normalization as one op forward and one backward, whose gradients torch only has in parts."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, shape: list[int], weight: Tensor | None, eps: float | None) -> Any:
        # Below autograd, dispatch modes see the op and not its parts; with gradients on, capture knows its node.
        with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
            result, roots = torch.ops.aten._fused_rms_norm(input, shape, weight, eps)
        ctx.save_for_backward(input, weight, roots)
        ctx.shape, ctx.eps = shape, eps
        return result

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> tuple[Tensor | None, None, Tensor | None, None]:
        input, weight, roots = ctx.saved_tensors
        if torch.is_grad_enabled():  # this gradient is differentiated too, which needs its parts
            wanted = [tensor for tensor in (input, weight) if tensor is not None and tensor.requires_grad]
            result = torch.ops.aten.rms_norm(input, ctx.shape, weight, ctx.eps)
            found = dict(
                zip(map(id, wanted), torch.autograd.grad(result, wanted, error, create_graph=True), strict=True)
            )
            return found.get(id(input)), None, found.get(id(weight)), None
        needed = [ctx.needs_input_grad[0], ctx.needs_input_grad[2]]
        with torch._C._AutoDispatchBelowAutograd():
            of_input, of_weight = torch.ops.aten._fused_rms_norm_backward(
                error, input, ctx.shape, roots, weight, needed
            )
        return of_input if needed[0] else None, None, of_weight if needed[1] else None, None


_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    functional.dropout: _drop,
    functional.bilinear: _bilinear,
    torch.bilinear: _bilinear,
}
"""Ways to compute functions; one that returns `NotImplemented` leaves a call to torch."""
if _HAS_RMS_NORM:
    _FUNCTIONS |= {functional.rms_norm: _normalize, torch.rms_norm: _normalize}
