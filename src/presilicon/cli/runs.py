"""`presilicon runs`: list, show, export and remove recorded runs."""

import sys
from contextlib import suppress
from pathlib import Path

import click

from presilicon.base import ConfigError, write_file
from presilicon.cli.options import json_option, out_option


@click.group("runs")
def command() -> None:
    """List, show, export and remove recorded runs."""


@command.command("list")
@out_option
@json_option
def list_(out: Path, as_json: bool) -> None:
    """List the recorded runs, oldest first."""
    from presilicon.report import print_runs, runs_to_json
    from presilicon.runs import list_runs

    stored = list_runs(out)
    if as_json:
        click.echo(runs_to_json(stored), nl=False)
    elif not stored:
        click.echo(f"no runs in {out}")
    else:
        print_runs(stored)


@command.command("show")
@click.argument("run", default="latest")
@out_option
@json_option
def show(run: str, out: Path, as_json: bool) -> None:
    """Show a RUN (its name, the beginning of it, or "latest"): status, configuration, result."""
    from presilicon.report import print_run, run_to_json
    from presilicon.runs import load_run

    stored = load_run(out, run)
    if as_json:
        click.echo(run_to_json(stored), nl=False)
    else:
        print_run(stored)


@command.command("export")
@click.argument("run", default="latest")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "json", "html", "png", "svg"]),
    default="csv",
    help="csv: one row per evaluation. json: record and events. html, png, svg: the report.",
)
@click.option("--to", "target", type=click.Path(path_type=Path), help="File to write.  [default: stdout]")
@out_option
def export(run: str, file_format: str, target: Path | None, out: Path) -> None:
    """Export a RUN (its name, the beginning of it, or "latest")."""
    from presilicon.report import export_report
    from presilicon.runs import export_run, load_run

    stored = load_run(out, run)
    if file_format in ("csv", "json"):
        content: str | bytes = export_run(stored, file_format)
    else:
        content = export_report(stored, file_format)
    if target is None:
        if isinstance(content, bytes) and sys.stdout.isatty():
            raise ConfigError(f"{file_format} is not for a terminal; name a file with --to")
        click.echo(content, nl=isinstance(content, str) and not content.endswith("\n"))
        return
    with suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
    write_file(target, content)
    click.echo(f"wrote {target}", err=True)


@command.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="RUN...")
@click.option("--force", is_flag=True, help="Also remove a run that is still going on.")
@out_option
def rm(names: tuple[str, ...], force: bool, out: Path) -> None:
    """Remove RUNs and everything in their directories."""
    from presilicon.runs import remove_run

    for name in names:
        click.echo(f"removed {remove_run(out, name, force=force).name}")
