"""`presilicon characterize-gpu`: the card of this machine as a design."""

from pathlib import Path

import click

from presilicon.base import to_toml, write_file
from presilicon.cli.options import set_option


@click.command("characterize-gpu")
@click.argument("design")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder for the results.")
@click.option("--minutes", type=click.FloatRange(1, 120), default=15.0, help="Most time on the card.")
@click.option("--times", type=click.Path(dir_okay=False, path_type=Path), help="Measure nothing: fit this times.json.")
@set_option
def command(design: str, out: Path, minutes: float, times: Path | None, settings: tuple[str, ...]) -> None:
    """Measure layers of every class on the GPU of this machine, and write a design that predicts steps on it.

    DESIGN has the published peaks of the card: a preset such as h200, or a file of your own whose machine is of the
    kind roofline. OUT gets times.json (what was measured), layers.json (efficiency by class and shape) and design.toml.

    \b
    Example:
      presilicon characterize-gpu a100 --out my-a100
      presilicon simulate my-a100/design.toml --workload resnet50 --numerics bf16
    """
    from msgspec import json

    from presilicon.designs import load_design
    from presilicon.study import characterize_card, check_peaks, describe_card, read_card

    chosen = load_design(design, settings)
    check_peaks(chosen)
    out.mkdir(parents=True, exist_ok=True)
    if times is not None:
        card = read_card(times)
    else:
        card = characterize_card(minutes=minutes, progress=_show, notice=_notice)
        click.echo(err=True)
        write_file(out / "times.json", json.encode(card).decode())
    click.echo("fitting (some minutes)", err=True)
    described, table, error = describe_card(chosen, card, out / "layers.json")
    write_file(out / "design.toml", f"# {card.device}, {table.source}\n{to_toml(described.to_plain())}")
    errors = sorted(group.error for group in table.groups.values() if group.points)
    click.echo(
        f"{card.device}: {len(card.times)} times and {len(card.powers)} powers of layers, {len(table.groups)} groups "
        f"of kernels; median error of a layer that was left out {errors[len(errors) // 2]:.0%}, of power {error:.0%}\n"
        f"{out / 'design.toml'}"
    )


def _notice(text: str) -> None:
    click.echo(f"\r{text}", err=True)


def _show(done: int, count: int, text: str) -> None:
    click.echo(f"\r{done}/{count} {text:60.60}", nl=False, err=True)
