"""Torch as the judge of a device: the same aten call on both, compared element by element."""

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from presilicon.scheduling.runtime.devices import DeviceTensor, OpDevice, map_leaves


def place(device: OpDevice, tensor: torch.Tensor) -> DeviceTensor:
    """A copy of the tensor's whole storage on the device, viewed with the tensor's strides and offset."""
    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    return device.put(whole).view(tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))


def differences(device: OpDevice, func: Any, args: Any, kwargs: Any = None, tolerance: float = 2e-5) -> list[str]:
    """What a device computes otherwise than torch: results and operands that were written; empty if it agrees.

    The tolerance is relative to the largest value. Torch runs second, and its results are kept by in-place operators.
    """
    kwargs, placed = kwargs or {}, {}

    def to_device(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in placed:
            placed[id(value)] = (value, place(device, value))
        return placed[id(value)][1]

    found = device.run(func, map_leaves(to_device, args), map_leaves(to_device, kwargs))
    expected = func(*args, **kwargs)
    pairs = list(zip(pytree.tree_leaves(expected), pytree.tree_leaves(found), strict=True)) + list(placed.values())
    return [told for pair in pairs if (told := _difference(device, *pair, tolerance))]


def _difference(device: OpDevice, expected: Any, found: Any, tolerance: float) -> str:
    if not isinstance(expected, torch.Tensor):
        return "" if expected == found else f"{found!r} instead of {expected!r}"
    result = device.get(found)
    if (result.shape, result.dtype) != (expected.shape, expected.dtype):
        return f"{result.shape} {result.dtype} instead of {expected.shape} {expected.dtype}"
    scale = expected.double().nan_to_num(0, 0, 0).abs().max().item() if expected.numel() else 0.0
    if torch.allclose(
        result.double(), expected.double(), rtol=tolerance, atol=tolerance * max(scale, 1e-3), equal_nan=True
    ):
        return ""
    return f"off by {(result.double() - expected.double()).abs().max().item():.3g} of {scale:.3g}"


class Judged(TorchDispatchMode):
    """Runs every op that a device covers on it as well, and keeps what differs."""

    def __init__(self, device: OpDevice, tolerance: float = 1e-4) -> None:
        super().__init__()
        self.device, self.tolerance = device, tolerance
        self.agreed: set[str] = set()
        self.differing: dict[str, list[str]] = {}
        self.uncovered: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, str(func)
        if not self.device.covers(func, args, kwargs):
            self.uncovered.add(name)
            return func(*args, **kwargs)
        if name.startswith(("aten.empty", "aten.new_empty")):
            return func(*args, **kwargs)
        copies = map_leaves(lambda value: value.clone() if _written(func, value) else value, args)
        told = differences(self.device, func, copies, kwargs, self.tolerance)
        if told:
            self.differing.setdefault(name, []).extend(told)
        else:
            self.agreed.add(name)
        return func(*args, **kwargs)


def _written(func: Any, value: Any) -> bool:
    return isinstance(value, torch.Tensor) and func._schema.is_mutable and value.is_contiguous()
