"""Progress of long work, on stderr: a bar on a terminal, a line per finished seed elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

Show = Callable[[dict[str, Any]], None]


@contextmanager
def seed_progress(runs: int, max_steps: int) -> Iterator[Show]:
    """Shows how far `runs` training runs of at most `max_steps` steps are; feed it the events of the study."""
    if sys.stderr.isatty():
        with _bar(runs, max_steps) as show:
            yield show
    else:
        yield _lines(runs)


def _lines(runs: int) -> Show:
    done = 0

    def show(event: dict[str, Any]) -> None:
        nonlocal done
        if event["event"] in _ENDED:
            done += 1
            click.echo(f"[{done}/{runs}] {describe_seed(event)}", err=True)

    return show


@contextmanager
def _bar(runs: int, max_steps: int) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

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

        def show(event: dict[str, Any]) -> None:
            nonlocal done
            run = (event["design"], event["seed"])
            if event["event"] in _ENDED:
                partial.pop(run, None)
                done += 1
                progress.console.print(f"[{done}/{runs}] {describe_seed(event)}", markup=False, highlight=False)
            else:
                # A run may end long before its budget; then the bar jumps, never back.
                partial[run] = min(event["step"] / max_steps, 1.0)
            note = f"{event['design']} seed {event['seed']}"
            if "accuracy" in event:
                note += f": {event['accuracy']:.1%} at step {event['step']}"
            progress.update(whole, completed=min(done + sum(partial.values()), runs), note=note)

        yield show


_ENDED = ("seed_finished", "seed_restored")
_ENDINGS = {
    "target": "target held",
    "budget": "budget spent",
    "diverged": "diverged",
}


def describe_seed(event: dict[str, Any]) -> str:
    """One line about a finished seed."""
    ending = _ENDINGS[event["ending"]]
    reason = f" ({event['reason']})" if event.get("reason") else ""
    restored = " (before this was resumed)" if event["event"] == "seed_restored" else ""
    return (
        f"{event['design']} seed {event['seed']}: {ending}{reason} after {event['steps']} steps, "
        f"test accuracy {event['test_accuracy']:.1%}{restored}"
    )
