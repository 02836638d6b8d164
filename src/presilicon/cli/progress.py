"""Progress of training runs on stderr: a bar on a terminal, otherwise a line per finished seed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from presilicon.records import Event, SeedFinished, SeedsAdded
    from presilicon.workloads import Metric, Workload

Show = Callable[["Event"], None]


@contextmanager
def seed_progress(designs: int, seeds: int, workload: "Workload") -> Iterator[Show]:
    """Shows the progress of that many seeds of each design, and of those added; call it with the events of a study."""
    if sys.stderr.isatty():
        with _bar(designs, seeds, workload) as show:
            yield show
    else:
        yield _lines(designs, seeds, workload.measure)


def _lines(designs: int, seeds: int, metric: "Metric") -> Show:
    from presilicon.records import SeedFinished, SeedsAdded

    done, runs = 0, designs * seeds

    def show(event: "Event") -> None:
        nonlocal done, runs
        if isinstance(event, SeedsAdded):
            runs = designs * event.seeds
            click.echo(describe_added(event), err=True)
        elif isinstance(event, SeedFinished):
            done += 1
            click.echo(f"[{done}/{runs}] {describe_seed(event, metric)}", err=True)

    return show


@contextmanager
def _bar(designs: int, seeds: int, workload: "Workload") -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from presilicon.records import EvaluationEvent, SeedEvent, SeedFinished, SeedsAdded

    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    metric, samples = workload.measure, workload.max_steps * workload.batch_size
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        done, runs = 0, designs * seeds
        whole = progress.add_task("training", total=runs, note="")
        partial: dict[tuple[str, int], float] = {}

        def show(event: "Event") -> None:
            nonlocal done, runs
            if isinstance(event, SeedsAdded):
                runs = designs * event.seeds
                progress.update(whole, total=runs)
                progress.console.print(describe_added(event), markup=False, highlight=False)
            if not isinstance(event, SeedEvent):
                return
            note = f"{event.design} seed {event.seed}"
            if isinstance(event, SeedFinished):
                partial.pop((event.design, event.seed), None)
                done += 1
                progress.console.print(f"[{done}/{runs}] {describe_seed(event, metric)}", markup=False, highlight=False)
            elif isinstance(event, EvaluationEvent):
                # A run may end long before its budget; then the bar jumps, but never back.
                partial[event.design, event.seed] = min((event.samples or 0) / samples, 1.0)
                note += f": {_value(event.value, metric)} at step {event.step}"
            progress.update(whole, completed=min(done + sum(partial.values()), runs), note=note)

        yield show


_ENDINGS = {
    "target": "target held",
    "hopeless": "stopped as hopeless",
    "budget": "budget spent",
    "diverged": "diverged",
}


def describe_seed(event: "SeedFinished", metric: "Metric") -> str:
    """One line about a finished seed."""
    from presilicon.records import SeedRestored

    reason = f" ({event.reason})" if event.reason else ""
    restored = " (before this was resumed)" if isinstance(event, SeedRestored) else ""
    return (
        f"{event.design} seed {event.seed}: {_ENDINGS[event.ending]}{reason} after {event.steps} steps, "
        f"test {metric.name} {_value(event.test_value, metric)}{restored}"
    )


def describe_added(event: "SeedsAdded") -> str:
    """One line about seeds that are added."""
    pairs = ", ".join(f"{first} and {second}" for first, second in event.undecided)
    return f"not decided yet between {pairs}: going on to {event.seeds} seeds each"


def _value(value: float | None, metric: "Metric") -> str:
    if value is None:
        return "unknown"
    return f"{value:.1%}" if metric.is_fraction else f"{value:.4g}"
