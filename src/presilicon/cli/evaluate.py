"""`presilicon evaluate`: designs compared by time-to-accuracy and energy-to-accuracy."""

import os
from pathlib import Path
from typing import Any

import click

from presilicon.cli.options import clock_option, json_option, out_option, set_option, workload_option
from presilicon.cli.progress import seed_progress


@click.command("evaluate")
@click.argument("designs", nargs=-1, required=True, metavar="DESIGN...")
@workload_option
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True, help="Training runs per design.")
@click.option("--seed", type=int, default=0, show_default=True, help="The first seed; the others follow it.")
@click.option("--target", type=float, help="Validation accuracy to reach, in place of the workload's own.")
@click.option("--max-steps", type=click.IntRange(min=1), help="Training budget, in place of the workload's own.")
@click.option("--jobs", type=click.IntRange(min=1), help="Training runs at the same time.  [default: one per core]")
@click.option("--device", default="cpu", show_default=True, help="Where to emulate: cpu or cuda.")
@click.option(
    "--sensitivity",
    "with_sensitivity",
    is_flag=True,
    help="Say whether the rankings survive a factor of two in each figure of the technology tables.",
)
@click.option(
    "--times",
    "times",
    multiple=True,
    metavar="[DESIGN=]FILE",
    help="Times of ops by another simulator or a profiler, in place of ours: see docs/simulation.md. May be repeated.",
)
@clock_option
@set_option
@out_option
@json_option
def command(
    designs: tuple[str, ...],
    workload: str,
    seeds: int,
    seed: int,
    target: float | None,
    max_steps: int | None,
    jobs: int | None,
    device: str,
    with_sensitivity: bool,
    times: tuple[str, ...],
    clock_ghz: float | None,
    settings: tuple[str, ...],
    out: Path,
    as_json: bool,
) -> None:
    """Train with each DESIGN's numerics, price every step on its machine, and compare.

    A DESIGN is a preset (see `presilicon list designs`) or a TOML file. The run is recorded under --out, with a
    one-page report.

    \b
    Example:
      presilicon evaluate fp32-systolic fp8-systolic --workload digits-cnn
    """
    from dataclasses import replace

    from presilicon.base.config import to_plain
    from presilicon.base.errors import ConfigError
    from presilicon.designs import load_design
    from presilicon.workloads import load_workload

    if with_sensitivity and len(designs) < 2:
        raise ConfigError("--sensitivity is about the ranking of designs: give at least two")
    if with_sensitivity and times:
        raise ConfigError("--sensitivity varies our own figures: leave out --times, whose figures are another's")
    loaded = [load_design(name, settings) for name in designs]
    given = _by_design(times, [design.name for design in loaded])
    chosen = load_workload(workload)
    chosen.require_data()
    if target is not None:
        chosen = replace(chosen, target=target)
    if max_steps is not None:
        chosen = replace(chosen, max_steps=max_steps)

    from presilicon.study import check_device

    check_device(device)
    jobs = jobs or os.cpu_count() or 1

    from presilicon.report import print_table, render_page, to_json
    from presilicon.runs import create_run

    config = {
        "designs": [design.to_plain() for design in loaded],
        "technologies": [to_plain(design.technology) for design in loaded],
        "workload": chosen.describe(),
        "seeds": seeds,
        "device": device,
    } | ({"times": given} if given else {})
    with create_run(out, "evaluate", config, seed=seed) as run:
        from msgspec import structs

        from presilicon.study import price, sensitivity, train_designs

        for design in loaded:
            run.record("design", design=design.name, config=design.to_plain())
        with seed_progress(len(loaded) * seeds, chosen.max_steps) as show:

            def on_event(event: dict[str, Any]) -> None:
                run.record(event["event"], **{name: value for name, value in event.items() if name != "event"})
                show(event)

            trained = train_designs(
                loaded, chosen, seeds=seeds, seed=seed, jobs=jobs, device=device,
                times=given or None, clock_ghz=clock_ghz, on_event=on_event,
            )  # fmt: skip
        found = price(trained)
        if with_sensitivity:
            found = structs.replace(found, sensitivity=sensitivity(trained))
        document = to_json(found)
        run.record("result", comparison=found)
        run.write_file("result.json", document)
        report = run.write_file("report.html", render_page(found))
    if as_json:
        click.echo(document, nl=False)
    else:
        print_table(found)
    click.echo(f"report: {report}", err=as_json)


def _by_design(times: tuple[str, ...], names: list[str]) -> dict[str, str]:
    """The file of each design; a plain file is for the only design there is."""
    from presilicon.base.errors import ConfigError

    given: dict[str, str] = {}
    for text in times:
        name, found, file = text.partition("=")
        if not found or name not in names:
            name, file = names[0], text
            if len(names) > 1:
                raise ConfigError(f"--times {text[:80]!r}: say whose times they are, as in --times {names[0]}=FILE")
        if name in given:
            raise ConfigError(f"--times: {name} has two files; give each design one")
        given[name] = file
    return given
