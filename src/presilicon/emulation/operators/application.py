"""Application of operators to tensors, in autograd."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional
from torch.utils._python_dispatch import _get_current_dispatch_mode

from presilicon.base import ConfigError
from presilicon.emulation.operators.torch_execution import run_torch
from presilicon.emulation.ops.autograd import first_derivative
from presilicon.formats import Format, has_numba
from presilicon.operators import Operator, Program

EXACT_TENSOR: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "softplus": functional.softplus,
    "erf": torch.erf,
    "exp": torch.exp,
    "softmax.exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "sin": torch.sin,
    "cos": torch.cos,
}
"""Torch's own function for each name that an operator can replace."""


def apply_operator(operator: Operator, x: Tensor) -> Tensor:
    """`operator` of every element, with the backward pass that the operator defines.

    float32 and float64 tensors are computed in their own type, narrower ones in float32. The derivative is computed and
    saved with the result; the backward pass multiplies the error by it.

    Raises:
        ConfigError: `x` is not a floating-point tensor.

    >>> from presilicon.operators import piecewise_linear
    >>> x = torch.tensor([-9.0, 0.5], requires_grad=True)
    >>> apply_operator(piecewise_linear("tanh", -4, 4, 8), x).sum().backward()
    >>> x.grad
    tensor([0.0000, 0.7616])
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = str(x.dtype) if isinstance(x, Tensor) else type(x).__name__
        raise ConfigError(f"{operator.name} takes a floating-point tensor, not {kind}")
    out: Tensor = _Applied.apply(x, operator)
    return out


def run(program: Program, x: Tensor, fmt: Format | None = None) -> list[Tensor]:
    """The results of a program, by the fastest available execution: Numba on the CPU, torch elsewhere.

    Under a dispatch mode, such as coverage, torch computes them, so that the mode sees the ops.
    """
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    plain = fmt is None and x.device.type == "cpu" and has_numba() and _get_current_dispatch_mode() is None
    if plain and not torch._C._functorch.peek_interpreter_stack():
        from presilicon.emulation.operators.numba_execution import run_numba

        results = run_numba(program, wide)
    else:
        results = run_torch(program, wide, fmt)
    return results if wide is x else [result.to(x.dtype) for result in results]


class _Applied(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, operator: Operator) -> Tensor:
        if not ctx.needs_input_grad[0]:
            return run(operator.program, x, operator.format)[0]
        if operator.backward == "derived":
            value, slope = run(operator.both, x, operator.format)
            ctx.save_for_backward(slope)
            return value
        value = run(operator.program, x, operator.format)[0]
        if operator.backward == "exact":
            ctx.save_for_backward(_exact_slope(operator.replaces, x))
        return value

    @staticmethod
    @first_derivative
    def backward(ctx: Any, error: Tensor) -> tuple[Tensor, None]:
        saved = ctx.saved_tensors  # read once, because activation checkpointing recomputes at every read
        return (error * saved[0] if saved else error), None


def _exact_slope(name: str, x: Tensor) -> Tensor:
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(EXACT_TENSOR[name](leaf).sum(), leaf)
    return slope
