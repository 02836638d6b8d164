"""Decompositions of torch functions around a replaceable function: softmax, norms, gelu, silu."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

Inner = Callable[[Tensor], Tensor]


class Composite(NamedTuple):
    """A decomposition of a torch function around a replaceable one."""

    part: str
    """Name of the function inside that an operator can replace."""
    compute: Callable[..., Any]
    """Takes the torch function, the replacement of the inner function, and the arguments."""


def _softmax_parts(exp: Inner, x: Tensor, dim: int, dtype: torch.dtype | None) -> tuple[Tensor, Tensor, Tensor]:
    """The input minus its maximum, the exponentials of that, and their sum.

    Masked elements (minus infinity) have weight 0, whatever the operator returns for them.
    """
    x = x if dtype is None else x.to(dtype)
    shifted = x - x.detach().amax(dim, keepdim=True)
    weights = exp(shifted).masked_fill(shifted == -math.inf, 0.0)
    return shifted, weights, weights.sum(dim, keepdim=True)


def softmax_axis(x: Tensor, dim: int | None) -> int:
    """The axis of a softmax: `dim`, or torch's default for it."""
    return dim if dim is not None else (0 if x.dim() in (0, 1, 3) else 1)


def _softmax(func: Any, exp: Inner, input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    dtype = _stacklevel if isinstance(_stacklevel, torch.dtype) else dtype  # torch.softmax(input, dim, dtype)
    _, weights, total = _softmax_parts(exp, input, softmax_axis(input, dim), dtype)
    return weights / total


def _softmin(func: Any, exp: Inner, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return _softmax(func, exp, -input, *args, **kwargs)


def _log_softmax(
    func: Any, exp: Inner, input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    dtype = _stacklevel if isinstance(_stacklevel, torch.dtype) else dtype
    shifted, _, total = _softmax_parts(exp, input, softmax_axis(input, dim), dtype)
    return shifted - total.log()


def _gelu(func: Any, tanh: Inner, input: Tensor, approximate: str = "none") -> Tensor:
    if approximate != "tanh":
        return functional.gelu(input, approximate=approximate)
    inner = math.sqrt(2 / math.pi) * (input + 0.044715 * input**3)
    return 0.5 * input * (1 + tanh(inner))


def _silu(func: Any, sigmoid: Inner, input: Tensor, inplace: bool = False) -> Tensor:
    x = input.clone() if inplace or func.__name__.endswith("_") else input
    out = x * sigmoid(x)
    return out if x is input else input.copy_(out)


def _mish(func: Any, tanh: Inner, input: Tensor, inplace: bool = False) -> Tensor:
    x = input.clone() if inplace or func.__name__.endswith("_") else input
    out = x * tanh(functional.softplus(x))
    return out if x is input else input.copy_(out)


def _glu(func: Any, sigmoid: Inner, input: Tensor, dim: int = -1) -> Tensor:
    a, b = input.chunk(2, dim)
    return a * sigmoid(b)


def _tanhshrink(func: Any, tanh: Inner, input: Tensor) -> Tensor:
    return input - tanh(input)


def _layer_norm(
    func: Any,
    rsqrt: Inner,
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *others: Any,
    **more: Any,
) -> Tensor:
    axes = tuple(range(-len(tuple(normalized_shape)), 0))
    centred = input - input.mean(axes, keepdim=True)
    out = centred * rsqrt(centred.square().mean(axes, keepdim=True) + eps)
    return _affine(out, weight, bias)


def _rms_norm(
    func: Any,
    rsqrt: Inner,
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    axes = tuple(range(-len(tuple(normalized_shape)), 0))
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    return _affine(input * rsqrt(input.square().mean(axes, keepdim=True) + eps), weight, None)


def _group_norm(
    func: Any,
    rsqrt: Inner,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *others: Any,
) -> Tensor:
    grouped = input.reshape(input.shape[0], num_groups, -1)
    out = _layer_norm(func, rsqrt, grouped, grouped.shape[-1:], eps=eps).view(input.shape)
    return _affine(out, _by_channel(weight, input), _by_channel(bias, input))


def _batch_norm(func: Any, rsqrt: Inner, *args: Any, **kwargs: Any) -> Tensor:
    arguments = _norm_arguments(func is torch.batch_norm, "training", args) | kwargs
    return _over_batch(rsqrt, arguments, arguments.get("training", False), per_example=False)


def _instance_norm(func: Any, rsqrt: Inner, *args: Any, **kwargs: Any) -> Tensor:
    arguments = _norm_arguments(func is torch.instance_norm, "use_input_stats", args) | kwargs
    return _over_batch(rsqrt, arguments, arguments.get("use_input_stats", True), per_example=True)


def _norm_arguments(weights_first: bool, switch: str, args: Sequence[Any]) -> dict[str, Any]:
    """Positional arguments by name; the functions of `torch` have the weights first, those of `functional` do not."""
    weights, running = ("weight", "bias"), ("running_mean", "running_var")
    middle = (*weights, *running) if weights_first else (*running, *weights)
    return dict(zip(("input", *middle, switch, "momentum", "eps"), args, strict=False))


def _over_batch(rsqrt: Inner, arguments: dict[str, Any], fresh: bool, *, per_example: bool) -> Tensor:
    """Normalization by statistics per channel, over the batch or per example, or by the running statistics."""
    x: Tensor = arguments["input"]
    running_mean, running_var = arguments.get("running_mean"), arguments.get("running_var")
    if fresh or running_mean is None or running_var is None:
        axes = tuple(axis for axis in range(x.dim()) if axis != 1 and not (axis == 0 and per_example))
        var, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
        if fresh and running_mean is not None and running_var is not None:
            _update(running_mean, running_var, x, axes, arguments.get("momentum", 0.1))
    else:
        mean, var = _by_channel(running_mean, x), _by_channel(running_var, x)
    out = (x - mean) * rsqrt(var + arguments.get("eps", 1e-5))
    return _affine(out, _by_channel(arguments.get("weight"), x), _by_channel(arguments.get("bias"), x))


@torch.no_grad()
def _update(
    running_mean: Tensor, running_var: Tensor, x: Tensor, axes: tuple[int, ...], momentum: float | None
) -> None:
    var, mean = torch.var_mean(x, axes, correction=1)
    if mean.dim() > 1:  # per example: average them
        var, mean = var.mean(0), mean.mean(0)
    share = 0.0 if momentum is None else momentum
    running_mean.lerp_(mean, share)
    running_var.lerp_(var, share)


def _by_channel(values: Any, like: Tensor) -> Any:
    return None if values is None else values.view(1, -1, *(1,) * (like.dim() - 2))


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


COMPOSITES: dict[str, Composite] = {
    "softmax": Composite("softmax.exp", _softmax),
    "softmin": Composite("softmax.exp", _softmin),
    "log_softmax": Composite("softmax.exp", _log_softmax),
    "gelu": Composite("tanh", _gelu),
    "mish": Composite("tanh", _mish),
    "tanhshrink": Composite("tanh", _tanhshrink),
    "silu": Composite("sigmoid", _silu),
    "glu": Composite("sigmoid", _glu),
    "layer_norm": Composite("rsqrt", _layer_norm),
    "rms_norm": Composite("rsqrt", _rms_norm),
    "group_norm": Composite("rsqrt", _group_norm),
    "batch_norm": Composite("rsqrt", _batch_norm),
    "instance_norm": Composite("rsqrt", _instance_norm),
}
"""Decompositions by the name of the vector op."""
