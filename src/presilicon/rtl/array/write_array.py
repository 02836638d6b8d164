"""Writes a systolic array as a directory of SystemVerilog: sources, a sized top, testbenches with golden vectors."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from presilicon.formats import BlockCodes, Format, encode, matmul, quantize
from presilicon.records import ProductPhase
from presilicon.rtl.array.circuit import ArrayCircuit
from presilicon.rtl.array.model import edge_vectors, weight_tiles
from presilicon.rtl.array.top import all_ports, host_ports, modules_of, top_text
from presilicon.rtl.project import tools_text, write_project
from presilicon.rtl.sources import module_files

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

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
    memories = {f"tb/{name}.hex": _hex(rows) for name, rows in golden.memories.items()}
    texts = {
        f"tb/{NAME}_tb.sv": _bench_text(circuit, golden),
        **memories,
        "tb/expected.hex": _hex(golden.expected),
        "README.md": _readme(circuit, title, golden),
    }
    modules = module_files(*modules_of(circuit))
    return write_project(directory, NAME, modules, top_text(circuit, title), texts, _cocotb_test(circuit, golden))


def _hex(rows: list[int]) -> str:
    return "\n".join(f"{row:x}" for row in rows) + "\n"


def _golden(circuit: ArrayCircuit) -> _Golden:
    """A layer of two tiles by two, the second ones short."""
    import numpy as np
    import torch

    rows, cols = circuit.rows, circuit.cols
    sizes = (2 * rows - 1, 2 * cols - 1)
    outputs, inputs = sizes if circuit.columns else sizes[::-1]
    samples = min(rows + 2, circuit.most_samples)
    generator = torch.Generator().manual_seed(0)

    def numbers(fmt: Format, *shape: int) -> "Tensor":
        scales = torch.exp2(torch.randint(-4, 5, shape, generator=generator))
        used = torch.rand(shape, generator=generator) > 0.1
        return quantize(torch.randn(shape, generator=generator) * scales * used, fmt)

    w = numbers(circuit.weight, outputs, inputs)
    x, e = numbers(circuit.activation, samples, inputs), numbers(circuit.error, samples, outputs)
    w_codes, x_codes = _codes(w, circuit.weight), _codes(x, circuit.activation)
    e_codes = _codes(e, circuit.error)
    factors: dict[ProductPhase, tuple[Tensor, Tensor]] = {
        "forward": (x, w.T), "input_grad": (e, w), "weight_grad": (e.T, x),
    }  # fmt: skip
    matrix = w_codes if circuit.columns else w_codes.T
    left, top = (e_codes, x_codes) if circuit.columns else (x_codes, e_codes)
    memories = {
        "weights": weight_tiles(matrix, rows, cols),
        "left": edge_vectors(left, rows),
        "top": edge_vectors(top, cols),
    }
    bits = {"weights": circuit.weight.bits, **{edge: fmt.bits for edge, fmt in circuit.edges.items()}}
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


def _codes(values: "Tensor", fmt: Format) -> "NDArray[np.int64]":
    import numpy as np

    encoded = encode(values, fmt)
    assert not isinstance(encoded, BlockCodes)
    return encoded.numpy().astype(np.int64)


def _joined(vectors: "NDArray[np.int64]", bits: int) -> list[int]:
    """Vectors of codes as one number each, lane 0 lowest."""
    return [sum(code << bits * lane for lane, code in enumerate(vector)) for vector in vectors.tolist()]


def _bench_text(circuit: ArrayCircuit, golden: _Golden) -> str:
    ports = [port for port in all_ports(circuit) if port[1] != "clock"]
    inputs = "\n".join(f"  logic {_range(bits)}{name} = '0;" for way, name, bits in ports if way == "input")
    outputs = "\n".join(f"  wire {_range(bits)}{name};" for way, name, bits in ports if way == "output")
    pins = ",\n".join(f"      .{name}({name})" for _, name, _ in all_ports(circuit))
    word = circuit.mac.accumulate.bits
    columns = int(circuit.columns)
    listens = "    stream_ready = 1;\n" if circuit.hardware else ""
    memories = "\n".join(
        f"  logic [{_width(circuit, name) - 1}:0] {name}_memory[{len(rows)}];" for name, rows in golden.memories.items()
    )
    reads = "\n".join(f'    $readmemh("tb/{name}.hex", {name}_memory);' for name in golden.memories)
    return f"""// Runs the three products of a layer of two by two tiles, with a stall in every seventh cycle, and
// compares the sums with emulation's.
`timescale 1ns / 1ps
module {NAME}_tb;
  localparam int ROWS = {circuit.rows}, COLS = {circuit.cols}, SAMPLES = {golden.samples}, LINES = {golden.lines};
  localparam int EXPECTED = {2 * 2 * golden.samples + 2 * 2 * circuit.rows};
{memories}
  logic [{_width(circuit, "out") - 1}:0] expected[6*LINES];
  logic clock = 0;
{inputs}
{outputs}
  always #5 clock = !clock;
  integer cycle = 0, seen = 0, errors = 0, cycles = 0, address, used, lane;
  {NAME}_top dut (
{pins}
  );

  // Memories answer in the next cycle.
  always @(posedge clock)
    if (enable) begin
      if (weights_read)
        weights <= weights_memory[(32'(weights_row_group)*2+32'(weights_column_group))*ROWS+32'(weights_row)];
      if (left_read) left <= left_memory[32'(left_group)*SAMPLES+32'(left_sample)];
      if (top_read) top <= top_memory[32'(top_group)*SAMPLES+32'(top_sample)];
    end

  // Signals change at the falling edge, so that no simulator has to order them.
  wire is_down = out_product == 2'd2 || out_product == 2'd{columns};
  wire [31:0] group = is_down ? 32'(out_column_group) : 32'(out_row_group);
  wire [31:0] line = out_product == 2'd2 ? 32'(out_row_group) * ROWS + 32'(out_row) : 32'(out_sample);
  always @(negedge clock)
    if (!reset && enable) begin
      if (running) cycles = cycles + 1;
      if (out_valid) begin
        address = (32'(out_product) * 2 + group) * LINES + line;
        used = (is_down ? COLS : ROWS) - group;  // the second tile is one lane short
        if (out_product != 2'd2 || line < 2 * ROWS - 1)
          for (lane = 0; lane < used; lane = lane + 1)
            if (out[lane*{word}+:{word}] !== expected[address][lane*{word}+:{word}]) begin
              if (errors < 10)
                $display("product %0d, line %0d, group %0d, lane %0d is %h, expected %h", out_product, line, group,
                         lane, out[lane*{word}+:{word}], expected[address][lane*{word}+:{word}]);
              errors = errors + 1;
            end
        seen = seen + 1;
      end
    end

  initial begin
{reads}
    $readmemh("tb/expected.hex", expected);
    enable = 1;
    reset = 1;
{listens}    repeat (4) @(negedge clock);
    reset = 0;
    products = 3'b111;
    samples = SAMPLES;
    last_row = 1;
    last_column = 1;
    rest_rows = ROWS - 1;
    rest_columns = COLS - 1;
    start = 1;
    @(negedge clock);
    start = 0;
    while (busy) begin
      enable = cycle % 7 != 6;
      cycle = cycle + 1;
      @(negedge clock);
    end
    if (seen != EXPECTED) begin
      $display("FAIL: %0d of %0d vectors came out", seen, EXPECTED);
      errors = errors + 1;
    end
    if (errors == 0) $display("PASS: %0d vectors as expected, %0d cycles of the array", seen, cycles);
    else $fatal(1, "FAIL: %0d errors", errors);
    $finish;
  end
endmodule
"""


def _width(circuit: ArrayCircuit, name: str) -> int:
    return next(bits for _, port, bits in all_ports(circuit) if port == name)


def _range(bits: int) -> str:
    return f"[{bits - 1}:0] " if bits > 1 else ""


def _cocotb_test(circuit: ArrayCircuit, golden: _Golden) -> str:
    idle = [name for way, name, _ in host_ports(circuit) if way == "input"]
    return f"""
ROWS, COLS, SAMPLES, LINES = {circuit.rows}, {circuit.cols}, {golden.samples}, {golden.lines}
BITS = {circuit.mac.accumulate.bits}
DOWN = {1 if circuit.columns else 0}
"The product whose sums move down."


def number(signal):
    return int(signal.value)


@cocotb.test()
async def products_equal_emulation(dut):
    memories = {{name: numbers(f"{{name}}.hex") for name in ("weights", "left", "top")}}
    expected, seen = numbers("expected.hex"), 0
    cocotb.start_soon(Clock(dut.clock, 10, "ns").start())
    for name in {["start", "resident", "weights", "left", "top", *(["layer"] if circuit.hardware else []), *idle]!r}:
        getattr(dut, name).value = 0
    dut.reset.value, dut.enable.value = 1, 1
    for _ in range(4):
        await FallingEdge(dut.clock)
    dut.reset.value = 0
    dut.products.value, dut.samples.value = 0b111, SAMPLES
    dut.last_row.value = dut.last_column.value = 1
    dut.rest_rows.value, dut.rest_columns.value = ROWS - 1, COLS - 1
    dut.start.value = 1
    await FallingEdge(dut.clock)
    dut.start.value = 0
    answers = {{}}
    while number(dut.busy):
        for name, row in answers.items():
            getattr(dut, name).value = row
        answers = {{}}
        if number(dut.weights_read):
            tile = number(dut.weights_row_group) * 2 + number(dut.weights_column_group)
            answers["weights"] = memories["weights"][tile * ROWS + number(dut.weights_row)]
        for name in ("left", "top"):
            if number(getattr(dut, f"{{name}}_read")):
                group, sample = number(getattr(dut, f"{{name}}_group")), number(getattr(dut, f"{{name}}_sample"))
                answers[name] = memories[name][group * SAMPLES + sample]
        if number(dut.out_valid):
            product = number(dut.out_product)
            is_down = product in (2, DOWN)
            group = number(dut.out_column_group if is_down else dut.out_row_group)
            line = number(dut.out_row_group) * ROWS + number(dut.out_row) if product == 2 else number(dut.out_sample)
            lanes = (COLS if is_down else ROWS) - group  # the second tile is one lane short
            if product != 2 or line < 2 * ROWS - 1:
                mask = (1 << BITS * lanes) - 1
                assert number(dut.out) & mask == expected[(product * 2 + group) * LINES + line] & mask
            seen += 1
        await FallingEdge(dut.clock)
    assert seen == 4 * SAMPLES + 4 * ROWS
"""


_MEANINGS = {
    "clock": "everything happens at its rising edge",
    "reset": "synchronous, active high: hold it for a cycle or more",
    "enable": "low: nothing moves",
    "start": "begins a job while `busy` is low",
    "products": "bits 0 to 2: forward, input gradient, weight gradient",
    "resident": "the cells hold the tile that this layer's forward product left; else 0",
    "samples": "vectors of the job",
    "last_row": "tiles along the rows of the weights, less one",
    "last_column": "tiles along the columns, less one",
    "rest_rows": "rows of the last tile that are used",
    "rest_columns": "columns of the last tile that are used",
    "busy": "until the last result is out",
    "running": "a cycle of the array",
    "running_product": "the product of that cycle",
    "layer": "number of the layer, for the instrument's taps",
    "weights": "codes of the row that was asked for in the cycle before, lane 0 lowest",
    "left": "codes of the vector that was asked for in the cycle before",
    "top": "codes of the vector that was asked for in the cycle before",
    "out_valid": "a vector of sums is complete",
    "out_row": "row of the tile, for weight gradients",
    "out": "codes, lane 0 lowest; lanes and rows beyond the matrix mean nothing",
    "controls": "32 bits for each register of the instrument, and 32 bits of 0",
}


def _readme(circuit: ArrayCircuit, title: str, golden: _Golden) -> str:
    lines = [
        f"| `{name}` | {'in' if way == 'input' else 'out'} | {bits} | {_MEANINGS.get(name, '')} |"
        for way, name, bits in all_ports(circuit)
    ]
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
    return f"""# A systolic array for linear layers

{title} Written by `presilicon rtl array`; `{NAME}_top` has the parameters set.

Forward, input gradient and weight gradient of a layer, with the weights in place. Rows of the weights' matrix are the
layer's {sides}: {left} come from the left, {top} from the top. {overlap} The memories of weights, {left} and {top}
answer in the cycle after `*_read`, and hold their answer while `enable` is low. Up to {circuit.most_samples} samples,
{circuit.rows << circuit.group_bits} rows and {circuit.cols << circuit.group_bits} columns.

| port | direction | bits | meaning |
|---|---|---|---|
{chr(10).join(lines)}

Codes are those of `presilicon.formats.encode`. A vector of the forward product and of the input gradient belongs to
`out_sample` and a group of columns or rows; a row of the weight gradient to `out_row` of tile `out_row_group`,
`out_column_group`.
{instrument}
{tools_text(NAME)}
The vectors are a layer of {golden.inputs} inputs and {golden.outputs} outputs with {golden.samples} samples.
"""
