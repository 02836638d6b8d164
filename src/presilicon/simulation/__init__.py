"""The cost of a step graph on a machine: cycles, time, energy, memory."""

from presilicon.simulation.area import area, mac_area_um2, register_area_um2, sram_area_um2
from presilicon.simulation.chakra import write_chakra
from presilicon.simulation.checkpointing import checkpoint, even_segments
from presilicon.simulation.memory import memory_timeline
from presilicon.simulation.refresh import Edram, Refresh, price_refresh
from presilicon.simulation.step import simulate, simulate_gemm
from presilicon.simulation.systolic import ArrayCycles, gemm_cycles, transposer_cycles

__all__ = [
    "ArrayCycles",
    "Edram",
    "Refresh",
    "area",
    "checkpoint",
    "even_segments",
    "gemm_cycles",
    "mac_area_um2",
    "memory_timeline",
    "price_refresh",
    "register_area_um2",
    "simulate",
    "simulate_gemm",
    "sram_area_um2",
    "transposer_cycles",
    "write_chakra",
]
