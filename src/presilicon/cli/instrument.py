"""`presilicon instrument`: compile, disassemble and run firmware on the instrument's models."""

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from presilicon.base import DOCUMENT_SCHEMA, LARGEST_DATA, ConfigError, MissingToolError, located, read_file, write_file
from presilicon.cli.instrument_live import COMMANDS
from presilicon.cli.options import json_option, print_json

if TYPE_CHECKING:
    from presilicon.designs import Hardware
    from presilicon.instrument import Image

_FILE = click.Path(path_type=Path)
config_option = click.option(
    "--config",
    type=_FILE,
    required=True,
    metavar="C.json",
    help="The hardware: lanes, ranges, element, blocks, ... and range_boundaries.",
)
firmware_option = click.option(
    "--firmware", type=_FILE, required=True, metavar="F.json", help="A list of chains, each a list of instructions."
)


@click.group("instrument")
def command() -> None:
    """Program and run the on-chip debug instrument: see docs/instrument.md, and docs/firmware.md for its definition."""


@command.command("run")
@config_option
@firmware_option
@click.option(
    "--input",
    "vectors",
    type=_FILE,
    required=True,
    metavar="V.json",
    help='A list of {"vector": [...], "last": [...]}.',
)
@click.option(
    "--engine",
    type=click.Choice(["reference", "fast", "rtl"]),
    default="fast",
    help="Plain Python, compiled, or the circuit in Verilator; their results are identical.",
)
@json_option
def run(config: Path, firmware: Path, vectors: Path, engine: str, as_json: bool) -> None:
    """Run firmware on vectors, and show the blocks that leave the packer and the memories at the end.

    \b
    Example, the sum of every frame of two vectors:
      C.json  {"lanes": 4, "ranges": 4, "element": "fixed(16, 16)"}
      F.json  [[{"op": "vv_add", "addr": 0, "conditions": ["notfirst"]}, {"op": "v_cache", "addr": 0},
                {"op": "v_reduce"}, {"op": "v_commit", "size": 1, "conditions": ["last"]}]]
      V.json  [{"vector": [1, 2, 3, 4]}, {"vector": [5, 6, 7, 8], "last": [true, true]}]
      presilicon instrument run --config C.json --firmware F.json --input V.json
    """
    from presilicon.instrument import compile_firmware, read_firmware, read_hardware, read_vectors, to_words, values_of

    hardware, rows = read_hardware(config)
    program = read_firmware(firmware, rows)
    image = _compiled(firmware, lambda: compile_firmware(program, hardware))
    values, last, taps = read_vectors(vectors, hardware)
    model = _engine(engine, hardware)
    model.load(image.to_bytes())
    words, blocks = to_words(hardware, values), []
    begin = 0
    for end in range(1, len(taps) + 1):  # vectors of one tap that follow each other go in together
        if end == len(taps) or taps[end] != taps[begin]:
            blocks += list(model.feed(words[begin:end], last[begin:end], int(taps[begin])))
            begin = end
    document = {
        "schema": DOCUMENT_SCHEMA,
        "engine": engine,
        "packed_vectors": [_plain(values_of(hardware, block.words)) for block in blocks],
        "partial": _plain(values_of(hardware, model.partial)),
        "scratchpad": [_plain(row) for row in values_of(hardware, model.scratchpad)],
        "carried": _plain(values_of(hardware, model.carried)),
        "initiation_interval": image.initiation_interval(0),
        "warnings": list(image.warnings),
    }
    if hardware.taps > 1:
        document["taps"] = [block.tap for block in blocks]
        document["initiation_intervals"] = [image.initiation_interval(tap) for tap in range(hardware.taps)]
    if as_json:
        click.echo(json.dumps(document))
        return
    _print_run(document)


def _print_run(document: dict[str, Any]) -> None:
    click.echo(f"{_interval(document['initiation_interval'])}, {document['engine']} engine")
    _warn(document["warnings"])
    for number, row in enumerate(document["packed_vectors"]):
        tap = f" (tap {document['taps'][number]})" if "taps" in document else ""
        click.echo(f"block {number}{tap}: {_line(row)}")
    click.echo(f"still in the packer: {_line(document['partial'])}")
    for number, row in enumerate(document["scratchpad"]):
        if any(row):
            click.echo(f"scratchpad {number}: {_line(row)}")


def _interval(cycles: int) -> str:
    return f"initiation interval {cycles} cycle{'' if cycles == 1 else 's'}"


def _line(numbers: list[Any]) -> str:
    return " ".join(f"{number:.12g}" if isinstance(number, float) else str(number) for number in numbers) or "nothing"


@command.command("compile")
@config_option
@firmware_option
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The image file.")
@json_option
def compile_command(config: Path, firmware: Path, out: Path, as_json: bool) -> None:
    """Compile firmware into an image for the chip."""
    from presilicon.instrument import chain_text, compile_firmware, read_firmware, read_hardware

    hardware, rows = read_hardware(config)
    program = read_firmware(firmware, rows)
    image = _compiled(firmware, lambda: compile_firmware(program, hardware))
    data = image.to_bytes()
    write_file(out, data)
    chains = [{"chain": chain_text(chain), "bubbles": chain.bubbles} for chain in image.chains_of(0)]
    interval = image.initiation_interval(0)
    if as_json:
        warnings = list(image.warnings)
        print_json(image=str(out), bytes=len(data), initiation_interval=interval, chains=chains, warnings=warnings)
        return
    click.echo(f"{out}: {len(data)} bytes, {_interval(interval)}")
    _warn(image.warnings)
    for number, chain in enumerate(chains, start=1):
        click.echo(f"chain {number}: {chain['chain']}")


@command.command("disassemble")
@click.argument("image", type=_FILE)
@json_option
def disassemble_command(image: Path, as_json: bool) -> None:
    """Print the firmware and the ranges in an IMAGE that `compile` wrote."""
    from presilicon.instrument import disassemble

    data = read_file(image, LARGEST_DATA)
    with located(image):
        text = disassemble(data)
    if as_json:
        print_json(bytes=len(data), text=text.splitlines())
    else:
        click.echo(text)


@command.command("list")
@click.option("--config", type=_FILE, metavar="C.json", help="The hardware; without it 32 lanes and 32 ranges.")
@json_option
def list_command(config: Path | None, as_json: bool) -> None:
    """List the aggregations, with the chains and cycles that each takes on a hardware."""
    from presilicon.designs import Hardware
    from presilicon.instrument import describe_aggregations, read_hardware

    hardware = read_hardware(config)[0] if config else Hardware()
    rows = describe_aggregations(hardware)
    if as_json:
        print_json(aggregations=rows)
        return
    width = max(len(row["name"]) for row in rows)
    click.echo(f"{'aggregation':{width}}  chains  cycles  what it gives")
    for row in rows:
        if row["refused"]:
            click.echo(f"{row['name']:{width}}       -       -  {row['refused']}")
        else:
            click.echo(f"{row['name']:{width}}  {row['chains']:6}  {row['initiation_interval']:6}  {row['gives']}")


def _compiled(firmware: Path, compile_it: Any) -> "Image":
    """A compiled image; errors in the firmware name its file."""
    with located(firmware):
        image: Image = compile_it()
    if image.chains is None:
        raise ConfigError(f"{firmware}: the firmware has no chains; a chain is a list of instructions")
    return image


def _engine(name: str, hardware: "Hardware") -> Any:
    from presilicon.instrument import FastModel, Reference

    if name != "rtl":
        return Reference(hardware) if name == "reference" else FastModel(hardware)
    try:
        return import_module("presilicon.rtl").RtlModel(hardware)
    except ImportError as error:
        raise MissingToolError(
            f"the circuit cannot be run here ({error}); try --engine fast or pip install presilicon[rtl]"
        ) from None


def _plain(values: Any) -> list[Any]:
    """Numbers for JSON: is_whole ones as integers, infinities and NaN by name."""
    return [_plain_number(float(value)) for value in values]


def _plain_number(value: float) -> float | int | str:
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    is_whole = value == int(value) and abs(value) < 2**53 and str(value) != "-0.0"
    return int(value) if is_whole else value


def _warn(warnings: Any) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


for _live in COMMANDS:
    command.add_command(_live)
