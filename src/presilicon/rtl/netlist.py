"""A circuit mapped to standard cells: its longest path, and the energy of its toggles under given operands.

Both leave out wires. Toggles are those of settled values, one per cycle at most; glitches before are not counted.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from presilicon.base import RunFailedError, np
from presilicon.rtl.cells import Arc, CellLibrary, LibraryGate

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOW, HIGH = 0, 1
"""Nets of the constants; Yosys numbers nets from 2 on."""
INPUT_SLEW_NS = 0.05
OUTPUT_LOAD_PF = 0.005
FEMTO_PER_PICO = 1000.0


class Gate(Struct, frozen=True, array_like=True):
    """One cell: the net that it drives and those at its inputs, in the order of the library's pins."""

    cell: str
    output: int
    inputs: tuple[int, ...]


class Netlist(Struct, frozen=True):
    """Gates in an order in which every one follows those that drive it; flip-flops as pairs of output and input."""

    gates: tuple[Gate, ...]
    flip_flops: tuple[tuple[int, int], ...]
    ports: dict[str, tuple[int, ...]]


class CircuitEnergy(NamedTuple):
    """Energy of a simulated circuit, and the codes of its results."""

    pj: float
    """Of all streams and cycles."""
    register_pj: float
    """Share of it that flip-flops and their clock take."""
    cycles: int
    toggles: int
    """Of gates and flip-flops; the clock's are not counted, though its energy is."""
    results: "NDArray[np.int64]"
    """The last valid code of each stream."""


def read_netlist(module: Mapping[str, Any], library: CellLibrary) -> Netlist:
    """The netlist of a flat module in Yosys' JSON."""
    gates, flops = [], []
    for cell in module["cells"].values():
        pins = {name: _net(bits[0]) for name, bits in cell["connections"].items()}
        if cell["type"] in library.flip_flops:
            flops.append((pins["Q"], pins["D"]))
        elif cell["type"] in library.cells:
            kind = library.cells[cell["type"]]
            gates.append(Gate(cell["type"], pins[kind.output], tuple(pins[pin] for pin in kind.pins_pf)))
        else:
            raise RunFailedError(f"Yosys left a cell that {library.library} does not have: {cell['type']}")
    ports = {name: tuple(_net(bit) for bit in port["bits"]) for name, port in module["ports"].items()}
    return Netlist(_in_order(gates), tuple(flops), ports)


def _net(bit: int | str) -> int:
    """A net of Yosys' JSON; undefined bits are low."""
    return bit if isinstance(bit, int) else int(bit == "1")


def _in_order(gates: list[Gate]) -> tuple[Gate, ...]:
    drivers = {gate.output: gate for gate in gates}
    ordered: list[Gate] = []
    placed: set[int] = set()
    for gate in gates:
        stack = [gate]
        while stack:
            top = stack[-1]
            waiting = [drivers[net] for net in top.inputs if net in drivers and net not in placed]
            if waiting and top.output not in placed:
                stack.extend(waiting)
                continue
            stack.pop()
            if top.output not in placed:
                placed.add(top.output)
                ordered.append(top)
    return tuple(ordered)


def net_loads_pf(netlist: Netlist, library: CellLibrary) -> dict[int, float]:
    """Capacitance of the inputs on every net; outputs of the circuit drive a load of their own."""
    loads: dict[int, float] = {}
    for gate in netlist.gates:
        for net, pf in zip(gate.inputs, library.cells[gate.cell].pins_pf.values(), strict=True):
            loads[net] = loads.get(net, 0.0) + pf
    for _, data in netlist.flip_flops:
        loads[data] = loads.get(data, 0.0) + library.flip_flop.clock_pf
    for net in (net for bits in netlist.ports.values() for net in bits):
        loads[net] = loads.get(net, 0.0) + OUTPUT_LOAD_PF
    return loads


def longest_path_ns(netlist: Netlist, library: CellLibrary) -> float:
    """The shortest clock period: from the clock through a flip-flop and the slowest gates to the next one's setup.

    Inputs come and outputs go as if a flip-flop stood there. Rising and falling edges are not told apart: the slower
    one of every gate counts.
    """
    loads = net_loads_pf(netlist, library)
    flop = library.flip_flop
    start = _along(library.loads_pf, flop.delay_ns, library.loads_pf[1])
    arrival: dict[int, tuple[float, float]] = {
        output: (_along(library.loads_pf, flop.delay_ns, loads.get(output, 0.0)), INPUT_SLEW_NS)
        for output, _ in netlist.flip_flops
    }
    for gate in netlist.gates:
        cell = library.cells[gate.cell]
        load = loads.get(gate.output, 0.0)
        times = [
            _through(arc, arrival.get(net, (0.0 if net <= HIGH else start, INPUT_SLEW_NS)), load, library)
            for net, arc in zip(gate.inputs, cell.arcs.values(), strict=True)
        ]
        arrival[gate.output] = max(time for time, _ in times), max(slew for _, slew in times)
    ends = [data for _, data in netlist.flip_flops] + [net for bits in netlist.ports.values() for net in bits]
    return max(arrival[net][0] for net in ends if net in arrival) + flop.setup_ns


def _through(arc: Arc, at: tuple[float, float], load: float, library: CellLibrary) -> tuple[float, float]:
    time, slew = at
    delay = max(_between(library, table, slew, load) for table in (arc.cell_rise, arc.cell_fall))
    edge = max(_between(library, table, slew, load) for table in (arc.rise_transition, arc.fall_transition))
    return time + delay, edge


def _between(library: CellLibrary, table: Sequence[float], slew: float, load: float) -> float:
    length = len(library.loads_pf)
    rows = [_along(library.loads_pf, table[start : start + length], load) for start in range(0, len(table), length)]
    return _along(library.slews_ns, rows, slew)


def _along(axis: Sequence[float], values: Sequence[float], at: float) -> float:
    """Linear between the points, and beyond them on the last line."""
    index = min(max(bisect_right(axis, at) - 1, 0), len(axis) - 2)
    share = (at - axis[index]) / (axis[index + 1] - axis[index])
    return values[index] + share * (values[index + 1] - values[index])


def toggle_energy(
    netlist: Netlist, library: CellLibrary, rows: "Mapping[str, NDArray[np.int64]]", flush: int
) -> CircuitEnergy:
    """Simulate streams of operands side by side and count what the nets' toggles take from the supply.

    `rows` are codes by port: [streams, cycles], or [streams, cycles, lanes]; every port else is low, `enable` high.
    Before them comes a reset, at which the random words take the first `seed`; `flush` cycles without operands follow.
    """
    streams, cycles = rows["in_valid"].shape
    words = -(-streams // 64)
    nets = 2 + max([gate.output for gate in netlist.gates] + [net for bits in netlist.ports.values() for net in bits])
    values = np.zeros((nets + 1, words), np.uint64)
    values[HIGH] = ~np.uint64(0)
    inputs = {name: _waves(codes, len(netlist.ports[name])) for name, codes in rows.items() if name in netlist.ports}
    counts = np.zeros(len(values), np.int64)
    results = np.zeros(streams, np.int64)
    used = _waves(np.ones((streams, 1), np.int64), 1)[0, 0]
    kernels = [(_kernel(library.cells[gate.cell]), gate.output, gate.inputs) for gate in netlist.gates]
    outputs, data = (np.array(nets, np.int64) for nets in zip(*netlist.flip_flops, strict=True))
    for cycle in range(-2, cycles + flush):
        before = values.copy()
        values[outputs] = before[data]
        _set(values, netlist, "enable", cycle >= 0)
        _set(values, netlist, "reset", cycle < 0)
        for name, waves in inputs.items():
            is_given = 0 <= cycle < cycles or (cycle < 0 and name == "seed")
            values[list(netlist.ports[name])] = waves[max(cycle, 0)] if is_given else 0
        for kernel, output, nets_in in kernels:
            values[output] = kernel(*[values[net] for net in nets_in])
        if 0 < cycle < cycles:
            counts += np.bitwise_count((values ^ before) & used).sum(axis=1, dtype=np.int64)
        if cycle >= 0:
            valid = _streams(values[list(netlist.ports["out_valid"])], streams)
            results = np.where(valid, _streams(values[list(netlist.ports["out"])], streams), results)
    return _energy(netlist, library, counts, streams * (cycles - 1), results)


def _energy(
    netlist: Netlist, library: CellLibrary, counts: "NDArray[np.int64]", cycles: int, results: "NDArray[np.int64]"
) -> CircuitEnergy:
    loads, flop = net_loads_pf(netlist, library), library.flip_flop
    square = library.volts**2 * FEMTO_PER_PICO
    gates = [(gate.output, library.cells[gate.cell].energy_fj) for gate in netlist.gates]
    flops = [(output, flop.energy_fj) for output, _ in netlist.flip_flops]

    def switched(drivers: Sequence[tuple[int, float]]) -> float:
        return float(sum(counts[net] * (inner + loads.get(net, 0.0) * square / 2) for net, inner in drivers))

    clocked = len(flops) * cycles * (flop.clock_fj + flop.clock_pf * square)
    registers_pj = (switched(flops) + clocked) / FEMTO_PER_PICO
    toggles = int(sum(counts[net] for net, _ in (*gates, *flops)))
    return CircuitEnergy(switched(gates) / FEMTO_PER_PICO + registers_pj, registers_pj, cycles, toggles, results)


def _set(values: "NDArray[np.uint64]", netlist: Netlist, port: str, is_high: bool) -> None:
    for net in netlist.ports.get(port, ()):
        values[net] = values[HIGH] if is_high else values[LOW]


def _waves(codes: "NDArray[np.int64]", width: int) -> "NDArray[np.uint64]":
    """Codes [streams, cycles(, lanes)] as words of streams: [cycles, bits, words]."""
    lanes = codes.reshape(*codes.shape[:2], -1)
    bits = lanes[..., None] >> np.arange(width // lanes.shape[2]) & 1
    flat = bits.reshape(*codes.shape[:2], width).transpose(1, 2, 0).astype(np.uint8)
    padded = np.pad(flat, ((0, 0), (0, 0), (0, -len(codes) % 64)))
    return np.ascontiguousarray(np.packbits(padded, axis=2, bitorder="little")).view(np.uint64)


def _streams(words: "NDArray[np.uint64]", streams: int) -> "NDArray[np.int64]":
    """Codes of the streams from words of bits, the lowest first."""
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")[:, :streams]
    return np.left_shift(np.int64(1), np.arange(len(words), dtype=np.int64)) @ bits.astype(np.int64)


def _kernel(cell: LibraryGate) -> Callable[..., Any]:
    return _compile(cell.function, tuple(cell.pins_pf))


@cache
def _compile(function: str, pins: tuple[str, ...]) -> Callable[..., Any]:
    """A function in Liberty's notation as bitwise operations: the library's own text, which has only pins in it."""
    return eval(f"lambda {', '.join(pins)}: {function.replace('!', '~')}")  # type: ignore[no-any-return]
