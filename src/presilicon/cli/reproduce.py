"""`presilicon reproduce`: published results, computed again."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from presilicon.cli.options import json_option, out_option

if TYPE_CHECKING:
    from presilicon.records import Reproduction


@click.command("reproduce")
@click.argument("name", required=False)
@out_option
@json_option
def command(name: str | None, out: Path, as_json: bool) -> None:
    """Print published figures beside ours, the difference, and the assumptions. Without NAME, list what there is.

    Those that train are recorded as runs under --out, with a page and pictures.

    \b
    Examples:
      presilicon reproduce in-place-transpose
      presilicon reproduce dead-relu
    """
    from presilicon.report import render_reproduction, reproduction_to_json
    from presilicon.study import reproduce, reproduction_names
    from presilicon.study.reproductions import STORIES

    if name is None:
        import json

        names = reproduction_names()
        click.echo(json.dumps({"schema": 1, "reproductions": names}, indent=2) if as_json else "\n".join(names))
        return
    if name not in STORIES:
        found = reproduce(name)
        click.echo(reproduction_to_json(found) if as_json else render_reproduction(found), nl=False)
        return
    found, report = _tell(name, out)
    click.echo(reproduction_to_json(found) if as_json else render_reproduction(found), nl=False)
    click.echo(f"report: {report}", err=as_json)


def _tell(name: str, out: Path) -> "tuple[Reproduction, Path]":
    """A story, trained and kept as a run."""
    from presilicon.base.errors import MissingToolError
    from presilicon.report import render_panels, render_story
    from presilicon.runs import create_run
    from presilicon.study import reproduce

    with create_run(out, f"reproduce-{name}", {"reproduction": name}, seed=None) as run:

        def on_event(event: dict[str, Any]) -> None:
            run.record(event["event"], **{key: value for key, value in event.items() if key != "event"})

        found = reproduce(name, on_event)
        report = run.write_file("report.html", render_story(found))
        try:
            run.write_file(f"{name}.png", render_panels(found.panels, "png"))
        except MissingToolError as error:
            click.echo(f"no picture: {error}", err=True)
    return found, report
