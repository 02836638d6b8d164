"""The cost of a step graph on a machine: cycles, time, energy, memory. Machine kinds live in packages of their own."""

from typing import TYPE_CHECKING

from presilicon.base import deferred
from presilicon.simulation.area import area, mac_area_um2, register_area_um2, sram_area_um2
from presilicon.simulation.caterpillar.machine import CaterpillarMachine
from presilicon.simulation.caterpillar.pricing import sustained_utilization
from presilicon.simulation.checkpointing import chain_of, checkpoint, even_segments
from presilicon.simulation.energy import mac_pj
from presilicon.simulation.execution import executed_ops
from presilicon.simulation.fit_area import FittedDesign, fit_area
from presilicon.simulation.foreign.exports import write_chakra, write_topology
from presilicon.simulation.foreign.files import read_times
from presilicon.simulation.foreign.matching import MatchedTimes, match_times, put_times
from presilicon.simulation.mapping.nest import (
    Loop,
    MappedArray,
    Mapping,
    Precision,
    Store,
    check_mapping,
    price_mapping,
)
from presilicon.simulation.mapping.problem import Contraction, Tensor
from presilicon.simulation.memory import Course, memory_timeline, peak_bytes
from presilicon.simulation.roofline.attention import FusedAttention, find_attention
from presilicon.simulation.roofline.efficiency import (
    TABLE_SCHEMA,
    Activities,
    Efficiency,
    KernelGroup,
    KernelLoad,
    KernelRate,
    MeasuredLayers,
    MeasuredPowers,
    Peaks,
    load_efficiency,
)
from presilicon.simulation.roofline.features import Features, features_of_bias
from presilicon.simulation.roofline.kernels import OpKernel, cast_of
from presilicon.simulation.roofline.machine import (
    ACTIVITIES,
    ChipEnergy,
    HostTimes,
    MatrixRate,
    Provenance,
    RooflineMachine,
)
from presilicon.simulation.roofline.merging import image_layout, launched_kernels
from presilicon.simulation.roofline.pricing import KernelSpan, activity_of, busy_seconds, kernel_limit, kernel_seconds
from presilicon.simulation.sparsity.description import Sparsity, parse_pattern
from presilicon.simulation.step import simulate, simulate_gemm
from presilicon.simulation.systolic.cycles import ArrayCycles, gemm_cycles, transposer_cycles
from presilicon.simulation.systolic.frames import play_product
from presilicon.simulation.systolic.machine import Dataflow, Dataflows, Reduction, SystolicMachine, Transpose
from presilicon.simulation.systolic.memories import Memory
from presilicon.simulation.systolic.reference import run_array, run_in_place

if TYPE_CHECKING:
    from presilicon.simulation.mapping.tiles import ElementBytes, least_traffic
    from presilicon.simulation.sparsity.lanes import LANES, lane_cycles, lane_speedup
    from presilicon.simulation.sparsity.structured import keep_largest, packed_share, structured_share
    from presilicon.simulation.systolic.products import bound_product

__all__ = [
    "ACTIVITIES",
    "LANES",
    "TABLE_SCHEMA",
    "Activities",
    "ArrayCycles",
    "CaterpillarMachine",
    "ChipEnergy",
    "Contraction",
    "Course",
    "Dataflow",
    "Dataflows",
    "Efficiency",
    "ElementBytes",
    "Features",
    "FittedDesign",
    "FusedAttention",
    "HostTimes",
    "KernelGroup",
    "KernelLoad",
    "KernelRate",
    "KernelSpan",
    "Loop",
    "MappedArray",
    "Mapping",
    "MatchedTimes",
    "MatrixRate",
    "MeasuredLayers",
    "MeasuredPowers",
    "Memory",
    "OpKernel",
    "Peaks",
    "Precision",
    "Provenance",
    "Reduction",
    "RooflineMachine",
    "Sparsity",
    "Store",
    "SystolicMachine",
    "Tensor",
    "Transpose",
    "activity_of",
    "area",
    "bound_product",
    "busy_seconds",
    "cast_of",
    "chain_of",
    "check_mapping",
    "checkpoint",
    "even_segments",
    "executed_ops",
    "features_of_bias",
    "find_attention",
    "fit_area",
    "gemm_cycles",
    "image_layout",
    "keep_largest",
    "kernel_limit",
    "kernel_seconds",
    "lane_cycles",
    "lane_speedup",
    "launched_kernels",
    "least_traffic",
    "load_efficiency",
    "mac_area_um2",
    "mac_pj",
    "match_times",
    "memory_timeline",
    "packed_share",
    "parse_pattern",
    "peak_bytes",
    "play_product",
    "price_mapping",
    "put_times",
    "read_times",
    "register_area_um2",
    "run_array",
    "run_in_place",
    "simulate",
    "simulate_gemm",
    "sram_area_um2",
    "structured_share",
    "sustained_utilization",
    "transposer_cycles",
    "write_chakra",
    "write_topology",
]

__getattr__ = deferred(__name__)
