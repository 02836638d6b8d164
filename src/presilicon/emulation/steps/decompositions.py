"""Vector ops written once as sequences of primitive steps.

Each function has the signature of the torch function of that name, after the steps. It returns NotImplemented for
arguments that it does not decompose; the op is then computed in float32 as a whole and its result converted.
"""

# ruff: noqa: D103 - a function without a docstring is the torch function of its name

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from presilicon.emulation.steps.primitives import Number, Steps, axes

Dims = int | Sequence[int] | None

# Element-wise


def add(s: Steps, input: Number, other: Number, *, alpha: float = 1) -> Tensor:
    return s.add(s.enter(input), s.enter(other) if alpha == 1 else s.mul(s.enter(other), alpha))


def sub(s: Steps, input: Number, other: Number, *, alpha: float = 1) -> Tensor:
    return s.sub(s.enter(input), s.enter(other) if alpha == 1 else s.mul(s.enter(other), alpha))


def rsub(s: Steps, input: Number, other: Number, *, alpha: float = 1) -> Tensor:
    return s.sub(s.enter(other), s.enter(input) if alpha == 1 else s.mul(s.enter(input), alpha))


def mul(s: Steps, input: Number, other: Number) -> Tensor:
    return s.mul(s.enter(input), s.enter(other))


def div(s: Steps, input: Number, other: Number, *, rounding_mode: str | None = None) -> Any:
    return NotImplemented if rounding_mode is not None else s.div(s.enter(input), s.enter(other))


def rdiv(s: Steps, input: Number, other: Number) -> Tensor:
    return s.div(s.enter(other), s.enter(input))


def neg(s: Steps, input: Tensor) -> Tensor:
    return s.neg(s.enter(input))


def exp(s: Steps, input: Tensor) -> Tensor:
    return s.exp(s.enter(input))


def log(s: Steps, input: Tensor) -> Tensor:
    return s.log(s.enter(input))


def sqrt(s: Steps, input: Tensor) -> Tensor:
    return s.sqrt(s.enter(input))


def rsqrt(s: Steps, input: Tensor) -> Tensor:
    return s.div(1.0, s.sqrt(s.enter(input)))


def reciprocal(s: Steps, input: Tensor) -> Tensor:
    return s.div(1.0, s.enter(input))


def square(s: Steps, input: Tensor) -> Tensor:
    return s.square(s.enter(input))


def absolute(s: Steps, input: Tensor) -> Tensor:
    first, second = s.fork(s.enter(input))
    return s.maximum(first, s.neg(second), halves=True)


def power(s: Steps, input: Tensor, exponent: Any) -> Any:
    roots: dict[float, Callable[[Steps, Tensor], Tensor]] = {2: square, 0.5: sqrt, -0.5: rsqrt, -1: reciprocal}
    chosen = roots.get(exponent) if isinstance(exponent, int | float) else None
    return NotImplemented if chosen is None or not isinstance(input, Tensor) else chosen(s, input)


def maximum(s: Steps, input: Tensor, other: Tensor) -> Tensor:
    return s.maximum(s.enter(input), s.enter(other), halves=True)


def minimum(s: Steps, input: Tensor, other: Tensor) -> Tensor:
    return s.minimum(s.enter(input), s.enter(other), halves=True)


def fmax(s: Steps, input: Tensor, other: Tensor) -> Tensor:
    return s.maximum(s.enter(input), s.enter(other))


def fmin(s: Steps, input: Tensor, other: Tensor) -> Tensor:
    return s.minimum(s.enter(input), s.enter(other))


def relu(s: Steps, input: Tensor) -> Tensor:
    return s.maximum(0.0, s.enter(input))


def clamp(s: Steps, input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    out = s.enter(input)
    out = out if min is None else s.maximum(out, s.enter(min))
    return out if max is None else s.minimum(out, s.enter(max))


def clamp_min(s: Steps, input: Tensor, min: Any) -> Tensor:
    return clamp(s, input, min)


def clamp_max(s: Steps, input: Tensor, max: Any) -> Tensor:
    return clamp(s, input, None, max)


def hardtanh(s: Steps, input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    return s.minimum(max_val, s.maximum(min_val, s.enter(input)))  # without a slope at its ends, unlike clamp


def relu6(s: Steps, input: Tensor) -> Tensor:
    return hardtanh(s, input, 0.0, 6.0)


def leaky_relu(s: Steps, input: Tensor, negative_slope: float = 0.01) -> Any:
    if not 0 <= negative_slope <= 1:
        return NotImplemented
    first, second = s.fork(s.enter(input))
    return s.maximum(s.mul(second, negative_slope), first)  # the slope at 0 is the negative one


def sigmoid(s: Steps, input: Tensor) -> Tensor:
    return s.div(1.0, s.add(1.0, s.exp(s.neg(s.enter(input)))))


def silu(s: Steps, input: Tensor) -> Tensor:
    first, second = s.fork(s.enter(input))
    return s.mul(first, sigmoid(s, second))


def addcmul(s: Steps, input: Tensor, tensor1: Number, tensor2: Number, *, value: float = 1) -> Tensor:
    product = mul(s, tensor1, tensor2)
    return s.add(s.enter(input), product if value == 1 else s.mul(product, value))


def addcdiv(s: Steps, input: Tensor, tensor1: Number, tensor2: Number, *, value: float = 1) -> Tensor:
    quotient = div(s, tensor1, tensor2)
    return s.add(s.enter(input), quotient if value == 1 else s.mul(quotient, value))


def lerp(s: Steps, input: Tensor, end: Tensor, weight: Number) -> Tensor:
    first, second = s.fork(s.enter(input))
    return s.add(first, s.mul(s.enter(weight), s.sub(s.enter(end), second)))


def dropout(s: Steps, input: Tensor, p: float = 0.5, training: bool = True) -> Any:
    """The input times the converted 1 / (1 - p), or 0, where torch's dropout would drop."""
    if not training or p == 0:
        return NotImplemented
    return s.mul(s.enter(input), s.enter(functional.dropout(torch.ones_like(input), p)))


# Reductions


def total(s: Steps, input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return NotImplemented if dtype is not None else _shape(s.total(s.enter(input), _listed(dim)), input, dim, keepdim)


def mean(s: Steps, input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return NotImplemented if dtype is not None else _shape(s.mean(s.enter(input), _listed(dim)), input, dim, keepdim)


def amax(s: Steps, input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    return _shape(s.extreme("maximum", s.enter(input), _listed(dim), shared=True)[0], input, dim, keepdim)


def amin(s: Steps, input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    return _shape(s.extreme("minimum", s.enter(input), _listed(dim), shared=True)[0], input, dim, keepdim)


def largest(s: Steps, input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    return _extreme(s, "maximum", torch.return_types.max, input, dim, keepdim)


def smallest(s: Steps, input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    return _extreme(s, "minimum", torch.return_types.min, input, dim, keepdim)


def _extreme(s: Steps, name: str, kind: Any, input: Tensor, dim: Any, keepdim: bool) -> Any:
    if isinstance(dim, Tensor):
        return s.step(name, s.enter(input), s.enter(dim), halves=True)
    values, indices = s.extreme(name, s.enter(input), _listed(dim), shared=dim is None)
    if dim is None:
        return values.reshape(())
    return kind((_shape(values, input, dim, keepdim), _shape(indices, input, dim, keepdim)))


def variance(
    s: Steps, input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None
) -> Tensor:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    correction = (1 if unbiased is None else int(unbiased)) if correction is None else correction
    chosen = axes(input, dim)
    count = math.prod(input.shape[axis] for axis in chosen)
    squares = s.square(_centred(s, s.enter(input), chosen))
    return _shape(s.mul(s.total(squares, chosen), 1 / max(count - correction, 1)), input, dim, keepdim)


def deviation(s: Steps, *args: Any, **kwargs: Any) -> Tensor:
    return _root(s, variance(s, *args, **kwargs))


def _root(s: Steps, squares: Tensor) -> Tensor:
    """The root of a sum of squares, with the slope 0 where that is 0, and not 0 / 0."""
    is_zero = squares == 0
    return s.sqrt(squares.masked_fill(is_zero, 1.0)).masked_fill(is_zero, 0.0)


def norm(s: Steps, input: Tensor, p: Any = "fro", dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if p not in ("fro", 2) or dtype is not None:
        return NotImplemented
    return _shape(_root(s, s.total(square(s, input), _listed(dim))), input, dim, keepdim)


def _listed(dim: Dims) -> Sequence[int] | None:
    return [dim] if isinstance(dim, int) else dim


def _shape(out: Tensor, input: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """A result without the reduced axes, unless they are kept."""
    return out if keepdim else out.reshape([size for k, size in enumerate(input.shape) if k not in axes(input, dim)])


# Softmax


def softmax(s: Steps, input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """exp(x - max) divided by its sum; the maximum is a constant for the gradient. A masked score (-inf) gives 0."""
    if dim is None or dtype is not None:
        return NotImplemented
    powers, again = s.fork(s.exp(_shifted(s, input, dim)).masked_fill(input == -math.inf, 0.0))
    return s.div(powers, s.total(again, [dim]))


def log_softmax(s: Steps, input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """x - max minus the logarithm of the sum of exp(x - max)."""
    if dim is None or dtype is not None:
        return NotImplemented
    shifted, again = s.fork(_shifted(s, input, dim))
    return s.sub(shifted, s.log(s.total(s.exp(again).masked_fill(input == -math.inf, 0.0), [dim])))


def logsumexp(s: Steps, input: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    x = s.enter(input)
    top = s.extreme("maximum", x.detach(), _listed(dim))[0]
    return _shape(s.add(s.log(s.total(s.exp(s.sub(x, top)), _listed(dim))), top), input, dim, keepdim)


def _shifted(s: Steps, input: Tensor, dim: int) -> Tensor:
    x = s.enter(input)
    return s.sub(x, s.extreme("maximum", x.detach(), [dim])[0])


# Normalization


def _centred(s: Steps, x: Tensor, dims: Sequence[int]) -> Tensor:
    first, second = s.fork(x)
    return s.sub(first, s.mean(second, dims))


def _normalized(s: Steps, x: Tensor, dims: Sequence[int], eps: float) -> tuple[Tensor, Tensor]:
    """(x - mean) / sqrt(mean square + eps) over some axes, and the mean square."""
    first, second = s.fork(_centred(s, x, dims))
    spread = s.mean(s.square(second), dims)
    return s.div(first, s.sqrt(s.add(spread, eps))), spread.detach()


def _affine(s: Steps, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else s.mul(x, s.enter(weight))
    return x if bias is None else s.add(x, s.enter(bias))


def layer_norm(
    s: Steps, input: Tensor, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    dims = range(input.dim() - len(normalized_shape), input.dim())
    return _affine(s, _normalized(s, s.enter(input), dims, eps)[0], weight, bias)


def rms_norm(
    s: Steps, input: Tensor, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> Tensor:
    dims = range(input.dim() - len(normalized_shape), input.dim())
    first, second = s.fork(s.enter(input))
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    return _affine(s, s.div(first, s.sqrt(s.add(s.mean(s.square(second), dims), eps))), weight, None)


def batch_norm(
    s: Steps,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Running averages are float32: they are no activations."""
    dims = [axis for axis in range(input.dim()) if axis != 1]
    x, column = s.enter(input), (1, -1, *(1,) * (input.dim() - 2))
    scale, shift = (None if part is None else part.view(column) for part in (weight, bias))
    if not training:
        if running_mean is None or running_var is None:
            return NotImplemented
        deviations = s.sqrt(s.add(s.enter(running_var.view(column)), eps))
        return _affine(s, s.div(s.sub(x, s.enter(running_mean.view(column))), deviations), scale, shift)
    first, second = s.fork(x)
    centre = s.mean(second, dims)
    out, again = s.fork(s.sub(first, centre))
    spread = s.mean(s.square(again), dims)
    if running_mean is not None and running_var is not None and momentum is not None:
        count = input.numel() // input.shape[1]
        running_mean.lerp_(centre.detach().view(-1), momentum)
        running_var.lerp_(spread.detach().view(-1) * (count / max(count - 1, 1)), momentum)
    return _affine(s, s.div(out, s.sqrt(s.add(spread, eps))), scale, shift)


def group_norm(
    s: Steps, input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, _: Any = None
) -> Tensor:
    groups = s.enter(input).reshape(input.shape[0], num_groups, -1)
    out = _normalized(s, groups, [2], eps)[0].reshape(input.shape)
    column = (1, -1, *(1,) * (input.dim() - 2))
    return _affine(s, out, *(None if part is None else part.view(column) for part in (weight, bias)))


# Pooling


def _pool(s: Steps, input: Tensor, kernel: Any, stride: Any, padding: Any, spatial: int, fill: float) -> Tensor:
    """The windows of each output as the last axis."""
    kernel, stride, padding = (
        (value,) * spatial if isinstance(value, int) else tuple(value) * (spatial // len(value))
        for value in (kernel, stride or kernel, padding)
    )
    x = functional.pad(input, [side for size in reversed(padding) for side in (size, size)], value=fill)
    first = x.dim() - spatial
    for axis in range(spatial):
        x = x.unfold(first + axis, kernel[axis], stride[axis])
    return s.enter(x.flatten(first + spatial))


def _max_pool(spatial: int) -> Callable[..., Tensor]:
    def max_pool(
        s: Steps, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False, return_indices: bool = False,
    ) -> Any:  # fmt: skip
        if ceil_mode or return_indices or dilation not in (1, (1,) * spatial, [1] * spatial):
            return NotImplemented
        windows = _pool(s, input, kernel_size, stride, padding, spatial, -math.inf)
        return s.extreme("maximum", windows, [-1])[0].squeeze(-1)

    return max_pool


def _avg_pool(spatial: int) -> Callable[..., Tensor]:
    def avg_pool(
        s: Steps, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Any:  # fmt: skip
        if ceil_mode or divisor_override is not None or (padding not in (0, (0,) * spatial) and not count_include_pad):
            return NotImplemented
        return s.mean(_pool(s, input, kernel_size, stride, padding, spatial, 0.0), [-1]).squeeze(-1)

    return avg_pool


def _adaptive(spatial: int, reduce: str) -> Callable[..., Tensor]:
    def adaptive(s: Steps, input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        sizes = input.shape[input.dim() - spatial :]
        wanted = (output_size,) * spatial if isinstance(output_size, int) else tuple(output_size)
        wanted = tuple(size if want is None else want for size, want in zip(sizes, wanted, strict=True))
        if return_indices or any(size % want for size, want in zip(sizes, wanted, strict=True)):
            return NotImplemented
        kernel = [size // want for size, want in zip(sizes, wanted, strict=True)]
        windows = _pool(s, input, kernel, kernel, 0, spatial, 0.0)
        return (s.mean(windows, [-1]) if reduce == "mean" else s.extreme("maximum", windows, [-1])[0]).squeeze(-1)

    return adaptive


# Losses


def nll_loss(
    s: Steps, input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None,
    ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    """The negated scores of the targets; their mean divides by the converted number of targets, or sum of weights."""
    if size_average is not None or reduce is not None:
        return NotImplemented
    axis = 1 if input.dim() > 1 else 0
    used = target != ignore_index
    chosen = torch.where(used, target, 0).unsqueeze(axis)
    losses = s.neg(s.enter(input).gather(axis, chosen).squeeze(axis))
    shares = None if weight is None else s.enter(weight)[chosen.squeeze(axis)].masked_fill(~used, 0.0)
    losses = (losses if shares is None else s.mul(losses, shares)).masked_fill(~used, 0.0)
    if reduction == "none":
        return losses
    whole = s.total(losses).reshape(())
    if reduction == "sum":
        return whole
    if shares is not None:
        return s.div(whole, s.total(shares).reshape(()))
    return s.mul(whole, s.enter(1 / used.sum().to(input.dtype)))


def l1_loss(s: Steps, input: Tensor, target: Tensor, *args: Any, reduction: str = "mean", **_: Any) -> Any:
    if args:
        return NotImplemented
    return _reduced(s, absolute(s, sub(s, input, target)), reduction)


def _reduced(s: Steps, losses: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return losses
    return (s.mean(losses) if reduction == "mean" else s.total(losses)).reshape(())


@cache
def decompositions() -> Mapping[str, Callable[..., Any]]:
    """The decomposition of each vector op that has one, by the name of the op."""
    named: dict[str, Callable[..., Any]] = {
        "subtract": sub, "multiply": mul, "divide": div, "true_divide": div, "negative": neg, "abs": absolute,
        "pow": power, "__pow__": power, "__radd__": add, "__rsub__": rsub, "__rmul__": mul, "__rdiv__": rdiv,
        "__rtruediv__": rdiv, "clip": clamp, "sum": total, "max": largest,
        "min": smallest, "var": variance, "std": deviation,
    }  # fmt: skip
    same: list[Any] = [
        add, sub, rsub, mul, div, neg, exp, log, sqrt, rsqrt, reciprocal, square, maximum, minimum, fmax, fmin, relu,
        relu6, clamp, clamp_min, clamp_max, hardtanh, leaky_relu, sigmoid, silu, addcmul, addcdiv, lerp, dropout, mean,
        amax, amin, norm, softmax, log_softmax, logsumexp, layer_norm, rms_norm, batch_norm, group_norm, nll_loss,
        l1_loss,
    ]  # fmt: skip
    pools: dict[str, Callable[..., Any]] = {}
    for spatial in (1, 2, 3):
        pools[f"max_pool{spatial}d"] = _max_pool(spatial)
        pools[f"avg_pool{spatial}d"] = _avg_pool(spatial)
        pools[f"adaptive_avg_pool{spatial}d"] = _adaptive(spatial, "mean")
        pools[f"adaptive_max_pool{spatial}d"] = _adaptive(spatial, "max")
    return {function.__name__: function for function in same} | named | pools
