"""A training step on a systolic machine: the array for matrix products, the vector unit for the rest, one by one."""

from collections.abc import Iterator
from math import ceil

from presilicon.designs import SystolicMachine
from presilicon.records import Op, OpCost
from presilicon.simulation.energy import Rates, systolic_rates
from presilicon.simulation.functions import Functions, operator_j
from presilicon.simulation.pricing import Priced, Step, bound_of
from presilicon.simulation.products import Resident, array_work, resident_after
from presilicon.simulation.timeline import Demand, Span, lay_out
from presilicon.simulation.work import Formats, Work


def price_systolic(step: Step, machine: SystolicMachine) -> Priced:
    """Ops one after another, each as long as its compute cycles or its DRAM traffic (less what was prefetched).

    Every op reads its inputs from DRAM and writes its outputs there (no fusion between ops). Cells and lanes that have
    nothing to do cost their leakage, as all of the die does all the time, where the technology has a figure for it.
    """
    assert step.technology is not None
    rates = systolic_rates(step.design, machine, step.technology)
    works = _works(step, machine, rates)
    spans = lay_out(_demands(step.executed, works, machine, step.formats), prefetch=machine.prefetch)
    components = dict.fromkeys(("mac", "vector", "register", "sram", "dram"), 0.0)
    if rates.leakage_w is not None:
        components["leakage"] = 0.0
    ops: list[OpCost] = []
    for op, work, span in zip(step.executed, works, spans, strict=True):
        energy = work.energy_j(rates, span.time_s)
        for component, joules in energy.items():
            components[component] += joules
        ops.append(_op_cost(op, work, span, sum(energy.values()), machine))
    return Priced(ops=tuple(ops), time_s=sum(op.time_s for op in ops), energy_by_component_j=components)


def _works(step: Step, machine: SystolicMachine, rates: Rates) -> list[Work]:
    whole = {tensor.id: tensor.elements for tensor in step.graph.parameters}
    functions = Functions(step.design.numerics)
    resident: Resident | None = None
    works: list[Work] = []
    for op in step.executed:
        if op.gemm:
            works.append(array_work(op, op.gemm, step, machine, rates, resident=resident))
        else:
            works.append(_vector_work(op, step, machine, rates, functions))
        resident = resident_after(op, machine, step.formats, whole, resident)
    return works


def _demands(
    executed: tuple[Op, ...], works: list[Work], machine: SystolicMachine, formats: Formats
) -> Iterator[Demand]:
    """Compute and transfer of each op; early is what the op before does not make and half of the buffer can take."""
    bytes_s = machine.dram_gb_s * 1e9
    made: set[int] = set()
    for op, work in zip(executed, works, strict=True):
        early = 0.0
        if machine.prefetch:
            waiting = sum(formats.bytes_of(tensor, op.layer) for tensor in op.inputs if tensor.id not in made)
            early = min(waiting, machine.sram_kib * 1024 / 2)
            made = {tensor.id for tensor in op.outputs}
        yield Demand(
            compute_s=work.cycles * 1e-9 / machine.clock_ghz,
            transfer_s=work.bytes_dram / bytes_s,
            early_s=early / bytes_s,
        )


def _op_cost(op: Op, work: Work, span: Span, energy_j: float, machine: SystolicMachine) -> OpCost:
    compute_s, memory_s = work.cycles * 1e-9 / machine.clock_ghz, work.bytes_dram / (machine.dram_gb_s * 1e9)
    intensity = op.flops / work.bytes_dram if work.bytes_dram else 0.0
    reach = intensity * machine.dram_gb_s * 1e9 if work.bytes_dram else work.peak_flops_s
    return OpCost(
        index=op.index,
        name=op.name,
        kind=op.kind,
        phase=op.phase,
        layer=op.layer,
        unit=work.unit,
        start_s=span.start_s,
        time_s=span.time_s,
        cycles=work.cycles,
        energy_j=energy_j,
        bytes_dram=work.bytes_dram,
        bytes_sram=work.bytes_sram,
        flops=op.flops,
        utilization=work.utilization,
        compute_s=compute_s,
        memory_s=memory_s,
        prefetched_s=span.prefetched_s,
        intensity=intensity,
        roof_flops_s=min(work.peak_flops_s, reach),
        bound=bound_of(compute_s, memory_s - span.prefetched_s),
    )


def _vector_work(op: Op, step: Step, machine: SystolicMachine, rates: Rates, functions: Functions) -> Work:
    """Anything else, in float32 on the vector unit: a result per lane and cycle; a move takes lanes, no arithmetic.

    A function that the design replaces takes its operator's cycles instead, in every lane, and its operator's energy.
    """
    formats, replaced = step.formats, functions.find(op)
    flops, slots, cycles, operator_energy_j = op.flops, max(op.flops, op.elements_out), 0, 0.0
    if replaced is not None:
        assert step.technology is not None
        flops, slots = max(flops - replaced.elements, 0), max(slots - replaced.elements, 0)
        cycles = replaced.cost.cycles_of(replaced.elements, machine.vector_lanes)
        operator_energy_j = replaced.elements * operator_j(replaced.cost, step.technology)
    traffic = sum(formats.bytes_of(tensor, op.layer) for tensor in op.inputs)
    traffic += sum(formats.written_bytes(tensor, op.layer) for tensor in op.outputs)
    return Work(
        unit="vector",
        cycles=cycles + ceil(slots / machine.vector_lanes),
        operations_j=flops * rates.vector_j + operator_energy_j,
        bytes_dram=traffic,
        bytes_sram=traffic,
        peak_flops_s=machine.vector_lanes * machine.clock_ghz * 1e9,
    )
