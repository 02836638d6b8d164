"""Execution of a schedule on real devices: one interface for every op on torch and OpenCL devices."""

from typing import TYPE_CHECKING

from presilicon.base import deferred
from presilicon.scheduling.runtime.devices import (
    DeviceLostError,
    DeviceTensor,
    OpDevice,
    TorchDevice,
    open_device,
)
from presilicon.scheduling.runtime.executor import Executor, Ran

if TYPE_CHECKING:
    from presilicon.scheduling.runtime.session import HybridTensor, Session

__getattr__ = deferred(__name__, {f"{__name__}.session": ("HybridTensor", "Session")})

__all__ = [
    "DeviceLostError",
    "DeviceTensor",
    "Executor",
    "HybridTensor",
    "OpDevice",
    "Ran",
    "Session",
    "TorchDevice",
    "open_device",
]
