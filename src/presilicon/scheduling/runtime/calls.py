"""Facts about aten calls that a runtime needs: what they write, what they return, and how they are divided."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from presilicon.ops import describe_operator
from presilicon.scheduling.runtime.devices import DeviceTensor

aten = torch.ops.aten
CONVOLUTION_BACKWARD = aten.convolution_backward.default
AS_CALLED: dict[Any, Any] = {
    getattr(aten, name + place).Scalar: getattr(aten, name + place).Tensor
    for name in ("add", "sub", "mul", "div")
    for place in ("", "_")
}
"""Operators of a tensor and a number as torch's own loops over lists call them: those that a program's loop calls."""


def written_by(func: Any, args: Sequence[Any], kwargs: Any) -> list[Any]:
    """The arguments that a call writes."""
    written = [kwargs.get(key) if isinstance(key, str) else args[key] for key in describe_operator(func).written]
    if func is aten.native_batch_norm.default and args[5]:
        written += args[3:5]  # its schema does not say that training updates the running statistics
    return [argument for argument in written if argument is not None]


class Spec(NamedTuple):
    """Metadata of a tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """Elements from the start of the storage to the last one."""
        if 0 in self.shape:
            return 0
        return 1 + sum((side - 1) * stride for side, stride in zip(self.shape, self.strides, strict=True))


_SPECS: dict[Any, list[Spec | None] | None] = {}


def results_of(func: Any, args: Any, kwargs: Any) -> tuple[list[Spec | None] | None, Any]:
    """Metadata of the results of a call, and a key that stands for the metadata of its arguments.

    The call is run on the meta device once for each key. None: the results depend on values, or are no tensors.
    """
    floats = describe_operator(func).is_view or not _has_tensor(args)
    key = (func, _described(args, floats), _described(kwargs, floats) if kwargs else None)
    if key not in _SPECS:
        _SPECS[key] = _infer(func, args, kwargs)
    return _SPECS[key], key


def _has_tensor(args: Any) -> bool:
    return any(isinstance(arg, Tensor) or (isinstance(arg, (list, tuple)) and _has_tensor(arg)) for arg in args)


def _described(value: Any, floats: bool) -> Any:
    if isinstance(value, Tensor):
        return value.shape, value.stride(), value.dtype, value.storage_offset() if floats else 0
    if isinstance(value, (list, tuple)):
        return tuple([_described(part, floats) for part in value])
    if isinstance(value, dict):
        return tuple([(name, _described(part, floats)) for name, part in value.items()])
    # Most operators' shapes do not depend on real numbers, which change from step to step in an optimizer.
    return (type(value), None if isinstance(value, float) and not floats else value)


def _infer(func: Any, args: Any, kwargs: Any) -> list[Spec | None] | None:
    try:
        output = func(*_to_meta(args), **_to_meta(kwargs))
    except Exception:  # whatever an operator raises without values: it is then run with them
        return None
    outputs = output if isinstance(output, (tuple, list)) else (output,)
    # On the meta device some gradients come unasked.
    wanted = (*_mask(func, args, kwargs), *(True for _ in outputs))
    outputs = [leaf if is_wanted else None for leaf, is_wanted in zip(outputs, wanted, strict=False)]
    if func is aten.native_batch_norm.default and not args[5]:
        outputs[1:] = [leaf.new_empty(0) for leaf in outputs[1:]]  # nor are statistics saved outside of training
    if not all(leaf is None or (isinstance(leaf, Tensor) and leaf.layout is torch.strided) for leaf in outputs):
        return None
    return [
        None if leaf is None else Spec(tuple(leaf.shape), leaf.stride(), int(leaf.storage_offset()), leaf.dtype)
        for leaf in outputs
    ]


def _mask(func: Any, args: Sequence[Any], kwargs: Any) -> Sequence[bool]:
    """Which results a backward call is asked for; empty if it has no such argument."""
    names = [argument.name for argument in func._schema.arguments]
    if "output_mask" not in names:
        return ()
    position = names.index("output_mask")
    mask: Sequence[bool] = args[position] if position < len(args) else kwargs["output_mask"]
    return mask


def _to_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        spec = Spec(tuple(value.shape), value.stride(), int(value.storage_offset()), value.dtype)
        empty = torch.empty(spec.size + spec.offset, dtype=value.dtype, device="meta")
        return empty.as_strided(spec.shape, spec.strides, spec.offset)
    if isinstance(value, (list, tuple)):
        return type(value)(_to_meta(part) for part in value)
    if isinstance(value, dict):
        return {name: _to_meta(part) for name, part in value.items()}
    return torch.device("meta") if isinstance(value, torch.device) else value


def divide_convolution(args: Sequence[Any]) -> list[tuple[int, Any, tuple[Any, ...]]]:
    """The gradients of a convolution as single calls, as they are captured: of its input, its weight and its bias.

    Each with its place among the results, its operator and its arguments.
    """
    calls: list[tuple[int, Any, tuple[Any, ...]]] = []
    for place in (0, 1):
        if args[10][place]:
            mask = [place == 0, place == 1, False]
            calls.append((place, CONVOLUTION_BACKWARD, (*args[:3], None, *args[4:10], mask)))
    if args[10][2]:
        axes = [axis for axis in range(args[0].dim()) if axis != 1]
        calls.append((2, aten.sum.dim_IntList, (args[0], axes)))
    return calls


def narrow(operand: DeviceTensor, dim: int, start: int, length: int) -> DeviceTensor:
    """A part of an operand along a dimension, as a view."""
    shape = (*operand.shape[:dim], length, *operand.shape[dim + 1 :])
    return operand.view(shape, operand.strides, operand.offset + start * operand.strides[dim])


_BY_FIRST = {
    # operator: positions of the arguments whose first dimension is divided
    aten.mm.default: (0,),
    aten.bmm.default: (0, 1),
    aten.addmm.default: (1,),
    aten.convolution.default: (0,),
}


def divide_call(func: Any, args: Sequence[Any], count: int) -> list[tuple[Any, ...]] | None:
    """A big op as `count` calls on parts of its rows, samples or output channels; None if it cannot be divided.

    The results of the calls, joined along their first dimension, are those of the whole call.
    """
    divided: list[tuple[int, int]] = [(position, 0) for position in _BY_FIRST.get(func, ())]
    if func is aten.addmm.default and len(args[0].shape) == 2 and args[0].shape[0] > 1:
        divided.append((0, 0))
    if func is CONVOLUTION_BACKWARD:
        # Gradients of the input are divided by samples, those of the weight by output channels.
        divided = [(0, 0), (1, 0)] if args[10][0] else [(0, 1), (2, 0)]
        if args[9] != 1 or (args[7] and not args[10][0]):
            return None
    if not divided:
        return None
    position, dim = divided[0]
    size = args[position].shape[dim]
    if size < count:
        return None
    calls = []
    for index in range(count):
        start, end = size * index // count, size * (index + 1) // count
        parts = list(args)
        for position, dim in divided:
            parts[position] = narrow(parts[position], dim, start, end - start)
        calls.append(tuple(parts))
    return calls
