"""One interface for every op on every device: aten calls on tensors that live on a device.

An executor hands aten operators to a device with `DeviceTensor` in place of tensors. `TorchDevice` runs them on torch
(CPU or CUDA); `OpenCLDevice` on kernels of this package.
"""

import re
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any, Protocol

from presilicon.base import ConfigError, MissingToolError, RunFailedError, torch


class DeviceLostError(RunFailedError):
    """A device failed while it worked; what it held is gone."""


class DeviceTensor:
    """A tensor on a device: shape, strides and offset in elements over a storage that views share."""

    __slots__ = ("_storage", "dtype", "offset", "shape", "strides")

    def __init__(
        self, storage: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, dtype: "torch.dtype"
    ) -> None:
        self._storage, self.shape, self.strides, self.offset, self.dtype = storage, shape, strides, offset, dtype

    def view(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> "DeviceTensor":
        """Another tensor over the same storage."""
        return DeviceTensor(self._storage, tuple(shape), tuple(strides), offset, self.dtype)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.numel() * self.dtype.itemsize

    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether its elements follow each other in memory in row-major order."""
        return self.strides == contiguous_strides(self.shape) or _dense(self.shape, self.strides)

    def shares_storage(self, other: "DeviceTensor") -> bool:
        """Whether both are views of one storage."""
        return self._storage is other._storage

    def __repr__(self) -> str:
        return f"DeviceTensor(shape={self.shape}, strides={self.strides}, offset={self.offset}, dtype={self.dtype})"


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements.

    >>> contiguous_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for side in reversed(shape):
        strides.append(step)
        step *= max(side, 1)
    return tuple(reversed(strides))


def _dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    step = 1
    for side, stride in zip(reversed(shape), reversed(strides), strict=True):
        if side == 0:
            return True
        if side != 1:
            if stride != step:
                return False
            step *= side
    return True


class OpDevice(Protocol):
    """A device that runs aten operators on its own tensors."""

    name: str
    """As in `open_device`: `cpu`, `cuda:0`, `opencl:0.0`."""

    def covers(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Whether `run` takes this call; tensors may be DeviceTensors or anything with a shape and a dtype."""

    def put(self, tensor: "torch.Tensor") -> DeviceTensor:
        """A copy of a host tensor on the device."""

    def get(self, tensor: DeviceTensor) -> "torch.Tensor":
        """A copy on the host; waits for the device."""

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An aten call on DeviceTensors; the result has the structure that torch gives it.

        In-place operators write into their operand. Views share its storage.

        Raises:
            DeviceLostError: the device failed.
        """

    def synchronize(self) -> None:
        """Wait until everything that was started is finished."""

    def close(self) -> None:
        """Free the device; its tensors cannot be used any more."""


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to the leaves of nested lists, tuples and dictionaries."""
    if isinstance(value, (list, tuple)):
        return type(value)(map_leaves(function, part) for part in value)
    if isinstance(value, dict):
        return {key: map_leaves(function, part) for key, part in value.items()}
    return function(value)


class TorchDevice:
    """A device of torch behind the same interface."""

    def __init__(self, name: str = "cpu") -> None:
        self.device = torch.device(name)
        if self.device.type == "cuda":
            if not torch.cuda.is_available() or (self.device.index or 0) >= torch.cuda.device_count():
                raise MissingToolError(f"there is no CUDA device {name!r} here; give cpu or opencl")
            self.device = torch.device("cuda", self.device.index or 0)
        self.name = str(self.device)

    def covers(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Every operator."""
        return True

    def put(self, tensor: "torch.Tensor") -> DeviceTensor:
        """A copy of a host tensor on the device."""
        copied = tensor.detach().clone() if self.device.type == "cpu" else tensor.detach().to(self.device)
        return DeviceTensor(copied, tuple(copied.shape), copied.stride(), int(copied.storage_offset()), copied.dtype)

    def get(self, tensor: DeviceTensor) -> "torch.Tensor":
        """A copy on the host."""
        found: torch.Tensor = self.unwrap(tensor)
        return found.detach().clone() if self.device.type == "cpu" else found.cpu()

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call the operator on the wrapped tensors."""
        kwargs = {**kwargs, "device": self.device} if kwargs.get("device") is not None else kwargs
        try:
            with torch.no_grad():
                call = _callable_on(func, self.device.type)
                result = call(*map_leaves(self.unwrap, args), **map_leaves(self.unwrap, kwargs))
        except getattr(torch, "AcceleratorError", ()) as error:
            raise DeviceLostError(f"{self.name} failed in {func}: {error}") from error
        return map_leaves(self.wrap, result)

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def close(self) -> None:
        """Nothing to free: torch owns the device."""

    @staticmethod
    def wrap(value: Any) -> Any:
        """A torch tensor as a DeviceTensor; anything else unchanged."""
        if not isinstance(value, torch.Tensor):
            return value
        return DeviceTensor(value, tuple(value.shape), value.stride(), int(value.storage_offset()), value.dtype)

    @staticmethod
    def unwrap(value: Any) -> Any:
        """The torch tensor behind a DeviceTensor; anything else unchanged."""
        if not isinstance(value, DeviceTensor):
            return value
        tensor: torch.Tensor = value._storage
        if value.shape == tensor.shape and value.strides == tensor.stride() and value.offset == tensor.storage_offset():
            return tensor
        return tensor.as_strided(value.shape, value.strides, value.offset)


@cache
def _callable_on(func: Any, device: str) -> Any:
    """An operator, or its parts where torch has no kernel of it for a type of device."""
    if torch._C._dispatch_has_computed_kernel_for_dispatch_key(func.name(), device.upper()):
        return func
    from torch._decomp import decomposition_table

    return decomposition_table.get(func, func)


_NAMES = "cpu, cuda, cuda:0, opencl, opencl:PLATFORM.DEVICE (as in opencl:0.0) or opencl:0.0/1 for sub-device 1"


def open_device(name: str) -> OpDevice:
    """The device of that name.

    Raises:
        ConfigError: the name cannot be read, or there is no such device.
        MissingToolError: no OpenCL platform or no CUDA device is here.
    """
    if re.fullmatch(r"cpu|cuda(:\d+)?", name):
        return TorchDevice(name)
    match = re.fullmatch(r"opencl(?::(\d+)\.(\d+)(?:/(\d+))?)?", name)
    if match is None:
        raise ConfigError(f"a device must be {_NAMES}, not {name!r}")
    from presilicon.scheduling.runtime.opencl.device import OpenCLDevice

    platform, device, part = (None if group is None else int(group) for group in match.groups())
    return OpenCLDevice(platform or 0, device or 0, part)
