"""The area of a systolic machine, from the same units that its energy is counted from."""

from itertools import product

from presilicon.designs import Design, Technology
from presilicon.formats import parse
from presilicon.records import OPERANDS, PRODUCT_PHASES, Area
from presilicon.simulation.area import (
    area_table,
    mac_area_um2,
    operator_area_um2,
    register_area_um2,
)
from presilicon.simulation.systolic.machine import STATIONARY, Stationary, SystolicMachine

_MM2 = 1e-6
"""Square millimetres in a square micrometre."""


def systolic_area(design: Design, machine: SystolicMachine, technology: Technology) -> Area:
    """Cells for the widest product of any layer at any time; float32 multipliers and adders in the lanes; memories.

    A cell has a register for each operand of each of its lanes and one for the sum, and with fold overlap a second
    stationary register. A transposer has a register for a weight for every cell. Every lane of the vector unit has the
    operators of both passes. Of the network, the registers at the ports of its routers are counted.
    """
    count = machine.rows * machine.cols
    macs, first, second, sums = [], [], [], []
    flows: list[tuple[Stationary, ...]] = []
    variants = design.numerics.variants()
    for numerics, phase in product(variants, PRODUCT_PHASES):
        mac = numerics.mac_of(phase)
        dataflow = getattr(machine.dataflow, phase)
        flows.append(STATIONARY if dataflow == "best" else (dataflow,))
        a, b = (numerics.operand(role, phase).format for role in OPERANDS[phase])
        own = None if mac.unit is None else mac.unit.area_um2
        table = mac.lanes * mac_area_um2(a, b, mac.widest_sum, technology, slice_bits=mac.slice_bits)
        macs.append(table if own is None else own)
        first.append(mac.lanes * a.bits_per_element)
        second.append(mac.lanes * b.bits_per_element)
        sums.append(mac.widest_sum.bits_per_element)
    bits = max(first) + max(second) + max(sums)
    if machine.fold_overlap:
        stays = {"weight-stationary": second, "input-stationary": first, "output-stationary": sums}
        bits += max(stays[flow][index] for index, choices in enumerate(flows) for flow in choices)
    float32 = parse("float32")
    lane = mac_area_um2(float32, float32, float32, technology) + register_area_um2(3 * 32, technology)
    mux_bit = area_table(technology).mux_bit
    muxes = sum(
        (inputs - 1) * max(widths)
        for inputs, widths in zip(machine.sparsity.selected_inputs, (first, second), strict=True)
    )
    parts = {
        "multipliers and adders": count * max(macs),
        "registers": count * register_area_um2(bits, technology),
        "vector unit": machine.vector_lanes * lane,
    }
    if muxes and mux_bit is not None:
        parts["selection of operands"] = count * muxes * mux_bit.um2
    operators = design.numerics.make_operators()
    if operators:
        units = [cost for operator in operators for cost in (operator.cost, operator.backward_cost) if cost is not None]
        parts["operators"] = machine.vector_lanes * sum(operator_area_um2(cost, technology) for cost in units)
    if machine.transpose == "transposer":
        weight_bits = max(numerics.operand("weight", "input_grad").format.bits_per_element for numerics in variants)
        parts["transposer"] = count * register_area_um2(weight_bits, technology)
    cores = machine.cores
    parts = {name: cores.count * um2 for name, um2 in parts.items()}
    if cores.count > 1:
        parts["network"] = register_area_um2(cores.buffer_bits, technology)
    parts["control and wiring"] = area_table(technology).overhead.share * sum(parts.values())
    for memory in machine.levels:
        is_shared = cores.memory == "shared" and memory == machine.buffer
        copies = memory.copies(machine.rows, machine.cols) * (1 if is_shared else cores.count)
        parts[memory.name] = copies * memory.area_um2(technology)
    return Area(
        parts_mm2={name: um2 * _MM2 for name, um2 in parts.items()},
        how=f"units, registers and SRAM of technology {technology.name}; no pads, no DRAM interface",
    )
