"""A processing unit of 16 lanes that adds its products in pairs and truncates each pair: accuracy and price.

The unit takes 16 pairs of 8-bit fixed-point codes. Each two products are added, the lowest bits of the pair are cut
off, and the eight pairs are added to the running sum. The emulator trains with it, and the simulator prices a step on
an array whose cells are such units, with an energy that the engineer gives.

    python examples/paired_adder_unit.py
"""

from dataclasses import replace

import torch
from msgspec.structs import replace as with_fields

import presilicon as ps
from presilicon.designs import Numerics, ProductNumerics, RoleFormat, load_design
from presilicon.formats import MacUnit, ProcessingUnit, UserFormat, parse
from presilicon.workloads import capture_workload

LANES = 16
OPERAND = RoleFormat(parse("fixed(integer=3, fraction=5)"))  # 8 bits in steps of 1/32


def as_float(code):
    """A register of 20 bits in steps of 1/1024, the product of two operands' steps."""
    return (code - ((code & 0x80000) << 1)) / 1024.0


def convert(value):
    return int(max(min(value * 1024.0, 524287.0), -524288.0)) & 0xFFFFF


REGISTER = UserFormat("register20", (("x", 20),), as_float, convert)


def unit(dropped: int) -> ProcessingUnit:
    """The unit that cuts off so many bits of each pair."""

    def mad(a, b, c):
        total = c - ((c & 0x80000) << 1)
        for lane in range(0, LANES, 2):
            pair = 0
            for k in range(lane, lane + 2):
                x, y = a[k] - ((a[k] & 0x80000) << 1), b[k] - ((b[k] & 0x80000) << 1)
                pair += (x >> 5) * (y >> 5)  # operands in steps of 1/32
            total += pair >> dropped << dropped
        return max(min(total, 524287), -524288) & 0xFFFFF

    energy = 16 * 0.2 + 8 * 0.03 * (20 - dropped) / 20  # multipliers, and adders as wide as what is kept
    return ProcessingUnit(f"pairs16_{dropped}", REGISTER, lanes=LANES, mad=mad, depth=4, energy_pj=energy)


def numerics(dropped: int) -> Numerics:
    """Forward products by the unit; the backward products and the update are float32."""
    mac = MacUnit(unit=unit(dropped))
    return Numerics(weight=OPERAND, activation=OPERAND, forward=ProductNumerics(mac=mac))


def main() -> None:
    torch.set_num_threads(2)
    workload = replace(ps.load_workload("digits-mlp"), max_steps=200)
    graph = capture_workload(workload)
    array = load_design("fp32-systolic", ["machine.rows=8", "machine.cols=8"])
    rows = [("float32", Numerics())] + [(f"{dropped} bits cut off", numerics(dropped)) for dropped in (0, 4, 6, 7)]
    print(f"{'digits-mlp, 200 steps':24} {'last loss':>10} {'test':>7} {'us/step':>9} {'MAC nJ/step':>12}")
    for name, row in rows:
        trace = ps.train(workload, row, seed=0)
        cost = ps.simulate(graph, with_fields(array, numerics=row))
        time, energy = cost.time_s * 1e6, cost.energy_by_component_j["mac"] * 1e9
        print(f"{name:24} {trace.losses[-1]:10.3f} {trace.test_value:7.1%} {time:9.1f} {energy:12.1f}")
    print(f"\n{array.machine.numerics_remarks(rows[-1][1])[0]}")


if __name__ == "__main__":
    main()
