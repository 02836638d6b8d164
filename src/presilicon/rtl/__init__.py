"""The instrument as SystemVerilog: sources, generated tops, co-simulation, synthesis."""

from presilicon.rtl.engine import RtlModel
from presilicon.rtl.generate import write_instrument
from presilicon.rtl.parameters import parse_parameters
from presilicon.rtl.sources import core_parameters
from presilicon.rtl.synthesis import CellArea, Timing, known_area, known_clock, synthesize
from presilicon.rtl.tap import Signal, list_signals, tap_design
from presilicon.rtl.testbench import run_testbench

__all__ = [
    "CellArea",
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
