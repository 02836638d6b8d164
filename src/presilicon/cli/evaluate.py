"""`presilicon evaluate`: designs compared by time-to-accuracy and energy-to-accuracy."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from msgspec import structs

from presilicon.cli.options import continues, json_option, options_of, out_option, repeated
from presilicon.cli.progress import seed_progress
from presilicon.study import RequestOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from presilicon.records import Comparison, Event, InstrumentEvent
    from presilicon.runs import Labels, Run, StoredRun
    from presilicon.study import EvaluateRequest

_WITH_RESUME = {"resume", "any_processor", "jobs", "out", "as_json"}
"""Options that may be combined with --resume; all others come from the run."""


@click.command("evaluate")
@click.argument("designs", nargs=-1, metavar="DESIGN...")
@options_of(RequestOptions)
@click.option("--jobs", type=click.IntRange(min=1), help="Training runs at the same time.  [default: one per core]")
@click.option("--name", "label", metavar="NAME", help="A name for the run, by which other commands find it.")
@repeated("--tag", "tags", metavar="TAG", help="A tag for `presilicon runs list`.")
@click.option("--resume", metavar="RUN", help="Resume an interrupted run; the result is bit-identical.")
@out_option
@json_option
@click.pass_context
def command(
    context: click.Context, /, jobs: int | None, resume: str | None, out: Path, as_json: bool, **options: Any
) -> None:
    """Train with each DESIGN's numerics, price every step on its machine, and compare.

    A DESIGN is a preset (see `presilicon list designs`) or a TOML file. The run is recorded under --out, with a
    one-page report.

    \b
    Examples:
      presilicon evaluate fp32-systolic fp8-systolic --workload digits-cnn
      presilicon evaluate bf16-systolic --numerics fp32,bf16,fp8-hybrid --workload fashion-cnn
      presilicon evaluate bf16-systolic --vary machine.rows=32,64 --workload digits-cnn
      presilicon evaluate bf16-systolic --method batch-growth.factor=4 --workload fashion-cnn
      presilicon evaluate --resume latest
    """
    from presilicon.runs import load_run, make_labels
    from presilicon.study import EvaluateRequest, read_request, where_started

    stored, labels = None, make_labels(options.pop("label"), options.pop("tags"))
    if resume is not None:
        _refuse_others(context)
        out = out.absolute()
        stored = load_run(out, resume)
        request = read_request(stored)
        if options["any_processor"]:
            request = structs.replace(request, any_processor=True)
    else:
        for name in ("designs", "workload"):
            if not options[name]:
                parameter = next(parameter for parameter in context.command.params if parameter.name == name)
                raise click.MissingParameter(ctx=context, param=parameter)
        request = EvaluateRequest(**options)
    with where_started(request):
        _evaluate(request, stored, labels, jobs or os.cpu_count() or 1, out, as_json)


def _refuse_others(context: click.Context) -> None:
    source = context.get_parameter_source
    for parameter in context.command.params:
        name = str(parameter.name)
        if name not in _WITH_RESUME and source(name) in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT):
            option = "designs" if name == "designs" else parameter.opts[0]
            raise click.UsageError(f"--resume continues with the run's own arguments: leave out {option}", context)


def _evaluate(
    request: "EvaluateRequest", stored: "StoredRun | None", labels: "Labels", jobs: int, out: Path, as_json: bool
) -> None:
    from presilicon.study import plan_request

    plan = plan_request(request)  # before torch is loaded: a mistake in the arguments is reported at once

    from presilicon.report import print_table, render_page, to_json
    from presilicon.runs import watch_run, write_labels
    from presilicon.study import carry_out, check_strict

    def on_run(run: "Run") -> None:
        recorded.append(run)
        if labels.name or labels.tags:  # never when it is resumed
            write_labels(run.path, labels)
        if run.took_over:
            click.echo(f"note: {run.took_over}", err=True)

    def write_report(run: "Run", comparison: "Comparison") -> None:
        run.write_file("result.json", to_json(comparison))
        run.write_file("report.html", render_page(comparison, watch_run(run.path)))

    progress = seed_progress(len(plan.designs), plan.looks[0], plan.workload)
    with continues("evaluate", out) as recorded, progress as show:
        evaluated = carry_out(
            plan, jobs=jobs, out=out, request=request, resumed=stored, on_run=on_run,
            on_event=_reporter(show), write_report=write_report,
        )  # fmt: skip
    assert evaluated.run is not None
    if as_json:
        click.echo(to_json(evaluated.comparison), nl=False)
    else:
        print_table(evaluated.comparison)
    click.echo(f"report: {evaluated.run.path / 'report.html'}", err=as_json)
    if request.strict:
        check_strict(evaluated.comparison.designs)


def _reporter(show: "Callable[[Event], None]") -> "Callable[[Event], None]":
    """Shows events as progress, and notes of instruments once each: those of all seeds give the same warning."""
    from presilicon.records import InstrumentEvent

    printed = {""}

    def report(event: "Event") -> None:
        if not isinstance(event, InstrumentEvent):
            show(event)
        elif (text := _instrument_note(event)) not in printed:
            click.echo(text, err=True)
            printed.add(text)

    return report


def _instrument_note(event: "InstrumentEvent") -> str:
    """A line about an instrument's event that the user should see at once; empty for most events."""
    from presilicon.records import InstrumentStarted, InstrumentWarning
    from presilicon.runs import describe_warning

    if isinstance(event, InstrumentStarted) and event.address:
        token = f"; hosts that program it need the token in {event.token_file}" if event.token_file else ""
        return f"{event.design}, seed {event.seed}: the instrument's stream is at {event.address}{token}"
    return f"note: {event.design}: {describe_warning(event)}" if isinstance(event, InstrumentWarning) else ""
