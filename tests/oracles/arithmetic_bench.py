"""Arithmetic units in Verilator: several circuits side by side, fed row by row."""

import ctypes
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from presilicon.rtl.arithmetic.units import Circuit, Port, instance_text, pack_bits, port_bits, port_codes
from presilicon.rtl.verilator import build

BENCH = "presilicon_units"
SOURCES = Path(str(find_spec("presilicon.rtl").origin)).parent / "sv"
_LEAST_BITS = 65
"""Verilator passes ports of more than 64 bits as arrays of 32-bit words: all ports are made so wide."""


def simulate_circuits(
    circuits: Sequence[Circuit],
    inputs: Sequence[Mapping[str, NDArray[np.int64]]],
    *,
    gap: float = 0.0,
    seed: int = 0,
    sources: Path = SOURCES,
) -> list[dict[str, NDArray[np.int64]]]:
    """The outputs of each circuit for a row of inputs per enabled cycle, `latency` cycles later.

    A port's rows are [rows], or [rows, count]; ports that are not named are 0. `gap` is the share of cycles in which
    the circuits stand still. The circuits are compiled together, once for each content.
    """
    rows = [max(len(column) for column in columns.values()) for columns in inputs]
    total = max(count + circuit.latency for count, circuit in zip(rows, circuits, strict=True))
    parts = [
        port_bits(port, columns.get(port.name), total)
        for circuit, columns in zip(circuits, inputs, strict=True)
        for port in circuit.inputs
    ]
    fed = pack_bits(np.concatenate(parts, axis=1))
    out_bits = max(_LEAST_BITS, sum(_width(circuit.outputs) for circuit in circuits))
    noted = np.zeros((total, -(-out_bits // 32)), np.uint32)
    library = _library(tuple(circuits), sources)
    library.units_run(
        *(ctypes.c_int64(total), ctypes.c_int64(fed.shape[1]), ctypes.c_void_p(fed.ctypes.data)),
        *(ctypes.c_int64(noted.shape[1]), ctypes.c_void_p(noted.ctypes.data)),
        *(ctypes.c_uint64(seed), ctypes.c_uint32(min(int(gap * 65536), 65000))),
    )
    bits = np.unpackbits(noted.view(np.uint8), axis=1, bitorder="little")
    results, low = [], 0
    for circuit, count in zip(circuits, rows, strict=True):
        columns = {}
        for port in circuit.outputs:
            width = port.bits * port.count
            codes = port_codes(port, bits[circuit.latency : circuit.latency + count, low : low + width])
            columns[port.name] = codes[:, 0] if port.count == 1 else codes
            low += width
        results.append(columns)
    return results


def _width(ports: Sequence[Port]) -> int:
    return sum(port.bits * port.count for port in ports)


@cache
def _library(circuits: tuple[Circuit, ...], sources: Path) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as temporary:
        top = Path(temporary) / f"{BENCH}.sv"
        top.write_text(bench_text(circuits))
        files = [*sorted(sources.rglob("presilicon_*.sv")), top]
        return build(BENCH, {}, files, sorted(sources.glob("presilicon_*.svh")), Path(__file__).with_name("units.cpp"))


def bench_text(circuits: Sequence[Circuit]) -> str:
    """A module with all circuits side by side between one row of input bits and one of output bits."""
    in_bits = max(_LEAST_BITS, sum(_width(circuit.inputs) for circuit in circuits))
    out_bits = max(_LEAST_BITS, sum(_width(circuit.outputs) for circuit in circuits))
    lines = [
        f"module {BENCH} (",
        "    input logic clock, input logic reset, input logic enable,",
        f"    input logic [{in_bits - 1}:0] in, output logic [{out_bits - 1}:0] out",
        ");",
    ]
    low_in = low_out = 0
    for index, circuit in enumerate(circuits):
        pins = ["      .clock, .enable" + (", .reset" if circuit.has_reset else "")]
        for port in circuit.inputs:
            pins.append(f"      .{port.name}(in[{low_in}+:{port.bits * port.count}])")
            low_in += port.bits * port.count
        for port in circuit.outputs:
            pins.append(f"      .{port.name}(out[{low_out}+:{port.bits * port.count}])")
            low_out += port.bits * port.count
        lines.append(instance_text(circuit, f"unit_{index}", pins))
    if low_out < out_bits:
        lines.append(f"  assign out[{out_bits - 1}:{low_out}] = '0;")
    return "\n".join([*lines, "endmodule", ""])
