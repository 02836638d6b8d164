"""`presilicon schedule`: place and order the ops of a training step over several devices."""

from pathlib import Path
from typing import Any

import click

from presilicon.base import ConfigError, to_plain, write_file
from presilicon.cli.options import json_option, print_json, refuse_options, repeated

_DEFAULT = "run"
_UNUSED = {
    "--rank": ("kind", "config", "fmax_table", "top", "tune", "settings", "out"),
    "--tune": ("shape", "config", "fmax_mhz", "fmax_table", "settings", "top"),
    "--config": ("fmax_table", "top", "device", "timeout", "out"),
    "this search, which builds no kernels": ("device", "timeout", "out"),
}
"""Options of `schedule kernels` that each way to use it would ignore."""


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
@click.option("--workload", metavar="NAME", help="See `presilicon list workloads`; or dcgan, a full step of it.")
@click.option(
    "--graph",
    type=click.Path(path_type=Path),
    help='Instead of a workload: ops in a JSON file, {"ops": [{"id": 0, "kind": "Conv2D", "size": "M", ...}]}.',
)
@click.option(
    "--batch", "batch_size", type=click.IntRange(1, 1 << 24), help="Samples of an update, on all copies of the model."
)
@click.option(
    "--objective",
    type=click.Choice(["energy", "throughput"]),
    default="energy",
    help="Least energy, no slower than GPU-only; or most samples per second.",
)
@click.option(
    "--power-cap",
    "cap_w",
    type=float,
    metavar="W",
    help="Limit on the sum of the peak power of running ops and idle devices.",
)
@click.option(
    "--max-time",
    "limit_s",
    type=float,
    metavar="S",
    help="Longest makespan for --objective energy; by default that of GPU-only.",
)
@click.option(
    "--solver",
    type=click.Choice(["greedy", "heft", "anytime", "exact", "auto"]),
    default="auto",
    help="`auto` is exact for small steps and anytime for large ones.",
)
@click.option("--time-limit", "time_limit_s", type=float, default=20.0, metavar="S", help="Time limit of the search.")
@click.option("--no-transfers", is_flag=True, help="Make transfers between devices free.")
@click.option("--optimistic-links", is_flag=True, help="Let moves over a link not wait for one another.")
@click.option("--allow-parts", is_flag=True, help="Accept a --graph of several unconnected parts.")
@click.option(
    "--sizes",
    "sizing",
    type=click.Choice(["work", "tensor", "im2col"]),
    default="work",
    help="Times of a workload's ops: interpolated by FLOPs, or by size classes of tensor or im2col dimensions.",
)
@click.option("--sensitivity", is_flag=True, help="Also report the results of all --sizes (greedy).")
@click.option(
    "--candidates",
    "candidate_rule",
    type=click.Choice(["all", "and", "paper"]),
    default="all",
    help="Greedy: which ops may leave the GPU, by thresholds on bandwidth and IPC.",
)
@click.option("--literal", is_flag=True, help="Greedy: the published rules to the letter, without our repairs.")
@click.option("--relief", type=float, default=1.0, help="Speedup of the remaining GPU ops when others have left it.")
@click.option("--usd-per-kwh", type=float, default=0.12, metavar="X", help="For the payback estimate.")
@click.option("--sample", "sample_s", type=float, default=1e-3, metavar="S", help="Period of power readings.")
@click.option("--lag", "lag_s", type=float, default=0.02, metavar="S", help="Period of the GPU-only clock controller.")
@click.option("--seed", type=int, default=0, help="Seed of the search.")
@click.option("--execute", is_flag=True, help="Train by the schedule on the real devices that the system names.")
@click.option("--steps", type=click.IntRange(1), help="Training steps of --execute; by default 50.")
@click.option("--no-measure", is_flag=True, help="--execute: use the system's table; do not measure ops here first.")
@click.option("--no-takeover", is_flag=True, help="--execute: the idle reference device takes no ops of busy devices.")
@click.option("--mirror", is_flag=True, help="--execute: copy results to the host, to survive the loss of a device.")
@click.option("--set-clocks", is_flag=True, help="--execute: set the clocks of GPUs as the schedule says (root).")
@click.option("--watts", type=float, help="--execute under a cap: power of the system, if it cannot be read.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for chart, trace and table.")
@repeated(
    "--set", "settings", metavar="PATH=VALUE", help="Override a field of the system, as in --set devices.fpga.idle_w=0."
)
@json_option
def run(
    system: str,
    workload: str | None,
    no_transfers: bool,
    sensitivity: bool,
    usd_per_kwh: float,
    execute: bool,
    steps: int | None,
    no_measure: bool,
    no_takeover: bool,
    mirror: bool,
    set_clocks: bool,
    watts: float | None,
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Schedule a training step on SYSTEM: a preset (`presilicon list systems`) or a TOML file.

    \b
    Examples:
      presilicon schedule v100-3xs10 --workload resnet50 --objective energy
      presilicon schedule v100-3xs10 --workload resnet50 --objective throughput --power-cap 230 --out scheduled
      presilicon schedule v100-3xs10-ideal --graph step.json --solver exact --no-transfers --json
      presilicon schedule cpu-2xopencl --workload digits-cnn --objective throughput --execute --steps 50
    """
    from presilicon.cli.schedule_outputs import run_execution, run_schedule
    from presilicon.study import ScheduleRequest

    if sensitivity and workload is None:
        raise ConfigError("--sensitivity is for --workload: it compares ways to give captured ops a size")
    context = click.get_current_context()
    if workload is None:
        refuse_options(context, ("sizing",), "is for --workload: the ops of a graph have sizes or work of their own")
    if options["solver"] != "greedy" and not sensitivity:
        refuse_options(context, ("candidate_rule", "literal"), "is for --solver greedy")
    if not 0 <= usd_per_kwh < 1e9:
        raise ConfigError(f"--usd-per-kwh must be a price of at least 0, not {usd_per_kwh:g}")
    request = ScheduleRequest(system=system, workload=workload, transfers=not no_transfers, **options)
    if execute:
        if sensitivity:
            raise ConfigError("--sensitivity compares schedules, and --execute runs one: give either")
        choices: dict[str, Any] = {"measure": not no_measure, "takeover": not no_takeover, "mirror": mirror}
        choices |= {"set_clocks": set_clocks, "watts": watts} | ({} if steps is None else {"steps": steps})
        return run_execution(request, choices, usd_per_kwh=usd_per_kwh, out=out, as_json=as_json)
    flags = {"no-measure": no_measure, "no-takeover": no_takeover, "mirror": mirror, "set-clocks": set_clocks}
    for name, given in {**flags, "steps": steps is not None, "watts": watts is not None}.items():
        if given:
            raise ConfigError(f"--{name} is for --execute")
    return run_schedule(request, sensitivity=sensitivity, usd_per_kwh=usd_per_kwh, out=out, as_json=as_json)


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
    workload: str,
    batch: int | None,
    device: str,
    name: str | None,
    repeats: int,
    watts: float | None,
    out: Path | None,
    as_json: bool,
) -> None:
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
@click.option("--op", "kind", help="Kind: MatMul (default), Conv2D, MaxPool, BiasAddGrad, ...; --tune: by default all.")
@click.option("--shape", metavar="AxBx...", help="Shape of the op: MxKxN of a MatMul; by default one of medium size.")
@click.option("--config", metavar="CU,SIMD,GROUP,UNROLL", help="Rate only this configuration, at --fmax-mhz.")
@click.option("--fmax-mhz", type=float, help="Clock of --config.")
@click.option(
    "--fmax-table",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Clocks in a JSON file, [[cu, simd, unroll, MHz], ...]; by default a synthetic model, labelled as such.",
)
@click.option("--top", type=click.IntRange(1, 1000), default=5, help="Number of configurations to list.")
@repeated(
    "--set",
    "settings",
    metavar="FIELD=VALUE",
    help="Override a figure of the board, as in --set dsps=1518.",
)
@click.option(
    "--tune", type=click.IntRange(1, 100_000), metavar="N", help="Try N configurations on --device, and store the best."
)
@click.option(
    "--rank", type=click.IntRange(3, 1000), metavar="N", help="Time N configurations of MatMul on --device, beside LI."
)
@click.option("--device", default="opencl:0.0", help="OpenCL device of --tune and --rank, as opencl:PLATFORM.DEVICE.")
@click.option("--timeout", type=click.FloatRange(1, 3600), default=20.0, help="Seconds for one configuration.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write --tune's table to this file instead."
)
@json_option
@click.pass_context
def kernels(
    context: click.Context,
    kind: str | None,
    shape: str | None,
    config: str | None,
    fmax_mhz: float | None,
    fmax_table: Path | None,
    top: int,
    settings: tuple[str, ...],
    tune: int | None,
    rank: int | None,
    device: str,
    timeout: float,
    out: Path | None,
    as_json: bool,
) -> None:
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
    ways = {"--rank": rank, "--tune": tune, "--config": config}
    way = next((name for name, value in ways.items() if value is not None), list(_UNUSED)[-1])
    refuse_options(context, _UNUSED[way], f"is not for {way}")
    if tune is not None or rank is not None:
        from presilicon.cli.schedule_tuning import print_ranking, print_tuning

        if rank is not None:
            print_ranking(device, shape, rank, fmax_mhz, timeout, as_json)
        elif tune is not None:
            print_tuning(device, kind, tune, timeout, out, as_json)
        return
    if (config is None) != (fmax_mhz is None):
        raise ConfigError("--config and --fmax-mhz must be given together, as in --config 2,1,128,64 --fmax-mhz 210")

    from presilicon.cli.schedule_kernels import print_kernels

    print_kernels(kind or "MatMul", shape, config, fmax_mhz, fmax_table, top, settings, as_json)
