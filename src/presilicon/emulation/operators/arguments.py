"""Arguments of torch's functions as those of the operators that replace them.

Operands go by position, among the tensors of torch's call; constants go by name (`stride`, `eps`, `kernel_size`, ...).
An argument that the operator does not have must be torch's default. Softmax and norms are moved to the last axis, and
a bias or an affine part that the operator has no operand for is applied to its result.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from presilicon.base import ConfigError
from presilicon.ops import Operator, arguments_of, entry_named, entry_of_function, softmax_axis

_IGNORED = frozenset(
    [
        "dim",
        "normalized_shape",
        "inplace",
        "out",
        "_stacklevel",
        "training",
        "momentum",
        "running_mean",
        "running_var",
        "size_average",
        "reduce",
    ]
)
"""Arguments that do not reach an operator: handled here, or without a meaning for it."""


def function_name(name: str) -> tuple[str, bool]:
    """The name under which an operator replaces a function, and whether its two arguments are exchanged."""
    entry = entry_of_function(name)
    if entry is None:
        return name, False
    return (entry.swaps, True) if entry.swaps else (entry.name, False)


def _signature(name: str) -> str:
    entry = entry_named(name)
    return entry.signature if entry is not None and entry.signature else "input other inplace=False"


def call_replaced(operator: Operator, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Any:
    """The operator instead of torch's function, on the same arguments.

    Raises:
        ConfigError: an argument has no counterpart.
    """
    own, is_swapped = function_name(name)
    spelled = func.__name__
    target = None
    if (spelled.endswith("_") and not spelled.endswith("__")) or kwargs.get("inplace"):
        target, args = args[0], (args[0].clone(), *args[1:])  # the derivative is computed from the old values
    entry = entry_named(own)
    in_order, named = (args, kwargs) if entry is None else arguments_of(entry, func, tuple(args), kwargs)
    bound = _bind(own, in_order[::-1] if is_swapped else in_order, named)
    over_batch = entry is not None and entry.forward is not None and entry.forward.statistics == "batch"
    if over_batch and not bound.get("training"):
        return func(*args, **kwargs)  # stored statistics are an affine function, not a reduction
    result = _call(operator, own, bound)
    if over_batch and bound.get("running_mean") is not None:
        _update_statistics(bound)
    if operator.backward == "exact":
        result = _Swapped.apply(func(*args, **kwargs), result.detach())
    target = bound.get("out") if target is None else target
    return result if target is None else target.copy_(result)


def _bind(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Torch's arguments by name."""
    words = [word.partition("=")[0] for word in _signature(name).split()]
    renamed = {
        {"self": "input", "mat2": "other", "tensor": "other"}.get(key, key): value for key, value in kwargs.items()
    }
    return dict(zip(words, args, strict=False)) | renamed


def _call(operator: Operator, name: str, bound: dict[str, Any]) -> Tensor:
    x = bound[next(iter(bound))]
    after: list[Callable[[Tensor], Tensor]] = []
    words = [word.partition("=")[0] for word in _signature(name).split()]
    if "dim" in words:
        dim = softmax_axis(x, bound.get("dim"))
        if bound.get("dtype") is not None:
            x = x.to(bound["dtype"])
        bound = bound | {"input": x.movedim(dim, -1)}
        after.append(lambda out: out.movedim(-1, dim))
    elif "normalized_shape" in words:
        shape = bound["normalized_shape"]
        count = len(shape) if isinstance(shape, list | tuple | torch.Size) else 1
        flat = {key: bound[key].reshape(-1) for key in ("weight", "bias") if isinstance(bound.get(key), Tensor)}
        bound = bound | flat | {"input": x.flatten(x.dim() - count)}
        after.append(lambda out: out.reshape(x.shape))
    elif "kernel_size" in words and bound.get("stride") in (None, [], ()):
        bound = bound | {"stride": bound["kernel_size"]}
    first = bound[next(iter(bound))]
    axes = next(iter(operator.operands.values()))
    if isinstance(first, Tensor) and axes[:1] and axes[0].name != "_" and len(axes) == 2 and first.dim() > 2:
        leading = first.shape[:-1]  # "r n": all rows
        bound = bound | {next(iter(bound)): first.flatten(0, -2)}
        after.insert(0, lambda out: out.reshape(leading + out.shape[1:]))
    tensors = {key: value for key, value in bound.items() if _is_operand(operator, key, value)}
    operands, rest = _operands(operator, tensors, first)
    # A gain comes before its bias, in whatever order the arguments were named.
    after = [*(_affine(operator, name, key, bound[key]) for key in sorted(rest, reverse=True)), *after]
    result: Tensor = operator(*operands, **_constants(operator, name, bound))
    for finish in after:
        result = finish(result)
    return result


def _is_operand(operator: Operator, key: str, value: Any) -> bool:
    is_number = key in ("input", "other") and isinstance(value, int | float) and not isinstance(value, bool)
    return (isinstance(value, Tensor) or is_number) and key not in _IGNORED and key not in operator.constants


def _operands(operator: Operator, tensors: Mapping[str, Any], first: Any) -> tuple[list[Any], list[str]]:
    """The operator's operands, and the tensors that are left."""
    wanted = list(operator.operands)
    if set(wanted) <= tensors.keys():
        return [tensors[name] for name in wanted], [name for name in tensors if name not in wanted]
    values = list(tensors.values())[: len(wanted)]
    for name in wanted[len(values) :]:  # a missing weight is 1, a missing bias is 0
        fill = torch.zeros if "bias" in name or (name == wanted[-1] and len(wanted) > 2) else torch.ones
        size = tensors["weight"].shape[0] if "weight" in tensors else first.shape[-1]
        values.append(fill(size, dtype=first.dtype, device=first.device))
    return values, list(tensors)[len(wanted) :]


def _is_norm(name: str) -> bool:
    entry = entry_named(name)
    return entry is not None and entry.forward is not None and entry.forward.kind == "normalization"


def _affine(operator: Operator, name: str, key: str, value: Tensor) -> Callable[[Tensor], Tensor]:
    """The part of a function that follows its operator: a bias, or the gain of a norm."""
    if key == "bias" or (key == "weight" and _is_norm(name)):
        entry = entry_named(name)
        channels = entry is not None and entry.by_channel

        def finish(out: Tensor) -> Tensor:
            shaped = value.view(-1, *(1,) * (out.dim() - 2)) if channels else value
            return out + shaped if key == "bias" else out * shaped

        return finish
    raise ConfigError(f"{operator.where} replaces {name}, but has no operand for its {key}")


def _plain(value: Any) -> Any:
    """One number where all of several are equal."""
    return value[0] if isinstance(value, list | tuple) and len(set(value)) == 1 else value


def _constants(operator: Operator, name: str, bound: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {}
    for word in _signature(name).split():
        key, _, default = word.partition("=")
        if default:
            defaults[key] = default
    given = {}
    for key, value in bound.items():
        if key in operator.constants and value is not None:
            given[key] = value
        elif key in defaults and not isinstance(value, Tensor) and key not in (*_IGNORED, *operator.operands):
            plain = _plain(value)
            is_default = repr(plain) == defaults[key] or plain is None
            if key == "stride" and defaults[key] == "None":  # a window's own size
                is_default = is_default or plain == _plain(bound.get("kernel_size"))
            if not is_default and not (key == "eps" and "eps" not in operator.constants):
                is_number = isinstance(plain, int | float | list | tuple)
                advice = f"give it one, as {key}={value!r}" if is_number else f"{key} must be {defaults[key]}"
                raise ConfigError(
                    f"{operator.where} replaces {name}, which is called with {key}={value!r}, but has no constant "
                    f"{key}; {advice}"
                )
    return given


@torch.no_grad()
def _update_statistics(bound: Mapping[str, Any]) -> None:
    """Running statistics of a batch norm, as torch updates them."""
    x, share = bound["input"], bound.get("momentum", 0.1)
    axes = tuple(axis for axis in range(x.dim()) if axis != 1)
    var, centre = torch.var_mean(x, axes, correction=1)
    bound["running_mean"].lerp_(centre, 0.0 if share is None else share)
    bound["running_var"].lerp_(var, 0.0 if share is None else share)


class _Swapped(torch.autograd.Function):
    """The second tensor, with the gradient of the first."""

    @staticmethod
    def forward(ctx: Any, exact: Tensor, approximate: Tensor) -> Tensor:
        return approximate.clone()

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> tuple[Tensor, None]:
        return error, None
