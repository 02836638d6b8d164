"""`presilicon evaluate`: designs compared by time-to-accuracy and energy-to-accuracy."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from presilicon.cli.options import clock_option, json_option, out_option, set_option
from presilicon.cli.progress import seed_progress

if TYPE_CHECKING:
    from presilicon.cli.request import Request
    from presilicon.designs import Design
    from presilicon.runs import Run, StoredRun
    from presilicon.workloads import Workload

_WITH_RESUME = {"resume", "jobs", "out", "as_json"}
"""What may be given with --resume; the rest is what the run was started with."""


@click.command("evaluate")
@click.argument("designs", nargs=-1, metavar="DESIGN...")
@click.option("--workload", metavar="NAME", help="See `presilicon list workloads`; or a Python file of your own.")
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True, help="Training runs per design.")
@click.option("--seed", type=int, default=0, show_default=True, help="The first seed; the others follow it.")
@click.option("--target", type=float, help="Validation accuracy to reach, in place of the workload's own.")
@click.option("--max-steps", type=click.IntRange(min=1), help="Training budget, in place of the workload's own.")
@click.option("--evaluate-every", type=click.IntRange(min=1), help="Steps between looks at the validation split.")
@click.option("--jobs", type=click.IntRange(min=1), help="Training runs at the same time.  [default: one per core]")
@click.option("--device", default="cpu", show_default=True, help="Where to emulate: cpu or cuda.")
@click.option(
    "--sensitivity",
    is_flag=True,
    help="Say whether the rankings survive a factor of two in each figure of the technology tables.",
)
@click.option(
    "--times",
    multiple=True,
    metavar="[DESIGN=]FILE",
    help="Times of ops by another simulator or a profiler, in place of ours: see docs/simulation.md. May be repeated.",
)
@click.option(
    "--checkpoint-every",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Evaluations between two checkpoints of a training run.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Refuse what flatters a design: few or chosen seeds, changed targets, budgets or evaluations, shared splits.",
)
@click.option(
    "--strict-coverage",
    is_flag=True,
    help="Refuse a workload with products that emulation does not reach, before training starts.",
)
@click.option(
    "--numerics",
    multiple=True,
    metavar="NAME[,NAME...]",
    help="Recipes in place of each DESIGN's own numerics: see `presilicon list numerics`. Each is a design to compare.",
)
@click.option("--resume", metavar="RUN", help="Go on with a run that was broken off, to the same bits.")
@clock_option
@set_option
@out_option
@json_option
@click.pass_context
def command(
    context: click.Context, /, jobs: int | None, resume: str | None, out: Path, as_json: bool, **given: Any
) -> None:
    """Train with each DESIGN's numerics, price every step on its machine, and compare.

    A DESIGN is a preset (see `presilicon list designs`) or a TOML file. The run is recorded under --out, with a
    one-page report.

    \b
    Examples:
      presilicon evaluate fp32-systolic fp8-systolic --workload digits-cnn
      presilicon evaluate bf16-systolic --numerics fp32,bf16,fp8-hybrid --workload fashion-cnn
      presilicon evaluate --resume latest
    """
    from presilicon.cli.request import Request, read_request
    from presilicon.runs import load_run

    stored = None
    if resume is not None:
        _refuse_others(context)
        stored = load_run(out, resume)
        request = read_request(stored)
    else:
        for name in ("designs", "workload"):
            if not given[name]:
                parameter = next(each for each in context.command.params if each.name == name)
                raise click.MissingParameter(ctx=context, param=parameter)
        request = Request(**given)
    _evaluate(request, stored, jobs or os.cpu_count() or 1, out, as_json)


def _refuse_others(context: click.Context) -> None:
    source = context.get_parameter_source
    for parameter in context.command.params:
        name = str(parameter.name)
        if name not in _WITH_RESUME and source(name) in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT):
            what = "designs" if name == "designs" else parameter.opts[0]
            raise click.UsageError(f"--resume goes on with what the run was started with: leave out {what}", context)


def _evaluate(request: "Request", stored: "StoredRun | None", jobs: int, out: Path, as_json: bool) -> None:
    import shutil

    from presilicon.base.errors import ConfigError

    if request.sensitivity and request.times:
        raise ConfigError("--sensitivity varies our own figures: leave out --times, whose figures are another's")
    if request.clock_ghz is not None and not request.times:
        raise ConfigError("--clock-ghz is for --times: what turns the cycles of that file into seconds")
    designs, workload, own = request.load()
    if request.sensitivity and len(designs) < 2:
        raise ConfigError("--sensitivity is about the ranking of designs: give at least two")
    times = request.times_of([design.name for design in designs])

    from presilicon.study import check_device

    check_device(request.device)
    if request.strict_coverage:
        from presilicon.emulation import coverage_workload

        for design in designs:
            coverage_workload(workload, design.numerics, strict=True)

    from presilicon.cli.request import checkpoints_of
    from presilicon.report import print_table, render_page, to_json
    from presilicon.runs import watch_run

    with _open(request, stored, designs, workload, times, out) as run:
        from msgspec import structs

        from presilicon.study import check_strict, price, sensitivity, train_designs

        with seed_progress(len(designs) * request.seeds, workload.max_steps) as show, _hint(run):
            told: set[str] = set()

            def on_event(event: dict[str, Any]) -> None:
                run.record(event["event"], **{name: value for name, value in event.items() if name != "event"})
                if not event["event"].startswith("instrument"):
                    show(event)
                    return
                text = _about_instrument(event)
                if text and text not in told:  # every seed that is watched would warn
                    click.echo(text, err=True)
                told.add(text)

            trained = train_designs(
                designs, workload, seeds=request.seeds, seed=request.seed, jobs=jobs, device=request.device,
                times=times or None, clock_ghz=request.clock_ghz, checkpoints=checkpoints_of(run.path),
                checkpoint_every=request.checkpoint_every, strict=request.strict, own=own,
                directory=run.path, on_event=on_event,
            )  # fmt: skip
        found = price(trained)
        if request.sensitivity:
            found = structs.replace(found, sensitivity=sensitivity(trained))
        document = to_json(found)
        run.record("result", comparison=found)
        run.write_file("result.json", document)
        report = run.write_file("report.html", render_page(found, watch_run(run.path)))
    shutil.rmtree(checkpoints_of(run.path), ignore_errors=True)
    if as_json:
        click.echo(document, nl=False)
    else:
        print_table(found)
    click.echo(f"report: {report}", err=as_json)
    if request.strict:
        check_strict(found.designs)


def _about_instrument(event: dict[str, Any]) -> str:
    """What an event of an instrument has to say at once; empty for most."""
    from presilicon.runs.readings import STARTED, WARNING, describe_warning

    if event["event"] == STARTED and "address" in event:
        token = f"; hosts that program it need the token in {event['token_file']}" if "token_file" in event else ""
        return f"{event['design']}, seed {event['seed']}: the instrument's stream is at {event['address']}{token}"
    return f"note: {event['design']}: {describe_warning(event)}" if event["event"] == WARNING else ""


def _open(
    request: "Request",
    stored: "StoredRun | None",
    designs: "list[Design]",
    workload: "Workload",
    times: dict[str, str],
    out: Path,
) -> "Run":
    """A new run, or the one that goes on."""
    from presilicon.base.config import to_plain
    from presilicon.cli.request import resume, write_request
    from presilicon.runs import create_run

    config = {
        "designs": [design.to_plain() for design in designs],
        "technologies": [to_plain(design.technology) for design in designs],
        "workload": workload.describe(),
        "seeds": request.seeds,
        "device": request.device,
    } | ({"times": times} if times else {})
    if stored is not None:
        return resume(stored, config)
    run = create_run(out, "evaluate", config, seed=request.seed)
    write_request(run, request)
    for design in designs:
        run.record("design", design=design.name, config=design.to_plain())
    return run


@contextmanager
def _hint(run: "Run") -> Iterator[None]:
    """Tells whoever breaks off the training how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"to go on: presilicon evaluate --resume {run.name}", err=True)
        raise
