"""Writes a systolic array as a directory of SystemVerilog: sources, a sized top, testbenches with golden vectors."""

from pathlib import Path
from typing import NamedTuple

from presilicon.base import np, torch
from presilicon.formats import BlockCodes, Float, Format, encode, matmul, quantize
from presilicon.records import ProductPhase
from presilicon.rtl.array.circuit import ArrayCircuit
from presilicon.rtl.array.model import edge_vectors, weight_tiles
from presilicon.rtl.array.top import all_ports, host_ports, modules_of, top_text
from presilicon.rtl.project import cocotb_text, hex_text, port_row, range_text, tools_text, write_project
from presilicon.rtl.sources import fill, module_files

NAME = "array"


class _Golden(NamedTuple):
    """A layer's three products: sizes, contents of the memories, and the results by address."""

    samples: int
    inputs: int
    outputs: int
    memories: dict[str, list[int]]
    """Weights [row groups, column groups, rows]; left and top [groups, samples]: a number per vector."""
    expected: list[int]
    """Vectors [product, group, line]; a line is a sample, or a row of the weight gradient."""
    lines: int
    """Lines of a group, of any product."""


def write_array(circuit: ArrayCircuit, directory: Path) -> list[Path]:
    """Write everything that a project needs to use an array; returns the written files.

    Raises:
        ConfigError: the directory cannot be written.
    """
    golden = _golden(circuit)
    formats = f"{circuit.activation} by {circuit.weight}, errors in {circuit.error}"
    title = f"{circuit.rows} x {circuit.cols} cells: {formats}; {circuit.mac}."
    memories = {f"tb/{name}.hex": hex_text(rows) for name, rows in golden.memories.items()}
    texts = {
        f"rtl/{NAME}_top.sv": top_text(circuit, title),
        f"tb/test_{NAME}.py": cocotb_text(NAME, _cocotb_test(circuit, golden)),
        f"tb/{NAME}_tb.sv": _bench_text(circuit, golden),
        **memories,
        "tb/expected.hex": hex_text(golden.expected),
        "README.md": _readme(circuit, title, golden),
    }
    return write_project(directory, NAME, module_files(*modules_of(circuit)), texts)


def _golden(circuit: ArrayCircuit) -> _Golden:
    """A layer of two tiles by two, the second ones short."""
    rows, cols = circuit.rows, circuit.cols
    sizes = (2 * rows - 1, 2 * cols - 1)
    outputs, inputs = sizes if circuit.columns else sizes[::-1]
    samples = min(rows + 2, circuit.most_samples)
    generator = torch.Generator().manual_seed(0)

    def numbers(fmt: Format, *shape: int, special: float) -> "torch.Tensor":
        """Numbers far apart, zeros; a row of the largest and the smallest numbers, and a special one at its end."""
        scales = torch.exp2(torch.randint(-4, 5, shape, generator=generator))
        used = torch.rand(shape, generator=generator) > 0.1
        x = torch.randn(shape, generator=generator) * scales * used
        x[0] = torch.where(x[0] > 0, 2.0**60, x[0].sign() * _least(fmt))
        x[-1, -1] = special
        return quantize(x, fmt)

    w = numbers(circuit.weight, outputs, inputs, special=1.0)
    x = numbers(circuit.activation, samples, inputs, special=torch.nan)
    e = numbers(circuit.error, samples, outputs, special=torch.inf)
    w_codes, x_codes = _codes(w, circuit.weight), _codes(x, circuit.activation)
    e_codes = _codes(e, circuit.error)
    factors: dict[ProductPhase, tuple[torch.Tensor, torch.Tensor]] = {
        "forward": (x, w.T), "input_grad": (e, w), "weight_grad": (e.T, x),
    }  # fmt: skip
    matrix = w_codes if circuit.columns else w_codes.T
    left, top = (e_codes, x_codes) if circuit.columns else (x_codes, e_codes)
    bits = {"weights": circuit.weight.bits, **{edge: fmt.bits for edge, fmt in circuit.edges.items()}}
    memories = {
        "weights": weight_tiles(_whole(matrix, bits["weights"], rows, cols), rows, cols),
        "left": edge_vectors(_whole(left, bits["left"], 1, rows), rows),
        "top": edge_vectors(_whole(top, bits["top"], 1, cols), cols),
    }
    lines = max(samples, 2 * rows)
    expected = []
    for phase, unit in circuit.units.items():
        values = _codes(matmul(*factors[phase], unit, library=False), circuit.mac.accumulate)
        if phase == "weight_grad" and not circuit.columns:
            values = values.T
        lanes = cols if phase == "weight_grad" or circuit.columns == (phase == "input_grad") else rows
        padded = np.zeros((lines, 2 * lanes), np.int64)
        padded[: len(values), : values.shape[1]] = values
        grouped = padded.reshape(lines, 2, lanes).transpose(1, 0, 2).reshape(-1, lanes)
        expected += _joined(grouped, circuit.mac.accumulate.bits)
    joined = {name: _joined(vectors, bits[name]) for name, vectors in memories.items()}
    return _Golden(samples, inputs, outputs, joined, expected, lines)


def _least(fmt: Format) -> float:
    """A number below the normal ones of a float; a small one of other formats."""
    return fmt.min_normal / 2 if isinstance(fmt, Float) else 2.0**-8


def _cycles(circuit: ArrayCircuit, samples: int) -> int:
    """Cycles of the array for three products of two tiles by two: loads or drains, and streams (docs/rtl-array.md)."""
    rows, tiles, chunk = circuit.rows, 4, circuit.chunk or samples
    fill = rows + circuit.cols - 2
    drains = tiles * -(-samples // chunk)
    loads = 1 if circuit.double else tiles
    moving = 2 * tiles * (samples + fill) + (2 * loads - 1) * rows
    return moving + tiles * samples + drains * fill + (1 if circuit.double else drains) * rows


def _codes(values: "torch.Tensor", fmt: Format) -> "np.typing.NDArray[np.int64]":
    encoded = encode(values, fmt)
    assert not isinstance(encoded, BlockCodes)
    return encoded.numpy().astype(np.int64)


def _whole(codes: "np.typing.NDArray[np.int64]", bits: int, rows: int, lanes: int) -> "np.typing.NDArray[np.int64]":
    """A matrix filled up to whole tiles with codes of ones, which the array must not use."""
    short = [(0, -size % step) for size, step in zip(codes.shape, (rows, lanes), strict=True)]
    return np.pad(codes, short, constant_values=(1 << bits) - 1)


def _joined(vectors: "np.typing.NDArray[np.int64]", bits: int) -> list[int]:
    """Vectors of codes as one number each, lane 0 lowest."""
    return [sum(code << bits * lane for lane, code in enumerate(vector)) for vector in vectors.tolist()]


def _bench_text(circuit: ArrayCircuit, golden: _Golden) -> str:
    ports = [port for port in all_ports(circuit) if port[1] != "clock"]
    inputs = "\n".join(f"  logic {range_text(bits)}{name} = '0;" for way, name, bits in ports if way == "input")
    outputs = "\n".join(f"  wire {range_text(bits)}{name};" for way, name, bits in ports if way == "output")
    pins = ",\n".join(f"      .{name}({name})" for _, name, _ in all_ports(circuit))
    word = circuit.mac.accumulate.bits
    columns = int(circuit.columns)
    listens = "    stream_ready = 1;\n" if circuit.hardware else ""
    memories = "\n".join(
        f"  logic [{_width(circuit, name) - 1}:0] {name}_memory[{len(rows)}];" for name, rows in golden.memories.items()
    )
    reads = "\n".join(f'    $readmemh("tb/{name}.hex", {name}_memory);' for name in golden.memories)
    return fill(
        "array_tb.sv.in",
        rows=circuit.rows,
        cols=circuit.cols,
        samples=golden.samples,
        lines=golden.lines,
        vectors=2 * 2 * golden.samples + 2 * 2 * circuit.rows,
        cycles=_cycles(circuit, golden.samples),
        memories=memories,
        out_bit=_width(circuit, "out") - 1,
        inputs=inputs,
        outputs=outputs,
        pins=pins,
        columns=columns,
        word=word,
        reads=reads,
        listens=listens,
    )


def _width(circuit: ArrayCircuit, name: str) -> int:
    return next(bits for _, port, bits in all_ports(circuit) if port == name)


def _cocotb_test(circuit: ArrayCircuit, golden: _Golden) -> str:
    idle = [name for way, name, _ in host_ports(circuit) if way == "input"]
    return fill(
        "cocotb_array.py.in",
        rows=circuit.rows,
        cols=circuit.cols,
        samples=golden.samples,
        lines=golden.lines,
        bits=circuit.mac.accumulate.bits,
        down=1 if circuit.columns else 0,
        idle=repr(["start", "resident", "weights", "left", "top", *(["layer"] if circuit.hardware else []), *idle]),
    )


def _readme(circuit: ArrayCircuit, title: str, golden: _Golden) -> str:
    lines = [port_row(NAME, name, "in" if way == "input" else "out", bits) for way, name, bits in all_ports(circuit)]
    sides = "outputs and columns are its inputs" if circuit.columns else "inputs and columns are its outputs"
    left, top = ("errors", "activations") if circuit.columns else ("activations", "errors")
    overlap = (
        "The next tile is loaded, and sums are drained, while operands stream."
        if circuit.double
        else "A tile is loaded, and sums are drained, while nothing streams."
    )
    taps = "".join(
        f"- tap {index}: {tap.role} of layer {tap.layer} (`{circuit.layers[tap.layer]}`)\n"
        for index, tap in enumerate(circuit.taps)
    )
    instrument = f"\nThe instrument is on the edges; compile firmware for it with the design.\n\n{taps}" if taps else ""
    return fill(
        "array.md.in",
        title=title,
        sides=sides,
        left=left,
        top=top,
        overlap=overlap,
        most_samples=circuit.most_samples,
        most_rows=circuit.rows << circuit.group_bits,
        most_columns=circuit.cols << circuit.group_bits,
        ports=lines,
        instrument=instrument,
        tools=tools_text(NAME),
        inputs=golden.inputs,
        outputs=golden.outputs,
        samples=golden.samples,
    )
