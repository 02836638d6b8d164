"""Circuits in SystemVerilog: arithmetic, systolic arrays, the instrument, generated tops, co-simulation, synthesis."""

from presilicon.rtl.arithmetic.golden import golden_product
from presilicon.rtl.arithmetic.mac import mac_circuit
from presilicon.rtl.arithmetic.units import Circuit
from presilicon.rtl.arithmetic.write_mac import write_mac
from presilicon.rtl.array.circuit import ArrayCircuit, array_circuit
from presilicon.rtl.array.model import ArrayModel, ArrayRun
from presilicon.rtl.array.write_array import write_array
from presilicon.rtl.engine import RtlModel
from presilicon.rtl.generate import write_instrument
from presilicon.rtl.mac_synthesis import MacSynthesis, MacTarget, mac_energy_pj, synthesize_mac, synthesize_units
from presilicon.rtl.parameters import parse_parameters
from presilicon.rtl.sources import core_parameters, output_blocks
from presilicon.rtl.synthesis import ChipResources, Timing, known_area, known_clock, synthesize
from presilicon.rtl.tap import Signal, list_signals, tap_design
from presilicon.rtl.testbench import run_testbench

__all__ = [
    "ArrayCircuit",
    "ArrayModel",
    "ArrayRun",
    "ChipResources",
    "Circuit",
    "MacSynthesis",
    "MacTarget",
    "RtlModel",
    "Signal",
    "Timing",
    "array_circuit",
    "core_parameters",
    "golden_product",
    "known_area",
    "known_clock",
    "list_signals",
    "mac_circuit",
    "mac_energy_pj",
    "output_blocks",
    "parse_parameters",
    "run_testbench",
    "synthesize",
    "synthesize_mac",
    "synthesize_units",
    "tap_design",
    "write_array",
    "write_instrument",
    "write_mac",
]
