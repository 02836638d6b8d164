"""Ops of the vector unit: everything but matrix products."""

from math import ceil

from presilicon.designs import MachineStep
from presilicon.records import Op
from presilicon.simulation.operators import Functions, operator_j, work_j
from presilicon.simulation.systolic.machine import SystolicMachine
from presilicon.simulation.systolic.work import Rates, Work


def vector_work(
    op: Op,
    step: MachineStep,
    machine: SystolicMachine,
    rates: Rates,
    functions: Functions,
    *,
    loads: tuple[float, ...],
    stores: tuple[float, ...],
    passes: tuple[int, ...],
) -> Work:
    """An op in float32 on the vector unit: a result per lane and cycle; a move takes lanes but no arithmetic.

    A function that the design replaces takes its operator's cycles instead, in every lane, and its operator's energy.
    `loads` and `stores` are the bytes of inputs and outputs; `passes` says how often the unit reads each input from the
    buffer, no faster than that can be read and written.
    """
    replaced = functions.find(op)
    flops, slots, cycles, operator_energy_j = op.flops, max(op.flops, op.elements_out), 0, 0.0
    if op.work is not None:
        assert step.technology is not None
        flops, slots, cycles = 0, 0, ceil(op.work.lane_cycles / machine.vector_lanes)
        operator_energy_j = work_j(op.work, step.technology)
    elif replaced is not None:
        assert step.technology is not None
        flops, slots = max(flops - replaced.elements, 0), max(slots - replaced.elements, 0)
        cycles = replaced.cost.cycles_of(replaced.elements, machine.vector_lanes)
        operator_energy_j = replaced.elements * operator_j(replaced.cost, step.technology)
    read = sum(load * count for load, count in zip(loads, passes, strict=True))
    buffer = rates.buffers[-1]
    port_bytes = read + sum(stores) if buffer.has_one_port else max(read, sum(stores))
    return Work(
        unit="vector",
        cycles=max(cycles + ceil(slots / machine.vector_lanes), ceil(port_bytes / buffer.bytes_per_cycle)),
        operations_j=flops * rates.vector_j + operator_energy_j,
        loads=loads,
        stores=stores,
        bytes_sram=read + sum(stores),
        peak_flops_s=machine.vector_lanes * machine.clock_ghz * 1e9,
    )
