"""The instrument as SystemVerilog: sources, generated tops, co-simulation, synthesis.

Names are resolved when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {"RtlModel": "engine"}

__all__ = ["RtlModel"]

if TYPE_CHECKING:
    from presilicon.rtl.engine import RtlModel


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'presilicon.rtl' has no attribute '{name}'")
    return getattr(import_module(f"presilicon.rtl.{_HOMES[name]}"), name)
