"""`presilicon schedule`: place and order the ops of a training step over several devices."""

from pathlib import Path
from typing import Annotated, Any

import click
from msgspec import Meta, Struct

from presilicon.base import ConfigError, to_plain, write_file
from presilicon.cli.options import json_option, options_of, print_json, refuse_options
from presilicon.study import ExecutionOptions, Flag, ScheduleOptions

_DEFAULT = "run"
_FILE = click.Path(dir_okay=False, path_type=Path)
_UNUSED = {
    "--rank": ("kind", "config", "fmax_table", "top", "tune", "settings", "out"),
    "--tune": ("shape", "config", "fmax_mhz", "fmax_table", "settings", "top"),
    "--config": ("fmax_table", "top", "device", "timeout", "out"),
    "this search, which builds no kernels": ("device", "timeout", "out"),
}
"""Options of `schedule kernels` that each way to use it would ignore."""


class KernelOptions(Struct, frozen=True, kw_only=True):
    """The options of `presilicon schedule kernels`."""

    kind: Annotated[str | None, Flag("op")] = None
    """Kind: MatMul (default), Conv2D, MaxPool, BiasAddGrad, ...; --tune: by default all."""
    shape: Annotated[str | None, Flag(metavar="AxBx...")] = None
    """Shape of the op: MxKxN of a MatMul; by default one of medium size."""
    config: Annotated[str | None, Flag(metavar="CU,SIMD,GROUP,UNROLL")] = None
    """Rate only this configuration, at --fmax-mhz."""
    fmax_mhz: float | None = None
    """Clock of --config."""
    fmax_table: Annotated[Path | None, Flag(form=_FILE)] = None
    """Clocks in a JSON file, [[cu, simd, unroll, MHz], ...]; by default a synthetic model, labelled as such."""
    top: Annotated[int, Meta(ge=1, le=1000)] = 5
    """Number of configurations to list."""
    settings: Annotated[tuple[str, ...], Flag("set", "FIELD=VALUE")] = ()
    """Override a figure of the board, as in --set dsps=1518."""
    tune: Annotated[int | None, Meta(ge=1, le=100_000), Flag(metavar="N")] = None
    """Try N configurations on --device, and store the best."""
    rank: Annotated[int | None, Meta(ge=3, le=1000), Flag(metavar="N")] = None
    """Time N configurations of MatMul on --device, beside LI."""
    device: str = "opencl:0.0"
    """OpenCL device of --tune and --rank, as opencl:PLATFORM.DEVICE."""
    timeout: Annotated[float, Meta(ge=1, le=3600)] = 20.0
    """Seconds for one configuration."""
    out: Annotated[Path | None, Flag(form=_FILE)] = None
    """Write --tune's table to this file instead."""


class _Schedule(click.Group):
    """A group that runs its default command if the first word is a system."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands:
            args = [_DEFAULT, *args]
        return super().parse_args(context, args)

    def list_commands(self, context: click.Context) -> list[str]:
        return [name for name in super().list_commands(context) if name != _DEFAULT]


class _Run(click.Command):
    """The default command, whose usage is that of `presilicon schedule`."""

    def format_usage(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage("presilicon schedule", "[OPTIONS] SYSTEM")


@click.group("schedule", cls=_Schedule, no_args_is_help=False, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Place and order the ops of a training step over several devices."""
    if context.invoked_subcommand is None:
        raise ConfigError("give a system, as in `presilicon schedule v100-3xs10 --workload resnet50`, or --help")


@command.command(
    _DEFAULT,
    cls=_Run,
    epilog="Also: `presilicon schedule characterize` measures a device of this machine, `presilicon schedule kernels` "
    "explores FPGA kernels.",
)
@click.argument("system")
@options_of(ScheduleOptions)
@click.option("--sensitivity", is_flag=True, help="Also report the results of all --sizes (greedy).")
@click.option("--usd-per-kwh", type=float, default=0.12, metavar="X", help="For the payback estimate.")
@click.option("--execute", is_flag=True, help="Train by the schedule on the real devices that the system names.")
@options_of(ExecutionOptions)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for chart, trace and table.")
@json_option
@click.pass_context
def run(
    context: click.Context, /, sensitivity: bool, usd_per_kwh: float, execute: bool, out: Path | None, as_json: bool,
    **options: Any,
) -> int:  # fmt: skip
    """Schedule a training step on SYSTEM: a preset (`presilicon list systems`) or a TOML file.

    \b
    Examples:
      presilicon schedule v100-3xs10 --workload resnet50 --objective energy
      presilicon schedule v100-3xs10 --workload resnet50 --objective throughput --power-cap 230 --out scheduled
      presilicon schedule v100-3xs10-ideal --graph step.json --solver exact --no-transfers --json
      presilicon schedule cpu-2xopencl --workload digits-cnn --objective throughput --execute --steps 50
    """
    from presilicon.cli.schedule_outputs import run_schedule
    from presilicon.study import ExecuteOptions, ScheduleRequest

    if options["workload"] is None:
        if sensitivity:
            raise ConfigError("--sensitivity is for --workload: it compares ways to give captured ops a size")
        refuse_options(context, ("sizing",), "is for --workload: the ops of a graph have sizes or work of their own")
    if options["solver"] != "greedy" and not sensitivity:
        refuse_options(context, ("candidate_rule", "literal"), "is for --solver greedy")
    if not 0 <= usd_per_kwh < 1e9:
        raise ConfigError(f"--usd-per-kwh must be a price of at least 0, not {usd_per_kwh:g}")
    execution = {name: options.pop(name) for name in ExecutionOptions.__struct_fields__}
    request = ScheduleRequest(**options)
    if execute and sensitivity:
        raise ConfigError("--sensitivity compares schedules, and --execute runs one: give either")
    if not execute:
        refuse_options(context, execution, "is for --execute")
    chosen = ExecuteOptions(**execution) if execute else None
    return run_schedule(request, chosen, sensitivity, usd_per_kwh, out, as_json)


@command.command("characterize")
@click.option(
    "--workload",
    required=True,
    metavar="NAME",
    help="Workload whose ops are measured: see `presilicon list workloads`.",
)
@click.option("--batch", type=click.IntRange(1, 1 << 24), help="Batch size, instead of the workload's own.")
@click.option(
    "--device", default="cpu", help="cpu, cuda, opencl, opencl:PLATFORM.DEVICE or opencl:0.0/1 (sub-device 1)."
)
@click.option("--name", help="Name of the device in the rows; by default cpu, gpu or opencl.")
@click.option("--repeats", type=click.IntRange(1, 1000), default=3, help="Number of timed steps.")
@click.option("--watts", type=float, help="Power of the device, if it cannot be read.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the table to this .toml file.")
@json_option
def characterize(
    workload: str, batch: int | None, device: str, name: str | None, repeats: int, watts: float | None,
    out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Time the ops of a workload on this machine, and write rows for a system's table.

    Power is read through NVML (CUDA) or RAPL (CPU); if there is neither, give --watts.

    \b
    Examples:
      presilicon schedule characterize --workload digits-cnn --watts 65 --out mine.toml
      presilicon schedule characterize --workload digits-cnn --device opencl:0.0/1 --name fpga --watts 20
    """
    from presilicon.cards import characterize as measure
    from presilicon.cards import to_table

    table = measure(workload, device=device, name=name, batch_size=batch, repeats=repeats, watts=watts)
    if out is not None:
        write_file(out, to_table(table))
        click.echo(f"table: {out}", err=as_json)
    if as_json:
        print_json(**to_plain(table))
    elif out is None:
        click.echo(to_table(table), nl=False)


@command.command("kernels")
@options_of(KernelOptions)
@json_option
@click.pass_context
def kernels(context: click.Context, /, as_json: bool, **values: Any) -> None:
    """Rank configurations of an FPGA kernel by an estimate of their time on a board, without compiling them.

    The estimate counts cycles and DRAM traffic (docs/scheduling.md); the published latency indicator (LI) stands beside
    it. The board is a Stratix 10 GX 2500.

    With --tune or --rank, configurations are built and timed on an OpenCL device. Each is tried in another process,
    because compilers die of some and never return from others.

    \b
    Examples:
      presilicon schedule kernels --op MatMul --shape 2048x1024x1024
      presilicon schedule kernels --op MatMul --shape 2048x1024x1024 --config 2,1,128,64 --fmax-mhz 210
      presilicon schedule kernels --tune 60
      presilicon schedule kernels --rank 200 --shape 512x512x512
    """
    options = KernelOptions(**values)
    ways = {"--rank": options.rank, "--tune": options.tune, "--config": options.config}
    way = next((name for name, value in ways.items() if value is not None), list(_UNUSED)[-1])
    refuse_options(context, _UNUSED[way], f"is not for {way}")
    if options.rank is not None or options.tune is not None:
        from presilicon.cli.schedule_tuning import print_ranking, print_tuning

        (print_tuning if options.rank is None else print_ranking)(options, as_json)
        return
    if (options.config is None) != (options.fmax_mhz is None):
        raise ConfigError("--config and --fmax-mhz must be given together, as in --config 2,1,128,64 --fmax-mhz 210")

    from presilicon.cli.schedule_kernels import print_kernels

    print_kernels(options, as_json)
