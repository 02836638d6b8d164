"""Writes a MAC unit as a directory of SystemVerilog: sources, a sized top, a testbench with golden vectors, lists."""

from collections.abc import Sequence
from pathlib import Path

from presilicon.base import ConfigError, np, torch
from presilicon.formats import Float, Format, MacUnit
from presilicon.rtl.arithmetic.golden import Golden, golden_product
from presilicon.rtl.arithmetic.mac import mac_circuit
from presilicon.rtl.arithmetic.units import Circuit, Port, instance_text
from presilicon.rtl.project import cocotb_text, hex_text, port_row, range_text, tools_text, write_project
from presilicon.rtl.sources import fill, module_files

NAME = "mac"
MOST_ROWS = 8
SHORT_CHUNK = 128
"""Products of a chunk up to which the golden sums have more than two chunks."""


def write_mac(left: Format, right: Format, mac: MacUnit, directory: Path, *, outputs: int = 64) -> list[Path]:
    """Write everything that a project needs to use a MAC unit; returns the written files.

    Raises:
        ConfigError: the hardware cannot do it, or the directory cannot be written.
    """
    if not 1 <= outputs <= 4096:
        raise ConfigError(f"outputs must be from 1 to 4096, not {outputs}")
    circuit = mac_circuit(left, right, mac, outputs=outputs)
    golden = _golden(left, right, mac, outputs)
    title = f"{left} by {right}: {mac}."
    texts = {
        f"rtl/{NAME}_top.sv": top_text(circuit, title),
        f"tb/test_{NAME}.py": cocotb_text(NAME, _cocotb_test(circuit)),
        f"tb/{NAME}_tb.sv": _bench_text(circuit, golden),
        "tb/vectors.hex": hex_text(_rows(circuit, golden)),
        "tb/expected.hex": hex_text(golden.expected.tolist()),
        "README.md": _readme(circuit, title, mac, len(golden.expected)),
    }
    return write_project(directory, NAME, module_files(circuit.module), texts)


def _golden(left: Format, right: Format, mac: MacUnit, outputs: int) -> Golden:
    """A product of random matrices over three chunks, the last one short.

    Numbers lie far apart, and there are zeros. A few rows have the largest number (sums that overflow), subnormals, an
    infinity or NaN.
    """
    generator = torch.Generator().manual_seed(0)
    chunk = mac.rows or mac.chunk or SHORT_CHUNK
    depth = 2 * min(chunk, SHORT_CHUNK) + 3

    def matrix(rows: int) -> "torch.Tensor":
        scales = torch.exp2(torch.randint(-4, 5, (rows, depth), generator=generator))
        used = torch.rand(rows, depth, generator=generator) > 0.1
        return torch.randn(rows, depth, generator=generator) * scales * used

    def special(x: "torch.Tensor", fmt: Format) -> "torch.Tensor":
        """The matrix with special rows from the second one on, as far as it has rows; a row is a sum's operands."""
        largest, least = _ends(fmt)
        where = torch.rand(x.shape, generator=generator) < 0.5
        rows = (
            torch.where(where[1:2], largest, x[1:2].sign() * largest),
            torch.where(where[2:3], x[2:3], x[2:3].sign() * least),
            torch.where(torch.arange(depth) == depth // 3, torch.inf, x[3:4]),
            torch.where(torch.arange(depth) == depth // 2, torch.nan, x[4:5]),
            torch.where(torch.arange(depth) == depth - 2, -torch.inf, x[5:6]),
        )
        for index, row in enumerate(rows, start=1):
            x[index : index + 1] = row
        return x

    rows = max(count for count in range(1, MOST_ROWS + 1) if outputs % count == 0)
    a, b = special(matrix(rows), left), special(matrix(outputs // rows), right)
    return golden_product(left, right, mac, a, b)


def _ends(fmt: Format) -> tuple[float, float]:
    """The largest finite number of a format, and one below its normal ones; of formats without these, far ends."""
    if isinstance(fmt, Float):
        return fmt.max, fmt.min_normal / 2
    return 2.0**60, 2.0**-60


def _widths(ports: Sequence[Port]) -> list[tuple[str, int]]:
    return [(port.name, port.bits * port.count) for port in ports]


def top_text(circuit: Circuit, title: str) -> str:
    """The unit with its parameters set."""
    ports = [f"    input  logic {name}" for name in ("clock", "reset", "enable")]
    ports += [f"    input  logic {range_text(bits)}{name}" for name, bits in _widths(circuit.inputs)]
    ports += [f"    output logic {range_text(bits)}{name}" for name, bits in _widths(circuit.outputs)]
    names = ["clock", "reset", "enable", *(port.name for port in (*circuit.inputs, *circuit.outputs))]
    instance = instance_text(circuit, "unit", [f"      .{name}({name})" for name in names])
    port_text = ",\n".join(ports)
    head = f"// {title}\n// Written by `presilicon rtl mac`.\n"
    return f"{head}module {NAME}_top (\n{port_text}\n);\n{instance}\nendmodule\n"


def _rows(circuit: Circuit, golden: Golden) -> list[int]:
    """The inputs of each cycle as one number, the first port in the lowest bits; every sixth cycle is a bubble."""
    bubbles = np.arange(5, len(golden.rows["in_valid"]), 5)
    nothing = {"in_valid": 0, "in_first": 1, "in_last": 1}
    columns = {
        name: np.insert(codes, bubbles, nothing.get(name, codes[bubbles]), axis=0)
        for name, codes in golden.rows.items()
    }
    rows, low = [0] * len(columns["in_valid"]), 0
    for port in circuit.inputs:
        for index, codes in enumerate(columns[port.name].reshape(len(rows), port.count).tolist()):
            rows[index] |= sum(code << (low + port.bits * lane) for lane, code in enumerate(codes))
        low += port.bits * port.count
    return rows


def _bench_text(circuit: Circuit, golden: Golden) -> str:
    wires = [f"  wire {range_text(bits)}{name};" for name, bits in _widths(circuit.outputs)]
    pins, low = [], 0
    for name, bits in _widths(circuit.inputs):
        pins.append(f"      .{name}(row[{low}+:{bits}])")
        low += bits
    pins += [f"      .{name}({name})" for name, _ in _widths(circuit.outputs)]
    out = circuit.outputs[-1]
    return fill(
        "mac_tb.sv.in",
        rows=len(_rows(circuit, golden)),
        expected=len(golden.expected),
        row_bit=low - 1,
        out_bit=out.bits - 1,
        wires=wires,
        pins=",\n".join(pins),
    )


def _cocotb_test(circuit: Circuit) -> str:
    ports = [(port.name, port.bits * port.count) for port in circuit.inputs]
    return fill("cocotb_mac.py.in", ports=repr(ports))


def _readme(circuit: Circuit, title: str, mac: MacUnit, sums: int) -> str:
    lines = [port_row(NAME, name, "in", 1) for name in ("clock", "reset", "enable")]
    sliced = circuit.module == "presilicon_fmac"
    codes = "a sign above the widest mantissa, lane 0 lowest" if sliced else "codes, lane 0 lowest"
    for direction, ports in (("in", circuit.inputs), ("out", circuit.outputs)):
        for port in ports:
            width = str(port.bits) if port.count == 1 else f"{port.count} x {port.bits}"
            lines.append(port_row(NAME, port.name, direction, width, codes))
    note = (
        "\nEmulation leaves this unit to torch.matmul, which adds in an order of its own: only sums that are exact, or "
        "computed with `matmul(..., library=False)`, have equal bits. A unit with an order, as "
        '`order = "sequential"`, is emulated as the circuit adds.\n'
        if mac.is_float32
        else ""
    )
    return fill(
        "mac.md.in", title=title, ports=lines, latency=circuit.latency, note=note, tools=tools_text(NAME), sums=sums
    )
