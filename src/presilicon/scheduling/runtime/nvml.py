"""NVIDIA's management library: energy, power, clock and throttling of a card, read without a package."""

import ctypes
from typing import Any

import torch

from presilicon.base import MissingToolError

_SLOWED = {0x4: "the power cap", 0x8: "hardware slowdown", 0x20: "heat", 0x40: "heat", 0x80: "the power brake"}
"""NVML's bits for the reasons of a reduced clock."""


class Nvml:
    """One card, by torch's number of it.

    NVML numbers all cards of a machine, and torch the visible ones in an order of its own (CUDA_VISIBLE_DEVICES,
    CUDA_DEVICE_ORDER), so the card is looked up by its UUID.

    Raises:
        MissingToolError: the driver's library is not there, or does not know the card.
    """

    def __init__(self, index: int = 0) -> None:
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            raise MissingToolError("the GPU's power is read through NVML, which comes with NVIDIA's driver") from None
        self._handle = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        uuid = f"GPU-{torch.cuda.get_device_properties(index).uuid}"
        self._call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(self._handle))

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise MissingToolError(f"the GPU's power cannot be read: NVML's {name} answered {status}")

    def _read(self, name: str, kind: Any, *arguments: Any) -> Any:
        value = kind()
        self._call(name, self._handle, *arguments, ctypes.byref(value))
        return value.value

    def joules(self) -> float:
        """Energy since the driver was loaded."""
        return float(self._read("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong)) / 1e3

    def watts(self) -> float:
        """Power now."""
        return float(self._read("nvmlDeviceGetPowerUsage", ctypes.c_uint)) / 1e3

    def cap_w(self) -> float:
        """The power limit in force."""
        return float(self._read("nvmlDeviceGetEnforcedPowerLimit", ctypes.c_uint)) / 1e3

    def clock_mhz(self) -> int:
        """Clock of the cores now."""
        return int(self._read("nvmlDeviceGetClockInfo", ctypes.c_uint, ctypes.c_int(1)))

    def highest_clock_mhz(self) -> int:
        """Highest clock of the cores."""
        return int(self._read("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, ctypes.c_int(1)))

    def lock_clock(self, mhz: int) -> None:
        """Keep the cores at a clock; needs an administrator's rights."""
        self._call("nvmlDeviceSetGpuLockedClocks", self._handle, ctypes.c_uint(mhz), ctypes.c_uint(mhz))

    def unlock_clock(self) -> None:
        """Let the driver choose the clock again."""
        self._call("nvmlDeviceResetGpuLockedClocks", self._handle)

    def slowed_by(self) -> tuple[str, ...]:
        """Reasons for which the clock is below the highest one now."""
        bits = self._read("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong)
        return tuple(sorted({reason for bit, reason in _SLOWED.items() if bits & bit}))

    def busy_percent(self) -> int:
        """Share of the last moments in which a kernel ran."""
        value = (ctypes.c_uint * 2)()
        self._call("nvmlDeviceGetUtilizationRates", self._handle, ctypes.byref(value))
        return int(value[0])

    def driver(self) -> str:
        """Version of the driver."""
        text = ctypes.create_string_buffer(96)
        self._call("nvmlSystemGetDriverVersion", text, ctypes.c_uint(96))
        return text.value.decode()
