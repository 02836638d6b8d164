"""Power meters of this machine's devices."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from presilicon.base import ConfigError, MissingToolError
from presilicon.scheduling.runtime.nvml import Nvml

NVML_S = 0.3
"""Time during which NVML's counter still reflects earlier work; an op is repeated for as long again."""


class PowerMeter(NamedTuple):
    """A power meter of a device."""

    name: str
    energy_j: Callable[[], float] | None
    """A counter that only rises; None if the power is given."""
    power_w: Callable[[], float] | None = None
    given_w: float = 0.0
    settle_s: float = 0.0
    """Time until readings reflect what is running."""


def check_watts(watts: float | None) -> None:
    """Refuse a power of a device that cannot be."""
    if watts is not None and not 0 <= watts < 1e6:
        raise ConfigError(f"watts must be at least 0 and below a million, not {watts:g}")


def find_meter(device: str, watts: float | None) -> PowerMeter:
    """The power meter of a device: `watts` if given, else NVML or RAPL."""
    check_watts(watts)
    if watts is not None:
        return PowerMeter(f"the user, {watts:g} W", None, given_w=watts)
    if device == "cuda":
        nvml = Nvml(torch.cuda.current_device())
        return PowerMeter("NVML", nvml.joules, nvml.watts, settle_s=NVML_S)
    counters = [path for path in Path("/sys/class/powercap").glob("intel-rapl:?/energy_uj") if _readable(path)]
    if not counters:
        raise MissingToolError("this CPU's power cannot be read (no RAPL counter); give its power with --watts")
    return PowerMeter("RAPL", lambda: sum(int(path.read_text()) for path in counters) / 1e6)


def _readable(path: Path) -> bool:
    return bool(_text(path))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
