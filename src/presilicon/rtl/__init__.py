"""The instrument as SystemVerilog: sources, generated tops, co-simulation, synthesis.

Names are resolved when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from presilicon.rtl.engine import RtlModel
    from presilicon.rtl.generate import write_instrument
    from presilicon.rtl.parameters import parse_parameters
    from presilicon.rtl.sources import core_parameters
    from presilicon.rtl.synthesis import Area, Timing, known_area, known_clock, synthesize
    from presilicon.rtl.tap import Signal, list_signals, tap_design
    from presilicon.rtl.testbench import run_testbench

__all__ = [
    "Area",
    "RtlModel",
    "Signal",
    "Timing",
    "core_parameters",
    "known_area",
    "known_clock",
    "list_signals",
    "parse_parameters",
    "run_testbench",
    "synthesize",
    "tap_design",
    "write_instrument",
]

_MODULES = {
    "engine": ("RtlModel",),
    "generate": ("write_instrument",),
    "parameters": ("parse_parameters",),
    "sources": ("core_parameters",),
    "synthesis": ("Area", "Timing", "known_area", "known_clock", "synthesize"),
    "tap": ("Signal", "list_signals", "tap_design"),
    "testbench": ("run_testbench",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'presilicon.rtl' has no attribute '{name}'")
    return getattr(import_module(f"presilicon.rtl.{_HOMES[name]}"), name)
