"""`presilicon sweep`: a study of many designs, from a file."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from presilicon.base import MissingToolError, format_seconds, write_atomically
from presilicon.cli.options import continues, json_option, options_of, out_option
from presilicon.study import RequestOptions

if TYPE_CHECKING:
    from presilicon.records import SweepResult
    from presilicon.runs import Run
    from presilicon.study import SweepProgress

_LINE_S = 5.0
"""Seconds between two lines of progress that does not go to a terminal."""


@click.command("sweep")
@click.argument("study", required=False, type=click.Path(path_type=Path), metavar="STUDY.toml")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes on this machine.  [default: one per core]")
@click.option("--on", metavar="ADDRESS", help="Use the workers of a Dask scheduler, as in tcp://host:8786.")
@click.option("--resume", metavar="RUN", help="Continue this run; the same study continues by itself.")
@click.option("--new", is_flag=True, help="Start again, even if the same study was run before.")
@options_of(
    RequestOptions, "sensitivity", "any_processor",
    sensitivity="Say which figures of the technology tables would change a choice.",
)  # fmt: skip
@out_option
@json_option
def command(
    study: Path | None, jobs: int | None, on: str | None, resume: str | None, new: bool, sensitivity: bool,
    any_processor: bool, out: Path, as_json: bool,
) -> None:  # fmt: skip
    """Simulate or train every point of a study, and print the Pareto front of time, energy and area.

    STUDY.toml names designs, workloads and the parameters that vary: docs/studies.md. A study that was interrupted
    continues where it stopped. Its directory under --out has the table, a picture of the front and, for a study that
    chooses, the recommended design.

    \b
    Examples:
      presilicon sweep examples/study.toml
      presilicon sweep examples/study.toml --on tcp://scheduler:8786
      presilicon sweep --resume latest
    """
    from presilicon.study import SweepOptions, carry_out_sweep, read_study, read_study_of, with_options

    if (study is None) == (resume is None):
        raise click.UsageError("give a STUDY.toml, or --resume RUN to continue one")
    if new and resume is not None:
        raise click.UsageError("--new starts again and --resume continues: give one of them")
    file = read_study(study) if study is not None else read_study_of(out, str(resume))
    file = with_options(file, sensitivity=sensitivity, any_processor=any_processor)

    def on_run(run: "Run", known: int) -> None:
        recorded.append(run)
        if known:
            click.echo(f"continuing {run.name}: {known} results are there", err=True)

    options = SweepOptions(jobs=jobs, on=on, resume=resume, new=new, on_run=on_run, write_report=_write)
    with continues("sweep", out) as recorded, _progress() as show:
        result = carry_out_sweep(file, out, options._replace(on_progress=show))
    if not (result.path / "table.csv").exists():  # it was carried out by `ps.sweep`
        _write(None, result)
    _print(result, bool(recorded), as_json)


def _write(_: "Run | None", result: "SweepResult") -> None:
    """The table and the picture in the study's directory."""
    from presilicon.report import render_front, sweep_to_csv, sweep_to_json

    write_atomically(result.path / "table.csv", sweep_to_csv(result).encode())
    write_atomically(result.path / "table.json", sweep_to_json(result).encode())
    try:
        write_atomically(result.path / "front.png", render_front(result, "png"))
    except MissingToolError as error:
        click.echo(f"no picture: {error}", err=True)


def _print(result: "SweepResult", is_new: bool, as_json: bool) -> None:
    from presilicon.report import render_sweep, sweep_to_json

    if as_json:
        click.echo(sweep_to_json(result), nl=False)
    else:
        click.echo(render_sweep(result), nl=False)
    if not is_new:
        click.echo(f"this study had finished already in {result.path.name}; --new runs it again", err=True)
    names = ("table.csv", "front.png", "recommended.toml")
    files = [str(result.path / name) for name in names if (result.path / name).exists()]
    click.echo(f"files: {', '.join(files) or result.path}", err=as_json)


@contextmanager
def _progress() -> Iterator[Callable[["SweepProgress"], None]]:
    """Shows progress on stderr: a bar on a terminal, otherwise a line every few seconds."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, int] = {}

        def show(progress: "SweepProgress") -> None:
            if progress.stage not in tasks:
                tasks[progress.stage] = bars.add_task(progress.stage, total=progress.total, note="")
            task = tasks[progress.stage]
            bars.update(task, completed=progress.done, total=progress.total, note=_note(progress))  # type: ignore[arg-type]

        yield show


def _lines() -> Callable[["SweepProgress"], None]:
    shown = time.monotonic()

    def show(progress: "SweepProgress") -> None:
        nonlocal shown
        over = progress.done == progress.total
        if over or time.monotonic() - shown >= _LINE_S:
            shown = time.monotonic()
            click.echo(f"{progress.stage}: {progress.done}/{progress.total} done, {_note(progress)}", err=True)

    return show


def _note(progress: "SweepProgress") -> str:
    parts = [f"{progress.running} running", f"{progress.failed} failed"]
    if progress.eta_s is not None and progress.done < progress.total:
        parts.append(f"about {format_seconds(max(progress.eta_s, 1.0), digits=2)} left")
    return ", ".join(parts)
