"""Output of `presilicon schedule kernels --tune` and `--rank`."""

import click

from presilicon.base import ConfigError, to_plain
from presilicon.cli.options import print_json
from presilicon.cli.schedule import KernelOptions
from presilicon.cli.schedule_kernels import read_numbers
from presilicon.scheduling import (
    TUNED_OPS,
    BoardInfo,
    Trial,
    list_boards,
    open_device,
    rank,
    save_tuned,
    stored_path,
    tune,
)  # fmt: skip


def _board(device: str) -> BoardInfo:
    boards = {board.name: board for board in list_boards()}
    name = "opencl:0.0" if device == "opencl" else device
    if name not in boards:
        raise ConfigError(f"--device must be one of {', '.join(boards)}, not {device!r}")
    open_device(name).close()  # one message if it cannot be used, rather than one for each configuration
    return boards[name]


def _say(trial: Trial) -> None:
    config = trial.config
    kind = "direct" if config.direct else "staged" if config.staged else "packed"
    told = trial.refused or ", ".join(f"{shape} {time * 1e3:.3f} ms" for shape, time in trial.times_s.items())
    click.echo(
        f"{trial.op} {kind} units {config.units} simd {config.simd} group {config.group} unroll {config.unroll} "
        f"tile {config.rows}x{config.columns}: {told}",
        err=True,
    )


def print_tuning(options: KernelOptions, as_json: bool) -> None:
    """Tune, store the table and print it."""
    info = _board(options.device)
    ops = TUNED_OPS if options.kind is None else (options.kind,)
    tuned, trials = tune(info, ops, configs=options.tune or 0, timeout_s=options.timeout, report=_say)
    path = stored_path(info) if options.out is None else options.out
    save_tuned(tuned, path)
    refused = [trial for trial in trials if trial.refused]
    if as_json:
        print_json(device=info.device, table=to_plain(tuned), trials=to_plain(trials), stored=str(path))
        return
    for op, sizes in tuned.kernels.items():
        for size, config in sizes.items():
            click.echo(f"{op:22} {size:7} {to_plain(config)}")
    click.echo(f"{len(trials)} trials, {len(refused)} refused; stored in {path}")


def print_ranking(options: KernelOptions, as_json: bool) -> None:
    """Time configurations beside their latency indicators."""
    sides = (512, 512, 512) if options.shape is None else read_numbers("--shape", options.shape, "x")
    fmax_mhz, timeout_s = options.fmax_mhz, options.timeout
    ranking = rank(
        _board(options.device), sides, options.rank or 0, fmax_mhz=fmax_mhz, timeout_s=timeout_s, report=_say
    )
    if as_json:
        print_json(**to_plain(ranking))
        return
    accepted = sum(not trial.refused for trial in ranking.trials)
    what = f"MatMul {'x'.join(map(str, sides))} on {ranking.device}"
    click.echo(f"{what}: {accepted} of {len(ranking.trials)} configurations work")
    click.echo(
        f"Spearman rank correlation of the latency indicator (Fmax {ranking.fmax_mhz:g} MHz for all) and the time: "
        f"{ranking.spearman:+.3f} (p = {ranking.p_value:.2g})"
    )
    for name, value in ranking.by_parameter.items():
        click.echo(f"  {name:7} and time: {value:+.3f}")
    click.echo(f"the configurations with the smallest indicator take {ranking.loss:.2f} times the best time (median)")
