"""The area of CATERPILLAR: processing elements with their memories, and what connects them."""

from itertools import product

from presilicon.designs import CaterpillarMachine, Design, Technology
from presilicon.records import PHASES, Area
from presilicon.simulation.area import mac_area_um2, register_area_um2, sram_area_um2
from presilicon.simulation.macs import OPERANDS


def caterpillar_area(design: Design, machine: CaterpillarMachine, technology: Technology) -> Area:
    """MAC units as wide as the widest product of any layer at any time needs, registers, and two memories in each PE.

    A PE has registers for two operands in every stage of its MAC unit, for the sum, and for what its port reads ahead
    and writes late. Buses and ring are in the overhead on logic. The second port of MEM B is not counted.
    """
    assert technology.area is not None
    banks = machine.mem_a_banks
    macs, bits = [], []
    for numerics, phase in product(design.numerics.variants(), PHASES[:3]):
        mac = numerics.mac_of(phase)
        left, right = (numerics.of(role).format for role in OPERANDS[phase])
        macs.append(mac_area_um2(left, right, mac.accumulate, technology))
        operands = left.bits_per_element + right.bits_per_element
        bits.append(machine.mac_stages * operands + 3 * mac.accumulate.bits_per_element)
    logic = {
        "multipliers and adders": machine.pes * max(macs),
        "registers": machine.pes * register_area_um2(max(bits), technology),
    }
    parts = logic | {
        "control and wiring": technology.area.overhead.share * sum(logic.values()),
        "MEM A": machine.pes * banks * sram_area_um2(machine.mem_a_kib / banks, technology),
        "MEM B": machine.pes * sram_area_um2(machine.mem_b_kib, technology),
    }
    return Area(
        parts_mm2={name: um2 * 1e-6 for name, um2 in parts.items()},
        how=f"units, registers and SRAM of technology {technology.name}; no pads, no DRAM interface",
    )
