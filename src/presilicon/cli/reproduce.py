"""`presilicon reproduce`: published results, computed again."""

import click

from presilicon.cli.options import json_option


@click.command("reproduce")
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """Print published figures beside ours, the difference, and the assumptions. Without NAME, list what there is.

    \b
    Example:
      presilicon reproduce in-place-transpose
    """
    from presilicon.report import render_reproduction, reproduction_to_json
    from presilicon.study import reproduce, reproduction_names

    if name is None:
        import json

        names = reproduction_names()
        click.echo(json.dumps({"schema": 1, "reproductions": names}, indent=2) if as_json else "\n".join(names))
        return
    found = reproduce(name)
    click.echo(reproduction_to_json(found) if as_json else render_reproduction(found), nl=False)
