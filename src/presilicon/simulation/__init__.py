"""The cost of a step graph on a machine: cycles, time, energy, memory."""

from presilicon.simulation.chakra import write_chakra
from presilicon.simulation.checkpointing import checkpoint, even_segments
from presilicon.simulation.memory import memory_timeline
from presilicon.simulation.step import simulate, simulate_gemm
from presilicon.simulation.systolic import ArrayCycles, gemm_cycles, transposer_cycles

__all__ = [
    "ArrayCycles",
    "checkpoint",
    "even_segments",
    "gemm_cycles",
    "memory_timeline",
    "simulate",
    "simulate_gemm",
    "transposer_cycles",
    "write_chakra",
]
