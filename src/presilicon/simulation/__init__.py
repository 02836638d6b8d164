"""The cost of a step graph on a machine: cycles, time, energy, memory."""

from presilicon.simulation.area import area, mac_area_um2, register_area_um2, sram_area_um2
from presilicon.simulation.caterpillar_pipeline import staleness
from presilicon.simulation.chakra import write_chakra
from presilicon.simulation.checkpointing import chain_of, checkpoint, even_segments
from presilicon.simulation.foreign import MatchedTimes, match_times, put_times
from presilicon.simulation.foreign_files import read_times
from presilicon.simulation.frames import play_product
from presilicon.simulation.memory import memory_timeline
from presilicon.simulation.refresh import Edram, Refresh, price_refresh
from presilicon.simulation.step import simulate, simulate_gemm
from presilicon.simulation.systolic import ArrayCycles, gemm_cycles, transposer_cycles
from presilicon.simulation.topology import write_topology

__all__ = [
    "ArrayCycles",
    "Edram",
    "MatchedTimes",
    "Refresh",
    "area",
    "chain_of",
    "checkpoint",
    "even_segments",
    "gemm_cycles",
    "mac_area_um2",
    "match_times",
    "memory_timeline",
    "play_product",
    "price_refresh",
    "put_times",
    "read_times",
    "register_area_um2",
    "simulate",
    "simulate_gemm",
    "sram_area_um2",
    "staleness",
    "transposer_cycles",
    "write_chakra",
    "write_topology",
]
