"""`presilicon simulate`: the cost of one training step, or one matrix product, on a design."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import click
from msgspec import Meta, Struct

from presilicon.base import ConfigError
from presilicon.cli.options import json_option, options_of, refuse_options
from presilicon.study import Flag, RequestOptions

if TYPE_CHECKING:
    from presilicon.designs import Convention, Machine

_LARGEST_SIDE = 1 << 30
_LARGEST_ARRAY = 1 << 20
_SINGLE_DESIGN_OPTIONS = ("chakra", "topology", "memory_plot", "roofline_plot", "trace", "frames", "times")
_DATAFLOWS = ("weight-stationary", "input-stationary", "output-stationary", "row-stationary", "best")
_FILE = click.Path(dir_okay=False, path_type=Path)
_File = Annotated[Path | None, Flag(form=_FILE)]


class StepOptions(Struct, frozen=True, kw_only=True):
    """Options of the price of a step, and the files to write."""

    batch: Annotated[int | None, Meta(ge=1, le=_LARGEST_SIDE)] = None
    """Samples of a step, on all chips together."""
    # Without a text here, since they are options of `evaluate` too.
    accumulate: int | None = None
    clock_ghz: float | None = None
    ops: Annotated[int, Meta(ge=0)] = 12
    """How many ops to list."""
    checkpoint: Annotated[str | None, Flag(metavar="sqrt|N")] = None
    """Drop activations in N even segments, and recompute them."""
    times: Path | None = None
    """Times of ops from another simulator or a profiler, in place of ours: see docs/simulation.md."""
    chakra: _File = None
    """Write the step as a Chakra execution trace, as well."""
    topology: _File = None
    """Write the matrix products as a topology for SCALE-Sim (.csv)."""
    trace: _File = None
    """Write the step as a trace for Perfetto (.json, .json.gz)."""
    repeat: Annotated[int | None, Meta(ge=1, le=1_000_000)] = None
    """Steps in that trace: one in full, the others summed up."""
    memory_plot: _File = None
    """Draw the memory of the step over time (.png, .svg)."""
    roofline_plot: _File = None
    """Draw the ops under the roofs of the machine (.png, .svg)."""


@click.command("simulate")
@click.argument("design")
@click.option("--workload", metavar="NAME", help="See `presilicon list workloads`.")
@click.option("--gemm", metavar="MxKxN", help="In place of a workload: one product C[M,N] = A[M,K] B[K,N].")
@options_of(StepOptions)
@options_of(RequestOptions, "accumulate", "clock_ghz")
@click.option("--frames", type=_FILE, help="Write each cell in each cycle of a small --gemm (.json).")
@click.option("--array", metavar="ROWSxCOLUMNS", help="Size of the systolic array, in place of the design's.")
@click.option("--dataflow", type=click.Choice(_DATAFLOWS), help="Dataflow of every product, in place of the design's.")
@click.option("--fold-overlap/--no-fold-overlap", default=None, help="Whether loads hide behind streaming.")
@click.option(
    "--convention",
    type=click.Choice(["exact", "scale-sim"]),
    default="exact",
    help="Count the array's cycles as its cells need them, or as SCALE-Sim does.",
)
@click.option(
    "--numerics",
    metavar="NAME",
    help="Number formats in place of the design's own: see `presilicon list numerics`; or a TOML file of your own.",
)
@options_of(RequestOptions, "methods", "settings", "vary")
@json_option
@click.pass_context
def command(
    context: click.Context, /, design: str, workload: str | None, gemm: str | None, frames: Path | None,
    array: str | None, dataflow: str | None, fold_overlap: bool | None, convention: str, numerics: str | None,
    methods: tuple[str, ...], settings: tuple[str, ...], vary: tuple[str, ...], as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Price one training step of a workload, or one matrix product, on DESIGN: time, energy and traffic.

    \b
    Examples:
      presilicon simulate bf16-systolic --workload digits-cnn --batch 256
      presilicon simulate bf16-systolic --workload resnet50 --checkpoint sqrt --trace step.json.gz
      presilicon simulate bf16-systolic --gemm 512x256x128 --array 32x32 --dataflow output-stationary
      presilicon simulate bf16-systolic --workload digits-cnn --vary machine.rows=32,64 --json
      presilicon simulate bf16-systolic --gemm 4x4x4 --array 4x4 --frames cells.json
    """
    if (workload is None) == (gemm is None):
        raise ConfigError("give either --workload NAME or --gemm MxKxN, as in --gemm 512x256x128")
    sides = None if gemm is None else _sizes("--gemm", gemm, "MxKxN", 3, _LARGEST_SIDE)
    array_sides = None if array is None else _sizes("--array", array, "ROWSxCOLUMNS", 2, _LARGEST_ARRAY)
    if sides is not None:
        refuse_options(context, StepOptions.__struct_fields__, "is for --workload; a single product has no step")
    elif frames is not None:
        raise ConfigError("--frames is for --gemm: the cells of a small product, as in --gemm 4x4x4 --array 4x4")
    step = StepOptions(**options)
    if step.checkpoint not in (None, "sqrt") and not re.fullmatch("0*([2-9]|[1-9][0-9]{1,8})", step.checkpoint):
        raise ConfigError(f"--checkpoint {step.checkpoint[:60]!r}: give sqrt, or a number of segments of at least 2")
    if step.repeat is not None and step.trace is None:
        raise ConfigError("--repeat is for --trace: how many steps the trace covers")
    if step.clock_ghz is not None and step.times is None:
        raise ConfigError("--clock-ghz is for --times: it turns the cycles of that file into seconds")

    from presilicon.cli.simulate_outputs import print_products, print_steps
    from presilicon.designs import load_design, vary_designs

    made: list[str] = []
    if array is not None or dataflow is not None or fold_overlap is not None:
        made = _array_settings(design, load_design(design).machine, array_sides, dataflow, fold_overlap)
        given = {setting.partition("=")[0].strip() for setting in settings}
        if twice := [path for setting in made if (path := setting.partition("=")[0].strip()) in given]:
            several = "--array, --dataflow or --fold-overlap"
            raise ConfigError(f"{twice[0]} is given by --set and by {several}: give it once")
    if sides is not None and dataflow is not None:
        made.append("machine.transpose=free")  # a single product transposes nothing
    try:
        designs = vary_designs(design, [*settings, *made], vary, numerics=numerics, methods=methods)
    except ConfigError as error:
        raise ConfigError(_as_typed(str(error), made, array, dataflow, fold_overlap)) from None
    if len(designs) > 1:
        refuse_options(context, _SINGLE_DESIGN_OPTIONS, "is for one design; leave it or --vary out")
    counted = cast("Convention", convention)
    if sides is not None:
        print_products(sides, designs, counted, frames, as_json)
    else:
        print_steps(str(workload), designs, counted, step, as_json)


def _array_settings(
    design: str, machine: "Machine", sides: tuple[int, ...] | None, dataflow: str | None, overlap: bool | None
) -> list[str]:
    try:
        return machine.array_settings(None if sides is None else (sides[0], sides[1]), dataflow, overlap)
    except ConfigError:
        raise ConfigError(
            f"--array, --dataflow and --fold-overlap are for systolic arrays; the machine of {design} is a "
            f"{machine.kind}: change it with --set machine.FIELD=VALUE, or take a systolic design such as bf16-systolic"
        ) from None


def _as_typed(message: str, made: Sequence[str], array: str | None, dataflow: str | None, overlap: bool | None) -> str:
    """An error with the options that were typed in place of the settings that were made of them."""
    options = {"--array": array, "--dataflow": dataflow}
    typed = [f"{option} {value}" for option, value in options.items() if value is not None]
    typed += [] if overlap is None else ["--fold-overlap" if overlap else "--no-fold-overlap"]
    return message.replace(" ".join(made), " ".join(typed)) if made else message


def _sizes(option: str, text: str, form: str, count: int, largest: int) -> tuple[int, ...]:
    parts = text.lower().split("x")
    if len(parts) != count or not all(re.fullmatch("[0-9]{1,100}", part) for part in parts):
        raise ConfigError(f"{option} {text[:60]!r}: write {count} whole numbers as {form}, as in {_EXAMPLES[option]}")
    sizes = tuple(int(part) for part in parts)
    for size in sizes:
        if not 1 <= size <= largest:
            raise ConfigError(f"{option} {text[:60]!r}: {size} is not between 1 and {largest}")
    return sizes


_EXAMPLES = {"--gemm": "512x256x128", "--array": "32x32"}
