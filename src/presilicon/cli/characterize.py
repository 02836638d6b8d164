"""`presilicon characterize-gpu`: the card of this machine as a design."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from presilicon.base import ConfigError, to_toml, write_atomically, write_file
from presilicon.cli.options import set_option

_OPTIONS = (
    click.argument("design"),
    click.option(
        "--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder for the results."
    ),
    click.option("--minutes", type=click.FloatRange(1, 120), default=15.0, help="Most time of measuring."),
    click.option(
        "--times", type=click.Path(dir_okay=False, path_type=Path),
        help="Do not measure the suite: fit this times.json, which an earlier run wrote.",
    ),
    click.option(
        "--workload", "workloads", multiple=True, metavar="NAME[@BATCH]",
        help="Also measure the layers of a network, at its batch size or another one. Can be repeated.",
    ),
    set_option,
)  # fmt: skip


def characterizing_options(function: Callable[..., None]) -> Callable[..., None]:
    """The argument and options of both commands."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.command("characterize-gpu")
@characterizing_options
def command(
    design: str, out: Path, minutes: float, times: Path | None, workloads: tuple[str, ...], settings: tuple[str, ...]
) -> None:
    """Measure layers of every class on the GPU of this machine, and write a design that predicts steps on it.

    DESIGN has the published peaks of the card: a preset such as h200, or a file of your own whose machine is of the
    kind roofline. OUT gets times.json (what was measured, as it is measured), layers.json (efficiency by class and
    shape) and design.toml. If the command is interrupted, --times OUT/times.json fits what was measured until then.

    \b
    Examples:
      presilicon characterize-gpu a100 --out my-a100
      presilicon simulate my-a100/design.toml --workload resnet50 --numerics bf16
      presilicon characterize-gpu a100 --times my-a100/times.json --workload my_net.py@64 --out a100-my-net
    """
    from presilicon.cards import characterize_card, check_peaks
    from presilicon.designs import load_design

    chosen = load_design(design, settings)
    check_peaks(chosen)
    describe(chosen, characterize_card, out, minutes, times, workloads)


def describe(
    design: Any, measure: Callable[..., Any], out: Path, minutes: float, times: Path | None, workloads: Sequence[str]
) -> None:
    """Measure what a design describes, or read its times, and write the fitted design."""
    from msgspec import json

    from presilicon.cards import describe_card, own_layers, read_card

    own = own_layers(workloads, design.machine, _notice)
    card = None if times is None else read_card(times)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ConfigError(f"--out {out}: cannot make this folder: {problem.strerror or problem}") from None
    if card is None or own:

        def keep(times: Any) -> None:
            write_atomically(out / "times.json", json.encode(times))

        card = measure(design.machine, before=card, own=own, minutes=minutes, progress=_show, notice=_notice, keep=keep)
        click.echo(err=True)
        keep(card)
    click.echo("fitting (some minutes)", err=True)
    described, table, error = describe_card(design, card, out / "layers.json")
    write_file(out / "design.toml", f"# {card.device}, {table.source}\n{to_toml(described.to_plain(), described)}")
    errors = sorted(group.error for group in table.groups.values() if group.points)
    powers, of_power = ("", "") if error is None else (f" and {len(card.powers)} powers", f", of power {error:.0%}")
    aside = sum(group.set_aside for group in table.groups.values())
    click.echo(
        f"{card.device}: {len(card.times)} times{powers} of layers, {len(table.groups)} groups of kernels; median "
        f"error of a layer that was left out {errors[len(errors) // 2]:.0%}{of_power}; {aside} layers unlike their "
        f"neighbours were set aside for fitting and count in the errors\n{out / 'design.toml'}"
    )


def _notice(text: str) -> None:
    click.echo(f"\r{text}", err=True)


def _show(done: int, count: int, text: str) -> None:
    click.echo(f"\r{done}/{count} {text:60.60}", nl=False, err=True)
