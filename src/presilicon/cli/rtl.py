"""`presilicon rtl`: the instrument as SystemVerilog."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from presilicon.cli.options import json_option, set_option

if TYPE_CHECKING:
    from presilicon.designs import Hardware

_DIRECTORY = click.Path(file_okay=False, path_type=Path)


@click.group("rtl")
def command() -> None:
    """Write the instrument as SystemVerilog, for itself or into a design of yours: docs/rtl.md."""


@command.command("instrument")
@click.argument("design")
@click.option("--out", type=_DIRECTORY, required=True, metavar="DIR", help="Where the files go.")
@click.option(
    "--other-clock",
    type=int,
    multiple=True,
    metavar="TAP",
    help="A tap in a clock of its own: it gets an asynchronous queue. May be repeated.",
)
@click.option("--simulate", is_flag=True, help="Run the written testbench in Verilator.")
@set_option
@json_option
def instrument(
    design: str, out: Path, other_clock: tuple[int, ...], simulate: bool, settings: tuple[str, ...], as_json: bool
) -> None:
    """Write the instrument of DESIGN: sources, top level, testbench, constraints, file lists.

    DESIGN is a design with an [instrument] section, or a JSON file of hardware as `presilicon instrument run --config`
    takes it.
    """
    from presilicon.rtl.generate import write_instrument

    hardware, blocks = _hardware(design, settings)
    written = write_instrument(hardware, out, other_clock=other_clock, output_blocks=blocks)
    said = None
    if simulate:
        from presilicon.rtl.testbench import run_testbench

        said = run_testbench(out)
    if as_json:
        files = [str(path.relative_to(out)) for path in written]
        click.echo(json.dumps({"schema": 1, "directory": str(out), "files": files, "testbench": said}, indent=2))
        return
    click.echo(f"{len(written)} files in {out}: rtl/ (top: instrument_top), tb/, instrument.f, vivado.tcl, quartus.qip")
    if said:
        click.echo(f"testbench: {said}")


def _hardware(design: str, settings: tuple[str, ...]) -> "tuple[Hardware, int | None]":
    """The hardware that a name stands for, and how many blocks its output buffer holds."""
    from presilicon.base.errors import ConfigError

    if design.endswith(".json"):
        from presilicon.instrument.files import read_hardware

        if settings:
            raise ConfigError("--set changes designs; a JSON file of hardware is edited instead")
        return read_hardware(Path(design))[0], None
    from presilicon.designs import load_design

    found = load_design(design, settings)
    if found.instrument is None:
        raise ConfigError(
            f"{design}: the design has no [instrument]; add one, as in `[instrument.hardware]` with `lanes = 16`"
        )
    hardware = found.instrument.built
    block = 11 + hardware.lanes * ((hardware.word_bits + 7) // 8)
    blocks = max(16, found.instrument.output_bytes // block)
    return hardware, 1 << blocks.bit_length() - 1
