"""`presilicon runs`: list, show, compare, tag, export and remove recorded runs."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from presilicon.base import ConfigError, write_file
from presilicon.cli.options import json_option, out_option, repeated


@click.group("runs")
def command() -> None:
    """List, show, compare, tag, export and remove recorded runs."""


@command.command("list")
@click.option("--name", metavar="PATTERN", default="*", help="Runs of this name, as in 'night-*'.")
@click.option("--design", metavar="PATTERN", default="*", help="Designs of this name, as in 'fp8*'.")
@click.option("--workload", metavar="PATTERN", default="*", help="Runs with this workload.")
@repeated("--tag", "tags", metavar="TAG", help="Runs with this tag.")
@click.option("--since", metavar="DATE", help="Runs since 2026-11-15 or 2026-11-15T07:45 (UTC).")
@repeated("--where", metavar="CONDITION", help="As in 'accuracy>=0.9'.")
@click.option("--sort", metavar="METRIC", default="created", help="Order: created, or a metric.")
@click.option("--reverse", is_flag=True, help="Newest or largest first.")
@out_option
@json_option
def list_(out: Path, as_json: bool, **options: Any) -> None:
    """List the recorded runs with the metrics of each design, oldest first.

    Metrics for --where and --sort: accuracy, steps, time_s and energy_j (to accuracy), reached (share of seeds), seeds,
    target, time_per_step_s, energy_per_step_j, memory_bytes, area_mm2.
    """
    from presilicon.report import RunQuery, print_rows, rows_to_json, select_rows
    from presilicon.runs import list_runs

    stored = list_runs(out)
    rows = select_rows(stored, RunQuery(**options))
    if as_json:
        click.echo(rows_to_json(rows), nl=False)
    elif not rows:
        click.echo(f"none of the {len(stored)} runs in {out} matches" if stored else f"no runs in {out}")
    else:
        print_rows(rows)


@command.command("compare")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@out_option
@json_option
def compare(first: str, second: str, out: Path, as_json: bool) -> None:
    """Show what differs between the runs A and B: configuration, metrics, and whether paired seeds separate them."""
    from presilicon.report import changes_to_json, render_changes, results_of
    from presilicon.runs import load_run
    from presilicon.study import configuration_changes, design_changes

    one, other = load_run(out, first), load_run(out, second)
    if one.name == other.name:
        raise ConfigError(f'"{first}" and "{second}" are the same run, {one.name}: give two')
    configuration = configuration_changes(one, other)
    designs = design_changes(one, results_of(one), other, results_of(other))
    write = changes_to_json if as_json else render_changes
    click.echo(write(one, other, configuration, designs), nl=False)


@command.command("tag")
@click.argument("run")
@click.argument("tags", nargs=-1, metavar="TAG...")
@repeated("--remove", "removed", metavar="TAG", help="Remove this tag.")
@click.option("--name", "label", metavar="NAME", help="Give the run this name.")
@out_option
def tag(run: str, tags: tuple[str, ...], removed: tuple[str, ...], label: str | None, out: Path) -> None:
    """Add TAGs to a RUN, remove some, or name it; its record stays as it is."""
    from presilicon.runs import label_run

    if not (tags or removed) and label is None:
        raise click.UsageError("give a TAG, --remove TAG or --name NAME")
    stored = label_run(out, run, label=label, add=tags, remove=removed)
    click.echo(f"{stored.name}: {stored.labelled or 'no name and no tags'}")


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
