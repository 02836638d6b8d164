"""A training step as a machine is asked to price it, and the price that it answers with."""

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from presilicon.designs.step_formats import StepFormats
from presilicon.designs.technology import Technology
from presilicon.records import CoresUse, DramBounds, MeasuredBasis, Op, OpCost, StepGraph

if TYPE_CHECKING:
    from presilicon.designs.design import Design

Convention = Literal["exact", "scale-sim"]
"""Counting of a systolic array's cycles: as its cells need them, or as SCALE-Sim counts them."""


class MachineStep(Struct, frozen=True, kw_only=True):
    """A training step as a machine sees it."""

    graph: StepGraph
    executed: tuple[Op, ...]
    """The ops that run, in order: `simulation.executed_ops` of the graph."""
    design: "Design"
    formats: StepFormats
    technology: Technology | None
    """The energy table, for machines that have one."""
    convention: Convention = "exact"


class StepPrice(Struct, frozen=True, kw_only=True):
    """Time and energy of a step on a machine, with one `OpCost` for each of `MachineStep.executed`."""

    ops: tuple[OpCost, ...]
    time_s: float
    """Time of the whole step: more than the sum of its ops where the machine waits, less where ops overlap."""
    energy_by_component_j: dict[str, float]
    dram_bounds: DramBounds | None = None
    cores: CoresUse | None = None
    measured: MeasuredBasis | None = None
    link_gb_s: float | None = None
    """Bandwidth between several chips, in one direction."""
    host_s: float = 0.0
    """Time that a host takes to launch the ops, during which the chip works."""


def op_cost(
    op: Op,
    *,
    unit: str,
    start_s: float,
    time_s: float,
    energy_j: float,
    compute_s: float,
    peak_flops_s: float,
    memory_s: float = 0.0,
    prefetched_s: float = 0.0,
    cycles: int = 0,
    bytes_dram: float = 0.0,
    bytes_sram: float = 0.0,
    dram_gb_s: float = 0.0,
    flops: int | None = None,
    kernel_flops: float | None = None,
    utilization: float = 0.0,
    group: str = "",
    algorithm: str = "",
) -> OpCost:
    """The cost of an op, with the intensity, the roof and the bound that follow from the figures.

    `peak_flops_s` is that of the unit, `dram_gb_s` the bandwidth for `bytes_dram`. `flops` are the op's own unless
    given; `kernel_flops` replaces them in the intensity, where the kernel does other work than the op says.
    """
    flops = op.flops if flops is None else flops
    intensity = (flops if kernel_flops is None else kernel_flops) / bytes_dram if bytes_dram else 0.0
    waits_s = memory_s - prefetched_s
    return OpCost(
        index=op.index,
        name=op.name,
        kind=op.kind,
        phase=op.phase,
        layer=op.layer,
        unit=unit,
        start_s=start_s,
        time_s=time_s,
        cycles=cycles,
        energy_j=energy_j,
        bytes_dram=bytes_dram,
        bytes_sram=bytes_sram,
        flops=flops,
        utilization=utilization,
        algorithm=algorithm,
        compute_s=compute_s,
        memory_s=memory_s,
        prefetched_s=prefetched_s,
        intensity=intensity,
        roof_flops_s=min(peak_flops_s, intensity * dram_gb_s * 1e9) if bytes_dram else peak_flops_s,
        group=group,
        bound="none" if compute_s == waits_s == 0 else "compute" if compute_s >= waits_s else "memory",
    )
