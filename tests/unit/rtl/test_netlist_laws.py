"""Clock and energy of a circuit of five gates and two flip-flops, by hand and by a walk through its cycles."""

import random

import numpy as np
import pytest

from presilicon.rtl.cells import Arc, CellLibrary, FlipFlop, LibraryGate
from presilicon.rtl.netlist import (
    INPUT_SLEW_NS,
    OUTPUT_LOAD_PF,
    Gate,
    Netlist,
    longest_path_ns,
    net_loads_pf,
    read_netlist,
    toggle_energy,
)

SLEWS, LOADS = (0.0, 1.0), (0.0, 1.0)


def arc(rise: float, fall: float, per_pf: float, per_slew: float, edge: float) -> Arc:
    """Delays that grow with the load and the slew: the tables' bilinear interpolation is exact."""

    def table(base: float, load: float, slew: float) -> tuple[float, ...]:
        return tuple(base + load * at_load + slew * at_slew for at_slew in SLEWS for at_load in LOADS)

    edges = table(edge, 1.0, 0.0)
    return Arc("positive_unate", table(rise, per_pf, per_slew), table(fall, per_pf, per_slew), edges, edges)


def cell(function: str, pf: dict[str, float], energy_fj: float, *arcs: Arc) -> LibraryGate:
    return LibraryGate(1.0, "Y", function, pf, energy_fj, dict(zip(pf, arcs, strict=True)))


LIBRARY = CellLibrary(
    library="by hand", source="", volts=2.0, slews_ns=SLEWS, loads_pf=LOADS,
    cells={
        "inv": cell("!A", {"A": 0.010}, 1.0, arc(0.10, 0.20, 1.0, 0.5, 0.02)),
        "nand": cell("!(A & B)", {"A": 0.020, "B": 0.030}, 2.0, arc(0.30, 0.25, 2.0, 0.5, 0.03),
                     arc(0.40, 0.10, 2.0, 0.5, 0.08)),
        "xor": cell("A ^ B", {"A": 0.040, "B": 0.050}, 4.0, arc(0.60, 0.50, 3.0, 1.0, 0.05),
                    arc(0.20, 0.70, 3.0, 1.0, 0.01)),
        "buf": cell("A", {"A": 0.060}, 8.0, arc(1.00, 0.90, 4.0, 0.0, 0.02)),
    },
    flip_flops={"dff": FlipFlop(1.0, (0.5, 2.5), setup_ns=0.07, clock_pf=0.002, clock_fj=3.0, energy_fj=16.0)},
)  # fmt: skip
IN_VALID, X, OUT_VALID, Q, INVERTED, BOTH, NEXT, OUT, ENABLE = range(2, 11)
NETLIST = Netlist(
    gates=(
        Gate("inv", INVERTED, (X,)),
        Gate("nand", BOTH, (INVERTED, Q)),
        Gate("xor", NEXT, (BOTH, X)),
        Gate("buf", OUT, (Q,)),
        Gate("inv", 11, (OUT,)),
    ),
    flip_flops=((Q, NEXT), (OUT_VALID, IN_VALID)),
    ports={"in_valid": (IN_VALID,), "x": (X,), "out": (OUT,), "out_valid": (OUT_VALID,), "enable": (ENABLE,)},
)
OUTSIDE = OUTPUT_LOAD_PF
LOADS_BY_HAND = {
    IN_VALID: 0.002 + OUTSIDE,
    X: 0.010 + 0.050 + OUTSIDE,
    OUT_VALID: OUTSIDE,
    Q: 0.030 + 0.060,
    INVERTED: 0.020,
    BOTH: 0.040,
    NEXT: 0.002,
    OUT: 0.010 + OUTSIDE,
    ENABLE: OUTSIDE,
}


def test_every_pin_flip_flop_and_port_loads_its_net() -> None:
    assert net_loads_pf(NETLIST, LIBRARY) == pytest.approx(LOADS_BY_HAND)


def test_the_longest_path_is_the_one_found_by_hand() -> None:
    """From Q: 0.5 + 2 x 0.09 = 0.68 ns; an input comes as from a flip-flop with the largest load, after 2.5 ns."""
    q, x = 0.5 + 2 * 0.090, 2.5
    inverted = x + 0.20 + 1.0 * 0.020 + 0.5 * INPUT_SLEW_NS
    slew = 0.02 + 0.020
    both = max(inverted + 0.30 + 2 * 0.040 + 0.5 * slew, q + 0.40 + 2 * 0.040 + 0.5 * INPUT_SLEW_NS)
    slew = 0.08 + 0.040  # the slower edge of both inputs
    following = max(both + 0.60 + 3 * 0.002 + 1.0 * slew, x + 0.70 + 3 * 0.002 + 1.0 * INPUT_SLEW_NS)
    assert longest_path_ns(NETLIST, LIBRARY) == pytest.approx(following + 0.07)


def test_a_path_to_an_output_counts_like_one_to_a_flip_flop() -> None:
    slow = Netlist(
        gates=(Gate("buf", 5, (4,)), Gate("buf", 6, (5,)), Gate("inv", 7, (4,))),
        flip_flops=((4, 7),),
        ports={"out": (6,)},
    )
    q = 0.5 + 2 * (0.060 + 0.010)
    first = q + 1.00 + 4 * 0.060
    assert longest_path_ns(slow, LIBRARY) == pytest.approx(first + 1.00 + 4 * OUTSIDE + 0.07)
    inside = Netlist(slow.gates, slow.flip_flops, {})
    assert longest_path_ns(inside, LIBRARY) == pytest.approx(q + 0.20 + 0.002 + 0.5 * INPUT_SLEW_NS + 0.07)


def test_gates_follow_their_drivers_whatever_order_they_come_in() -> None:
    gates = {11: "inv", **{gate.output: gate.cell for gate in NETLIST.gates}}
    inputs = {gate.output: gate.inputs for gate in NETLIST.gates}
    cells = {}
    for output, kind in gates.items():
        pins = dict(zip("AB", ([net] for net in inputs[output]), strict=False))
        cells[f"cell{output}"] = {"type": kind, "connections": {"Y": [output], **pins}}
    cells |= {f"flop{q}": {"type": "dff", "connections": {"Q": [q], "D": [d], "CLK": [99]}}
              for q, d in NETLIST.flip_flops}  # fmt: skip
    ports = {name: {"bits": list(bits)} for name, bits in NETLIST.ports.items()}
    draw = random.Random(1)
    for _ in range(5):
        names = list(cells)
        draw.shuffle(names)
        found = read_netlist({"cells": {name: cells[name] for name in names}, "ports": ports}, LIBRARY)
        known = {net for bits in NETLIST.ports.values() for net in bits} | {q for q, _ in NETLIST.flip_flops}
        for gate in found.gates:
            assert set(gate.inputs) <= known
            known.add(gate.output)
        assert longest_path_ns(found, LIBRARY) == longest_path_ns(NETLIST, LIBRARY)


def walk(streams: np.ndarray) -> tuple[dict[int, int], list[int]]:
    """Toggles of each net from cycle to cycle, and the last valid result, one stream at a time."""
    toggles, results = dict.fromkeys(range(2, 12), 0), []
    for row in streams:
        nets, before, result = {Q: 0, OUT_VALID: 0}, None, 0
        for cycle in range(-2, len(row) + 2):
            given = 0 <= cycle < len(row)
            if before is not None:
                nets[Q], nets[OUT_VALID] = before[NEXT], before[IN_VALID]
            nets[X], nets[IN_VALID], nets[ENABLE] = (int(row[cycle]) if given else 0), int(given), int(cycle >= 0)
            nets[INVERTED] = 1 - nets[X]
            nets[BOTH] = 1 - (nets[INVERTED] & nets[Q])
            nets[NEXT], nets[OUT] = nets[BOTH] ^ nets[X], nets[Q]
            nets[11] = 1 - nets[OUT]
            if 0 < cycle < len(row):
                for net in toggles:
                    toggles[net] += nets[net] != before[net]
            if cycle >= 0 and nets[OUT_VALID]:
                result = nets[OUT]
            before = dict(nets)
        results.append(result)
    return toggles, results


@pytest.mark.parametrize(("streams", "cycles"), [(1, 2), (1, 9), (3, 5), (70, 8), (128, 3)])
def test_energy_is_that_of_each_toggle_and_of_every_clocked_cycle(streams: int, cycles: int) -> None:
    draw = np.random.default_rng(streams)
    bits = draw.integers(0, 2, (streams, cycles))
    energy = toggle_energy(NETLIST, LIBRARY, {"in_valid": np.ones_like(bits), "x": bits}, flush=2)
    toggles, results = walk(bits)
    inner = {INVERTED: 1.0, BOTH: 2.0, NEXT: 4.0, OUT: 8.0, 11: 1.0}
    half = 2.0**2 / 2 * 1000  # fJ per pF
    gates_fj = sum(toggles[net] * (fj + half * LOADS_BY_HAND.get(net, 0.0)) for net, fj in inner.items())
    flops_fj = sum(toggles[net] * (16.0 + half * LOADS_BY_HAND[net]) for net in (Q, OUT_VALID))
    clock_fj = 2 * streams * (cycles - 1) * (3.0 + 0.002 * 2.0**2 * 1000)
    assert energy.register_pj == pytest.approx((flops_fj + clock_fj) / 1000)
    assert energy.pj == pytest.approx((gates_fj + flops_fj + clock_fj) / 1000)
    assert energy.toggles == sum(toggles[net] for net in (*inner, Q, OUT_VALID))
    assert energy.cycles == streams * (cycles - 1)
    assert energy.results.tolist() == results
