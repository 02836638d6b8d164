"""A training step on a systolic machine: the array for matrix products, the vector unit for the rest, one by one."""

from collections.abc import Iterable, Iterator
from math import ceil

from msgspec import Struct

from presilicon.designs import MachineStep, StepFormats, StepPrice, op_cost
from presilicon.records import Op, OpCost
from presilicon.simulation.systolic.functions import Functions, operator_j
from presilicon.simulation.systolic.machine import SystolicMachine
from presilicon.simulation.systolic.products import Resident, array_work, resident_after
from presilicon.simulation.systolic.work import Rates, Work, systolic_rates


class Demand(Struct, frozen=True, kw_only=True, gc=False):
    """Demand of an op for the two resources that work in parallel."""

    compute_s: float
    transfer_s: float
    """Time on the DRAM channel, in total."""
    early_s: float = 0.0
    """The part of the transfer that does not depend on the previous op."""


class Span(Struct, frozen=True, kw_only=True, gc=False):
    """Position of an op on the timeline."""

    start_s: float
    time_s: float
    prefetched_s: float
    """Transfer that ran before its start, while the channel was idle during the previous op."""


def lay_out(demands: Iterable[Demand], *, prefetch: bool) -> list[Span]:
    """Ops one after another, each as long as the longer of its compute and of the transfer that is still to do.

    With `prefetch`, the channel fetches for the next op once it has done the transfers of this one.

    >>> ops = [Demand(compute_s=5.0, transfer_s=2.0), Demand(compute_s=1.0, transfer_s=4.0, early_s=4.0)]
    >>> [span.time_s for span in lay_out(ops, prefetch=False)], [span.time_s for span in lay_out(ops, prefetch=True)]
    ([5.0, 4.0], [5.0, 1.0])
    """
    spans: list[Span] = []
    start_s = idle_s = 0.0
    for demand in demands:
        prefetched_s = min(demand.early_s, demand.transfer_s, idle_s) if prefetch else 0.0
        left_s = demand.transfer_s - prefetched_s
        time_s = max(demand.compute_s, left_s)
        spans.append(Span(start_s=start_s, time_s=time_s, prefetched_s=prefetched_s))
        idle_s = time_s - left_s
        start_s += time_s
    return spans


def price_systolic(step: MachineStep, machine: SystolicMachine) -> StepPrice:
    """Ops one after another, each as long as its compute cycles or its DRAM traffic (minus prefetched bytes).

    Every op reads its inputs from DRAM and writes its outputs there (no fusion between ops). Where the
    technology has a figure for leakage, the whole die leaks all the time.
    """
    assert step.technology is not None
    rates = systolic_rates(step.design, machine, step.technology)
    works = _works(step, machine, rates)
    spans = lay_out(_demands(step.executed, works, machine, step.formats), prefetch=machine.prefetch)
    memories = (buffer.name for buffer in rates.buffers)
    components = dict.fromkeys(("mac", "vector", "register", *memories, "dram"), 0.0)
    ops: list[OpCost] = []
    for op, work, span in zip(step.executed, works, spans, strict=True):
        energy = work.energy_j(rates, span.time_s)
        for component, joules in energy.items():
            components[component] = components.get(component, 0.0) + joules
        ops.append(_op_cost(op, work, span, sum(energy.values()), machine))
    return StepPrice(ops=tuple(ops), time_s=sum(op.time_s for op in ops), energy_by_component_j=components)


def _works(step: MachineStep, machine: SystolicMachine, rates: Rates) -> list[Work]:
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
    executed: tuple[Op, ...], works: list[Work], machine: SystolicMachine, formats: StepFormats
) -> Iterator[Demand]:
    """Demand of each op; inputs that the previous op does not write can come early if half the buffer holds them."""
    bytes_s = machine.dram_gb_s * 1e9
    written: set[int] = set()
    for op, work in zip(executed, works, strict=True):
        early = 0.0
        if machine.prefetch:
            waiting = sum(
                formats.bytes_of(tensor, op.layer, op.product_phase) for tensor in op.inputs if tensor.id not in written
            )
            early = min(waiting, machine.buffer.usable_bits / 8)
            written = {tensor.id for tensor in op.outputs}
        yield Demand(
            compute_s=work.cycles * 1e-9 / machine.clock_ghz,
            transfer_s=work.bytes_dram / bytes_s,
            early_s=early / bytes_s,
        )


def _op_cost(op: Op, work: Work, span: Span, energy_j: float, machine: SystolicMachine) -> OpCost:
    return op_cost(
        op,
        unit=work.unit,
        start_s=span.start_s,
        time_s=span.time_s,
        energy_j=energy_j,
        compute_s=work.cycles * 1e-9 / machine.clock_ghz,
        memory_s=work.bytes_dram / (machine.dram_gb_s * 1e9),
        prefetched_s=span.prefetched_s,
        cycles=work.cycles,
        bytes_dram=work.bytes_dram,
        bytes_sram=work.bytes_on_chip,
        dram_gb_s=machine.dram_gb_s,
        peak_flops_s=work.peak_flops_s,
        utilization=work.utilization,
    )


def _vector_work(op: Op, step: MachineStep, machine: SystolicMachine, rates: Rates, functions: Functions) -> Work:
    """Any other op, in float32 on the vector unit: a result per lane and cycle; a move takes lanes but no arithmetic.

    A function that the design replaces takes its operator's cycles instead, in every lane, and its operator's energy.
    """
    formats, replaced = step.formats, functions.find(op)
    flops, slots, cycles, operator_energy_j = op.flops, max(op.flops, op.elements_out), 0, 0.0
    if replaced is not None:
        assert step.technology is not None
        flops, slots = max(flops - replaced.elements, 0), max(slots - replaced.elements, 0)
        cycles = replaced.cost.cycles_of(replaced.elements, machine.vector_lanes)
        operator_energy_j = replaced.elements * operator_j(replaced.cost, step.technology)
    loads = tuple(formats.bytes_of(tensor, op.layer) for tensor in op.inputs)
    stores = tuple(formats.written_bytes(tensor, op.layer) for tensor in op.outputs)
    return Work(
        unit="vector",
        cycles=cycles + ceil(slots / machine.vector_lanes),
        operations_j=flops * rates.vector_j + operator_energy_j,
        loads=loads,
        stores=stores,
        bytes_sram=sum(loads) + sum(stores),
        peak_flops_s=machine.vector_lanes * machine.clock_ghz * 1e9,
    )
