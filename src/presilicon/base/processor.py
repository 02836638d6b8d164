"""The processor as far as it decides bits: libraries choose instructions, and with them the order of sums, by it."""

import os
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from presilicon.base.lazy import torch

_FEATURES = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8")
"""Extensions for which torch's libraries have kernels of their own."""
_LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR")
"""Variables by which a user limits what libraries choose."""


def processor(device: str = "cpu") -> dict[str, str]:
    """The kind of processor that a training runs on, by which torch and its libraries choose how they compute.

    `vectors` is the level of torch's own kernels; oneDNN and MKL look at the processor itself.
    """
    found = {"vectors": torch.backends.cpu.get_cpu_capability(), "libraries": _cpu_kind()}
    limits = " ".join(f"{name}={os.environ[name]}" for name in _LIMITS if os.environ.get(name))
    if limits:
        found["limits"] = limits
    if device != "cpu":
        found["gpu"] = torch.cuda.get_device_name(device)
    return found


def describe_processor(kind: Mapping[str, str] | None) -> str:
    """A kind of processor in words.

    >>> describe_processor({"vectors": "AVX2", "libraries": "GenuineIntel avx2 fma"})
    'AVX2 (GenuineIntel avx2 fma)'
    """
    if not kind:
        return "an unknown processor"
    details = ", ".join(value for name, value in kind.items() if name != "vectors")
    return f"{kind.get('vectors', 'unknown')} ({details})"


@cache
def _cpu_kind() -> str:
    """Vendor of the processor and its vector extensions: `AuthenticAMD avx2 fma`."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0].splitlines()
    except OSError:
        return platform.machine()
    pairs = (line.partition(":") for line in lines)
    facts = {name.strip(): value.strip() for name, _, value in pairs}
    flags = set((facts.get("flags") or facts.get("Features") or "").split())
    vendor = facts.get("vendor_id") or facts.get("CPU implementer") or platform.machine()
    return " ".join([vendor, *(name for name in _FEATURES if name in flags)])
