"""The top level of an array: `presilicon_linear` with its parameters set, and the instrument on its edges."""

from presilicon.rtl.arithmetic.units import LEAST_BITS
from presilicon.rtl.arithmetic.words import format_word
from presilicon.rtl.array.circuit import ArrayCircuit
from presilicon.rtl.project import range_text, settings_text
from presilicon.rtl.sources import fill, instrument_parameters, module_files

TOP = "array_top"
SIMULATED = "presilicon_sim_array"

Ports = list[tuple[str, str, int]]
"""Direction, name and width."""


def control_ports(circuit: ArrayCircuit) -> Ports:
    """Ports of a job: sizes in, progress out."""
    sample, group = circuit.sample_bits, circuit.group_bits
    ports = [
        ("input", "clock", 1), ("input", "reset", 1), ("input", "enable", 1), ("input", "start", 1),
        ("input", "products", 3), ("input", "resident", 1), ("input", "samples", sample + 1),
        ("input", "last_row", group), ("input", "last_column", group),
        ("input", "rest_rows", circuit.rows.bit_length()), ("input", "rest_columns", circuit.cols.bit_length()),
        ("output", "busy", 1), ("output", "running", 1), ("output", "running_product", 2),
    ]  # fmt: skip
    return ports if circuit.hardware is None else [*ports, ("input", "layer", 8)]


def memory_ports(circuit: ArrayCircuit) -> Ports:
    """Ports of the memories of weights, of both edges, and of the results."""
    sample, group, row = circuit.sample_bits, circuit.group_bits, (circuit.rows - 1).bit_length()
    lanes = max(circuit.rows, circuit.cols)
    edges: Ports = []
    for edge, count in (("left", circuit.rows), ("top", circuit.cols)):
        edges += [
            ("output", f"{edge}_read", 1), ("output", f"{edge}_sample", sample), ("output", f"{edge}_group", group),
            ("input", edge, count * circuit.edges[edge].bits),
        ]  # fmt: skip
    return [
        ("output", "weights_read", 1), ("output", "weights_row", row), ("output", "weights_row_group", group),
        ("output", "weights_column_group", group), ("input", "weights", circuit.cols * circuit.weight.bits),
        *edges,
        ("output", "out_valid", 1), ("output", "out_product", 2), ("output", "out_sample", sample),
        ("output", "out_row_group", group), ("output", "out_column_group", group), ("output", "out_row", row),
        ("output", "out", lanes * circuit.mac.accumulate.bits),
    ]  # fmt: skip


def host_ports(circuit: ArrayCircuit) -> Ports:
    """Ports of the instrument to its host."""
    if circuit.hardware is None:
        return []
    return [
        ("input", "config_valid", 1), ("output", "config_ready", 1), ("input", "config_data", 8),
        ("output", "stream_valid", 1), ("input", "stream_ready", 1), ("output", "stream_data", 8),
        ("output", "controls", 32 * circuit.hardware.controls + 32),
    ]  # fmt: skip


def all_ports(circuit: ArrayCircuit) -> Ports:
    """Every port of the top level."""
    return [*control_ports(circuit), *memory_ports(circuit), *host_ports(circuit)]


def modules_of(circuit: ArrayCircuit) -> list[str]:
    """The package's modules that the top level instantiates."""
    return ["presilicon_linear", *([] if circuit.hardware is None else ["presilicon_instrument", "presilicon_widen"])]


def files_of(circuit: ArrayCircuit) -> list[str]:
    """Names of the source files that the top level needs."""
    return [path.name for path in module_files(*modules_of(circuit))]


def port_text(direction: str, name: str, bits: int) -> str:
    """A port's declaration."""
    return f"    {direction:6} logic {range_text(bits)}{name}"


def top_text(circuit: ArrayCircuit, title: str) -> str:
    """The array with its parameters set, and its instrument."""
    ports = ",\n".join(port_text(*port) for port in all_ports(circuit))
    names = [name for _, name, _ in (*control_ports(circuit), *memory_ports(circuit)) if name != "layer"]
    wires = {name: name for name in names}
    left, top = (circuit.edges[edge].bits * lanes for edge, lanes in (("left", circuit.rows), ("top", circuit.cols)))
    shown = {"shown_first": 1, "shown_second": 1, "shown_last": 2, "shown_left": left, "shown_top": top}
    declared = "\n".join(f"  logic {range_text(bits)}{name};" for name, bits in shown.items())
    pins = ",\n".join(f"      .{name}({wire})" for name, wire in {**wires, **{name: name for name in shown}}.items())
    rest = _instrument_text(circuit) if circuit.hardware else f"  wire unused = &{{1'b0, {', '.join(shown)}}};"
    return f"""// {title}
// Written by `presilicon rtl array`.
module {TOP} (
{ports}
);
{declared}
  presilicon_linear #(
{settings_text(circuit.parameters())}
  ) linear (
{pins}
  );
{rest}
endmodule
"""


def _instrument_text(circuit: ArrayCircuit) -> str:
    hardware = circuit.hardware
    assert hardware is not None
    vector = hardware.lanes * hardware.element_bits
    parts = []
    for index, tap in enumerate(circuit.taps):
        edge = "left" if (tap.role == "activation") != circuit.columns else "top"
        fmt = circuit.edges[edge]
        shown = "shown_first" if tap.role == "activation" else "shown_second"
        parts.append(
            fill(
                "array_tap.sv.in",
                role=tap.role,
                layer=tap.layer,
                layer_name=circuit.layers[tap.layer],
                index=index,
                shown=shown,
                last=2 * index,
                lanes=hardware.lanes,
                format=format_word(fmt),
                element=format_word(hardware.element),
                edge=edge,
                bits=fmt.bits,
                data=index * vector,
                element_bits=hardware.element_bits,
            )
        )
    used = {"left" if (tap.role == "activation") != circuit.columns else "top" for tap in circuit.taps}
    roles = {"shown_first" if tap.role == "activation" else "shown_second" for tap in circuit.taps}
    unused = [f"shown_{edge}" for edge in ("left", "top") if edge not in used]
    unused += [name for name in ("shown_first", "shown_second") if name not in roles]
    unused_text = f"\n  wire unused = &{{1'b0, {', '.join(unused)}}};" if unused else ""
    parameters = {**instrument_parameters(hardware), "OUTPUT": circuit.output_blocks}
    pins = ",\n".join(f"      .{name}({name})" for _, name, _ in host_ports(circuit))
    return fill(
        "array_instrument.sv.in",
        tap_bit=hardware.taps - 1,
        last_bit=2 * hardware.taps - 1,
        data_bit=hardware.taps * vector - 1,
        taps=parts,
        settings=settings_text(parameters),
        count=hardware.taps,
        pins=pins,
        unused=unused_text,
    )


def simulated_text(circuit: ArrayCircuit) -> str:
    """The top level for co-simulation: numbers in 32 bits, vectors as arrays of words, a port for everything."""
    absent = [("input", "layer", 8), ("input", "config_valid", 1), ("output", "config_ready", 1),
              ("input", "config_data", 8), ("output", "stream_valid", 1), ("input", "stream_ready", 1),
              ("output", "stream_data", 8)]  # fmt: skip
    ports, pins, wires = [], [], []
    for direction, name, bits in all_ports(circuit):
        if name == "controls":
            pins.append("      .controls()")
            continue
        vector = name in ("weights", "left", "top", "out")
        wide = max(LEAST_BITS, bits) if vector else 32
        ports.append(port_text(direction, name, wide))
        if direction == "input":
            pins.append(f"      .{name}({name}[{bits - 1}:0])")
        else:
            wires.append(f"  logic [{bits - 1}:0] {name}_here;\n  assign {name} = {wide}'({name}_here);")
            pins.append(f"      .{name}({name}_here)")
    if circuit.hardware is None:
        for direction, name, _ in absent:
            ports.append(port_text(direction, name, 32))
            if direction == "output":
                wires.append(f"  assign {name} = '0;")
    joined, body, connected = ",\n".join(ports), "\n".join(wires), ",\n".join(pins)
    return f"module {SIMULATED} (\n{joined}\n);\n{body}\n  {TOP} top_level (\n{connected}\n  );\nendmodule\n"
