"""`presilicon reproduce`: published results computed again."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from presilicon.base import MissingToolError
from presilicon.cli.options import json_option, out_option, print_json

if TYPE_CHECKING:
    from presilicon.records import Reproduction


@click.command("reproduce")
@click.argument("name", required=False)
@out_option
@json_option
def command(name: str | None, out: Path, as_json: bool) -> None:
    """Print published figures next to ours, the difference, and the assumptions. Without NAME, list all names.

    Reproductions that train are recorded as runs under --out, with a page and pictures.

    \b
    Examples:
      presilicon reproduce in-place-transpose
      presilicon reproduce dead-relu
    """
    from presilicon.report import render_reproduction, reproduction_to_json
    from presilicon.study import reproduce, reproduction_names, trains

    if name is None:
        names = reproduction_names()
        if as_json:
            print_json(reproductions=names)
        else:
            click.echo("\n".join(names))
        return
    if not trains(name):
        result = reproduce(name)
        click.echo(reproduction_to_json(result) if as_json else render_reproduction(result), nl=False)
        return
    result, report = _record(name, out)
    click.echo(reproduction_to_json(result) if as_json else render_reproduction(result), nl=False)
    click.echo(f"report: {report}", err=as_json)


def _record(name: str, out: Path) -> "tuple[Reproduction, Path]":
    """Run a reproduction that trains and record it; returns it with the path of its report."""
    from presilicon.records import Event, SeedFinished
    from presilicon.report import render_front, render_panels, render_story
    from presilicon.runs import create_run
    from presilicon.study import reproduce

    with create_run(out, f"reproduce-{name}", {"reproduction": name}, seed=None) as run:

        def note(event: Event) -> None:
            run.record(event)
            if isinstance(event, SeedFinished):
                click.echo(f"{event.design}, seed {event.seed}: {event.steps} steps, {event.ending}", err=True)

        result = reproduce(name, note)
        report = run.write_file("report.html", render_story(result))
        try:
            run.write_file(f"{name}.png", render_panels(result.panels, "png"))
            if result.study is not None:
                run.write_file("front.png", render_front(result.study, "png"))
        except MissingToolError as error:
            click.echo(f"no picture: {error}", err=True)
    return result, report
