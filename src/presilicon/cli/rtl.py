"""`presilicon rtl`: MAC units, systolic arrays and the instrument as SystemVerilog."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from presilicon.base import ConfigError, columns
from presilicon.cli.options import json_option, print_json, repeated, set_option

if TYPE_CHECKING:
    from presilicon.designs import Hardware, Numerics
    from presilicon.records import ProductPhase
    from presilicon.rtl import MacSynthesis, MacTarget

_DIRECTORY = click.Path(file_okay=False, path_type=Path)


@click.group("rtl")
def command() -> None:
    """Write MAC units, arrays and the instrument as SystemVerilog: docs/rtl-arithmetic.md, rtl-array.md, rtl.md."""


def _writes_circuit(function: Callable[..., None]) -> Callable[..., None]:
    """The argument DESIGN, and where and how its circuit is written."""
    out = click.option("--out", type=_DIRECTORY, required=True, metavar="DIR", help="Where the files go.")
    simulate = click.option("--simulate", is_flag=True, help="Run the written testbench in Verilator.")
    for option in (json_option, set_option, simulate, out, click.argument("design")):
        function = option(function)
    return function


@command.command("instrument")
@repeated("--other-clock", type=int, metavar="TAP", help="A tap in a clock of its own: it gets an asynchronous queue.")
@_writes_circuit
def instrument(
    design: str, out: Path, other_clock: tuple[int, ...], simulate: bool, settings: tuple[str, ...], as_json: bool
) -> None:
    """Write the instrument of DESIGN: sources, top level, testbench, constraints, file lists.

    DESIGN is a design with an [instrument] section, or a JSON file of hardware as `presilicon instrument run --config`
    takes it.
    """
    from presilicon.rtl import run_testbench, write_instrument

    hardware, blocks = _hardware(design, settings)
    written = write_instrument(hardware, out, other_clock=other_clock, output_blocks=blocks)
    result = run_testbench(out) if simulate else None
    _print_written("instrument", out, written, result, as_json)


def _hardware(design: str, settings: tuple[str, ...]) -> "tuple[Hardware, int | None]":
    """The hardware of a design or file, and the size of its output buffer in blocks."""
    if design.endswith(".json"):
        from presilicon.instrument import read_hardware

        if settings:
            raise ConfigError("--set needs a design; edit the JSON file of hardware instead")
        return read_hardware(Path(design))[0], None
    from presilicon.designs import load_design
    from presilicon.rtl import output_blocks

    instrument = load_design(design, settings).instrument
    if instrument is None:
        raise ConfigError(
            f"{design}: the design has no [instrument]; add one, as in `[instrument.hardware]` with `lanes = 16`"
        )
    return instrument.built, output_blocks(instrument)


def _print_written(
    name: str, out: Path, written: list[Path], testbench: str | None, as_json: bool, **fields: Any
) -> None:
    """Print the files of a circuit, and what its testbench said; `fields` are part of the JSON document only."""
    if as_json:
        files = [str(path.relative_to(out)) for path in written]
        print_json(directory=str(out), **fields, files=files, testbench=testbench)
        return
    readme = ", README.md" if out / "README.md" in written else ""
    click.echo(f"{len(written)} files in {out}: rtl/ (top: {name}_top), tb/, {name}.f, vivado.tcl, quartus.qip{readme}")
    if testbench:
        click.echo(f"testbench: {testbench}")


@command.command("mac")
@click.option(
    "--product",
    type=click.Choice(["forward", "input_grad", "weight_grad"]),
    default="forward",
    help="The product whose formats and MAC unit are built.",
)
@click.option("--layer", metavar="NAME", help="A layer with numerics of its own; others have the unit without it.")
@click.option(
    "--outputs",
    type=int,
    default=64,
    help="Sums that share the random words of stochastic rounding, and sums of the testbench.",
)
@_writes_circuit
def mac(
    design: str, out: Path, product: "ProductPhase", layer: str | None, outputs: int, simulate: bool,
    settings: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Write the MAC unit of DESIGN: sources, top level, testbench with golden vectors, file lists, README."""
    from presilicon.designs import load_design
    from presilicon.records import OPERANDS
    from presilicon.rtl import run_testbench, write_mac

    numerics = _numerics_of(load_design(design, settings).numerics, layer)
    roles = OPERANDS[product]
    left, right = (numerics.operand(role, product).format for role in roles)
    unit = numerics.unit_of(product, *roles)
    written = write_mac(left, right, unit, out, outputs=outputs)
    result = run_testbench(out, "mac") if simulate else None
    if not as_json:
        click.echo(f"{left} by {right}: {unit}")
    _print_written("mac", out, written, result, as_json, left=str(left), right=str(right), mac=str(unit))


def _numerics_of(numerics: "Numerics", layer: str | None) -> "Numerics":
    """The numerics of a layer at step 0, or of all layers without overrides; says so where others have their own.

    Raises:
        ConfigError: the layer has none of its own: a misspelt name would give the unit of all others.
    """
    from presilicon.records import Ends

    ends = Ends(first="first", last="last")
    changes = [change for change in numerics.schedule if layer is None or change.matches(layer, ends)]
    if changes:
        step = min(change.from_step for change in changes)
        click.echo(f"note: numerics change from step {step} on, which this leaves out", err=True)
    own = numerics.overrides if layer is None else (*numerics.overrides, *numerics.schedule)
    listing = ", ".join(f'"{pattern}"' for pattern in dict.fromkeys(entry.layers for entry in own))
    if layer is not None:
        if not any(entry.matches(layer, ends) for entry in own):
            raise ConfigError(
                f"--layer {layer}: the numerics have nothing of its own for it (layers with their own: "
                f"{listing or 'none'}); leave out --layer for the unit of all others"
            )
        return numerics.in_force(layer, ends=ends)
    if listing:
        click.echo(f"note: layers {listing} have numerics of their own, which this leaves out; see --layer", err=True)
    return numerics


@command.command("array")
@click.option("--layers", metavar="NAMES", default="", help="Layers that run on it, as in fc1,fc2, for the instrument.")
@click.option("--samples", type=int, default=256, show_default=True, help="Most samples of a product.")
@click.option("--features", type=int, default=1024, show_default=True, help="Most inputs or outputs of a layer.")
@_writes_circuit
def array(
    design: str, out: Path, layers: str, samples: int, features: int, simulate: bool, settings: tuple[str, ...],
    as_json: bool,
) -> None:  # fmt: skip
    """Write the systolic array of DESIGN, with its instrument: sources, testbenches with golden vectors, lists, README.

    It runs forward, input gradient and weight gradient of a linear layer with the weights in place: docs/rtl-array.md.
    """
    from presilicon.designs import load_design
    from presilicon.rtl import array_circuit, run_testbench, write_array

    names = [name.strip() for name in layers.split(",") if name.strip()]
    circuit = array_circuit(load_design(design, settings), names, samples=samples, features=features)
    written = write_array(circuit, out)
    result = run_testbench(out, "array") if simulate else None
    if not as_json:
        click.echo(f"{circuit.rows} x {circuit.cols} cells, operands in {circuit.operand}: {circuit.mac}")
    size, operand, unit = [circuit.rows, circuit.cols], str(circuit.operand), str(circuit.mac)
    _print_written("array", out, written, result, as_json, array=size, operand=operand, mac=unit)


@command.command("synth")
@click.argument("design")
@click.option(
    "--target",
    type=click.Choice(["ecp5", "cyclonev", "sky130"]),
    default="sky130",
    show_default=True,
    help="A Lattice ECP5 or Intel Cyclone V FPGA, or the standard cells of sky130_fd_sc_hd.",
)
@click.option("--layer", metavar="NAME", help="A layer with numerics of its own.")
@click.option(
    "--timeout", type=click.FloatRange(min=1), metavar="SECONDS", help="Time for each unit; what is finished is shown."
)
@set_option
@json_option
def synth(
    design: str, target: "MacTarget", layer: str | None, timeout: float | None, settings: tuple[str, ...],
    as_json: bool,
) -> None:  # fmt: skip
    """Synthesize the MAC units of DESIGN: cells, registers, area, clock, energy. Results are cached."""
    from presilicon.designs import load_design
    from presilicon.rtl import synthesize_units

    numerics = _numerics_of(load_design(design, settings).numerics, layer)
    units = synthesize_units(numerics, target, timeout_s=timeout)
    if as_json:
        document = [{"products": products, **to_builtins(unit)} for products, unit in units.items()]
        print_json(target=target, units=document)
        return
    for products, unit in units.items():
        click.echo(f"{', '.join(products)}: {unit.left} by {unit.right}: {unit.mac}")
        click.echo("  " + ", ".join(_unit_figures(unit)))
        if unit.unfinished:
            click.echo(f"  not known: {unit.unfinished}")


@command.command("energy")
@click.argument("design")
@click.option("--workload", required=True, metavar="NAME", help="The training whose operands are taken.")
@click.option("--steps", default="0,100", show_default=True, metavar="LIST", help="Training steps.")
@repeated("--layer", "layers", metavar="NAME", help="Only this layer.")
@click.option("--seed", type=int, default=0, show_default=True)
@set_option
@json_option
def energy(
    design: str, workload: str, steps: str, layers: tuple[str, ...], seed: int, settings: tuple[str, ...],
    as_json: bool,
) -> None:  # fmt: skip
    """Energy of the MAC units of DESIGN with the operands of an emulated training, by layer, product and step.

    Picojoules of a multiply-add in sky130_fd_sc_hd, without wires and glitches, beside those of normal random operands.
    """
    from presilicon.designs import load_design
    from presilicon.study import operand_energies
    from presilicon.workloads import load_workload

    try:
        numbers = sorted({int(step) for step in steps.split(",")})
    except ValueError:
        raise ConfigError(f"--steps must be whole numbers, as in 0,100, not {steps!r}") from None
    results = operand_energies(
        load_workload(workload), load_design(design, settings), numbers, layers=layers, seed=seed,
        progress=lambda text: click.echo(text, err=True),
    )  # fmt: skip
    if as_json:
        print_json(library="sky130_fd_sc_hd", energies=to_builtins(results))
        return
    rows: dict[tuple[str, ...], dict[int, str]] = {}
    for result in results:
        key = (result.layer, result.product, f"{result.left} by {result.right}", f"{result.random_pj:.2f}")
        rows.setdefault(key, {})[result.step] = f"{result.pj:.2f}"
    table = [("layer", "product", "operands", "random", *(f"step {step}" for step in numbers))]
    table += [(*key, *(by_step.get(step, "-") for step in numbers)) for key, by_step in rows.items()]
    click.echo("\n".join(["pJ per multiply-add", *columns(table, left=range(len(table[0])))]))


def _unit_figures(unit: "MacSynthesis") -> list[str]:
    figures = [
        ("{:.0f} um2", unit.area_um2),
        ("{:.0f} um2 per multiply-add", unit.mac_um2),
        ("{} LUTs", unit.luts),
        ("{} carries", unit.carries),
        ("{} multipliers", unit.multipliers),
        ("{} memory blocks", unit.memories),
        ("{} cells", unit.cells),
        ("{} registers", unit.registers),
        ("{:.1f} MHz", unit.fmax_mhz),
        ("{:.2f} pJ per multiply-add", unit.mac_pj),
        ("{:g} multiply-adds per cycle", unit.products_per_cycle),
    ]
    return [text.format(value) for text, value in figures if value is not None]


@command.command("tap")
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="USER.v...")
@click.option("--top", required=True, metavar="TOP", help="The design's top module.")
@click.option(
    "--signal",
    "signals",
    multiple=True,
    metavar="VECTOR:VALID[:LAST0[:LAST1]]",
    help="What to watch, by hierarchical names; vectors joined by + are lanes of one. May be repeated: the first has "
    "the highest priority. VALID and LAST are looked up beside the vector, then from the top; 1 is always.",
)
@repeated(
    "--param",
    "parameters",
    metavar="NAME=VALUE",
    help="A parameter of the top: an integer, a sized literal (8'h7f) or a text in double quotes.",
)
@click.option("--signals", "listing", is_flag=True, help="List the design's signals and stop.")
@click.option("--config", metavar="DESIGN", help="The instrument: a JSON file of hardware, or a design.")
@click.option("--frame-length", type=int, help="Vectors of a frame, for signals without end flags.")
@click.option("--clock", metavar="NAME", help="The clock input; found by its name otherwise.")
@click.option("--reset", metavar="NAME", help="The reset input, with ! before it if it is active low.")
@repeated(
    "--other-clock",
    type=int,
    metavar="TAP",
    help="A signal, counted from 0, of another clock: it gets an asynchronous queue.",
)
@repeated("--include", "-I", type=_DIRECTORY, help="Directory of included files.")
@click.option("--out", type=_DIRECTORY, metavar="DIR", help="Where the files go.")
@json_option
def tap(
    sources: tuple[Path, ...], top: str, signals: tuple[str, ...], parameters: tuple[str, ...], listing: bool,
    config: str | None, frame_length: int | None, clock: str | None, reset: str | None, other_clock: tuple[int, ...],
    include: tuple[Path, ...], out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Make signals of your own design outputs and put the instrument beside it.

    Writes the design flattened with the signals as outputs, the instrument, and TOP_instrumented, which has both.
    """
    from presilicon.rtl import Signal, list_signals, parse_parameters, tap_design

    values = parse_parameters(parameters)
    if listing:
        widths = list_signals(sources, top, include, values)
        if as_json:
            print_json(signals=widths)
        for name, width in widths.items() if not as_json else ():
            click.echo(f"{width:5} {name}")
        return
    if config is None or out is None:
        raise ConfigError("--config (the instrument) and --out (a directory) are needed, unless --signals is given")
    hardware, _ = _hardware(config, ())
    parsed = [Signal.parse(text) for text in signals]
    tapped = tap_design(
        sources, top, parsed, hardware, out,
        frame_length=frame_length, clock=clock, reset=reset, include=include, other_clock=other_clock,
        parameters=values,
    )  # fmt: skip
    if as_json:
        names = [str(path.relative_to(out)) for path in tapped.files]
        reset_document = {"name": tapped.reset, "active": "low" if tapped.reset_is_low else "high"}
        print_json(top=tapped.top, clock=tapped.clock, reset=reset_document, files=names)
        return
    active = "low" if tapped.reset_is_low else "high"
    click.echo(f"{len(tapped.files)} files in {out}; top: {tapped.top}, clock {tapped.clock}, reset {tapped.reset}")
    click.echo(f"reset is taken as active {active}; {len(parsed)} taps, compile firmware for {hardware.lanes} lanes")
