"""The area of a design, from the same units that its energy is counted from."""

from itertools import product

from presilicon.base.errors import ConfigError
from presilicon.designs import (
    AreaTable,
    CaterpillarMachine,
    Dataflow,
    Design,
    RooflineMachine,
    SystolicMachine,
    Technology,
    curve_um2,
)
from presilicon.formats import Format, parse
from presilicon.records import PHASES, Area, OperatorCost
from presilicon.simulation.macs import OPERANDS, mac_sizes

_MM2 = 1e-6
"""Square millimetres in a square micrometre."""


def area(design: Design, technology: Technology | None = None) -> Area:
    """The area of the machine of `design` by its parts, or why it is not known.

    `technology` is a table in place of the one that the machine names.

    >>> from presilicon.designs import load_design
    >>> fp32, bf16 = area(load_design("fp32-systolic")).mm2, area(load_design("bf16-systolic")).mm2
    >>> bf16 < fp32
    True
    """
    technology = technology or design.technology
    if technology is not None and technology.area is None:
        return Area(parts_mm2={}, how=f"not known: technology {technology.name} has no areas")
    match design.machine:
        case SystolicMachine() as machine:
            assert technology is not None
            return _systolic_area(design, machine, technology)
        case CaterpillarMachine() as machine:
            from presilicon.simulation.caterpillar_area import caterpillar_area  # it is made of the units below

            assert technology is not None
            return caterpillar_area(design, machine, technology)
        case RooflineMachine() as machine:
            if machine.area_mm2 is None:
                return Area(parts_mm2={}, how="not known: the machine gives none")
            return Area(parts_mm2={"dies": machine.area_mm2 * machine.chips}, how="as the machine gives it")


def mac_area_um2(
    a: Format, b: Format, accumulate: Format, technology: Technology, *, slice_bits: int | None = None
) -> float:
    """Square micrometres of a multiplier of two such operands and an adder of such sums, without overhead.

    Raises:
        ConfigError: the table has no areas.
    """
    sizes = mac_sizes(a, b, accumulate, slice_bits=slice_bits)
    table = _table(technology)
    multiply = table.int_multiply if sizes.multiplier_is_integer else table.float_multiply
    add = table.int_add if sizes.adder_is_integer else table.float_add
    return curve_um2(multiply, sizes.multiplier_bits) + curve_um2(add, sizes.adder_bits)


def sram_area_um2(kib: float, technology: Technology) -> float:
    """Square micrometres of an SRAM of such a capacity, all that belongs to it included.

    Raises:
        ConfigError: the table has no areas.
    """
    return kib * 1024 * 8 * curve_um2(_table(technology).sram_bit, kib)


def register_area_um2(bits: float, technology: Technology) -> float:
    """Square micrometres of a register of so many bits, without overhead.

    Raises:
        ConfigError: the table has no areas.
    """
    return bits * _table(technology).register_bit.um2


def operator_area_um2(cost: OperatorCost, technology: Technology) -> float:
    """Square micrometres of the hardware of one operator, without overhead.

    A unit for division, root, exponential or logarithm is a multiplier and an adder that take several turns. Tables are
    bits of the smallest SRAM that the technology table knows.

    Raises:
        ConfigError: the table has no areas.
    """
    table = _table(technology)
    multipliers = (cost.multipliers + cost.special) * curve_um2(table.float_multiply, cost.significand_bits)
    adders = (cost.adders + cost.comparators + cost.special) * curve_um2(table.float_add, cost.bits)
    smallest = min(point.um2 for point in table.sram_bit if point.size == min(each.size for each in table.sram_bit))
    return multipliers + adders + cost.entries * cost.bits * smallest


def _table(technology: Technology) -> AreaTable:
    if technology.area is None:
        raise ConfigError(f"technology {technology.name} has no areas: add [area] to it, or take one that has them")
    return technology.area


def _systolic_area(design: Design, machine: SystolicMachine, technology: Technology) -> Area:
    """Cells as wide as the widest product of any layer needs at any time; float32 multipliers and adders; the buffer.

    A cell has a register for each operand and one for the sum, and with fold overlap a second one for what stays. A
    transposer has a register for a weight at every place of the array. Every lane has the operators of both passes.
    """
    count = machine.rows * machine.cols
    macs, first, second, sums = [], [], [], []
    flows: list[Dataflow] = []
    for numerics, phase in product(design.numerics.variants(), PHASES[:3]):
        mac = numerics.mac_of(phase)
        flows.append(getattr(machine.dataflow, phase))
        a, b = (numerics.of(role).format for role in OPERANDS[phase])
        macs.append(mac_area_um2(a, b, mac.accumulate, technology, slice_bits=mac.slice_bits))
        first.append(a.bits_per_element)
        second.append(b.bits_per_element)
        sums.append(mac.accumulate.bits_per_element)
    bits = max(first) + max(second) + max(sums)
    if machine.fold_overlap:
        stays = {"weight-stationary": second, "input-stationary": first, "output-stationary": sums}
        bits += max(stays[flow][place] for place, flow in enumerate(flows))
    float32 = parse("float32")
    lane = mac_area_um2(float32, float32, float32, technology) + register_area_um2(3 * 32, technology)
    parts = {
        "multipliers and adders": count * max(macs),
        "registers": count * register_area_um2(bits, technology),
        "vector unit": machine.vector_lanes * lane,
    }
    operators = numerics.make_operators()
    if operators:
        units = [cost for each in operators for cost in (each.cost, each.backward_cost) if cost is not None]
        parts["operators"] = machine.vector_lanes * sum(operator_area_um2(cost, technology) for cost in units)
    if machine.transpose == "transposer":
        weight_bits = numerics.weight.format.bits_per_element
        parts["transposer"] = count * register_area_um2(weight_bits, technology)
    parts["control and wiring"] = _table(technology).overhead.share * sum(parts.values())
    parts["sram"] = sram_area_um2(machine.sram_kib, technology)
    return Area(
        parts_mm2={name: um2 * _MM2 for name, um2 in parts.items()},
        how=f"units, registers and SRAM of technology {technology.name}; no pads, no DRAM interface",
    )
