"""Progress of training runs on stderr: a bar on a terminal, otherwise a line per finished seed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from presilicon.records import Event, SeedFinished

Show = Callable[["Event"], None]


@contextmanager
def seed_progress(runs: int, max_steps: int) -> Iterator[Show]:
    """Shows the progress of `runs` training runs of at most `max_steps` steps; call it with the events of a study."""
    if sys.stderr.isatty():
        with _bar(runs, max_steps) as show:
            yield show
    else:
        yield _lines(runs)


def _lines(runs: int) -> Show:
    from presilicon.records import SeedFinished

    done = 0

    def show(event: "Event") -> None:
        nonlocal done
        if isinstance(event, SeedFinished):
            done += 1
            click.echo(f"[{done}/{runs}] {describe_seed(event)}", err=True)

    return show


@contextmanager
def _bar(runs: int, max_steps: int) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from presilicon.records import EvaluationEvent, SeedEvent, SeedFinished

    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        whole = progress.add_task("training", total=runs, note="")
        partial: dict[tuple[str, int], float] = {}
        done = 0

        def show(event: "Event") -> None:
            nonlocal done
            if not isinstance(event, SeedEvent):
                return
            note = f"{event.design} seed {event.seed}"
            if isinstance(event, SeedFinished):
                partial.pop((event.design, event.seed), None)
                done += 1
                progress.console.print(f"[{done}/{runs}] {describe_seed(event)}", markup=False, highlight=False)
            elif isinstance(event, EvaluationEvent):
                # A run may end long before its budget; then the bar jumps, but never back.
                partial[event.design, event.seed] = min(event.step / max_steps, 1.0)
                note += f": {event.accuracy:.1%} at step {event.step}"
            progress.update(whole, completed=min(done + sum(partial.values()), runs), note=note)

        yield show


_ENDINGS = {
    "target": "target held",
    "hopeless": "stopped as hopeless",
    "budget": "budget spent",
    "diverged": "diverged",
}


def describe_seed(event: "SeedFinished") -> str:
    """One line about a finished seed."""
    from presilicon.records import SeedRestored

    reason = f" ({event.reason})" if event.reason else ""
    restored = " (before this was resumed)" if isinstance(event, SeedRestored) else ""
    return (
        f"{event.design} seed {event.seed}: {_ENDINGS[event.ending]}{reason} after {event.steps} steps, "
        f"test accuracy {event.test_accuracy:.1%}{restored}"
    )
