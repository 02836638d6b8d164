"""Tasks for worker processes, which find this module by its name."""

import os
from pathlib import Path

from presilicon.base import ConfigError
from presilicon.records import EvaluationEvent
from presilicon.study.pool import emit

EVENTS = 200


def emit_many(number: int) -> int:
    """Emit many events, and return the number."""
    for step in range(EVENTS):
        emit(EvaluationEvent(design="a", seed=number, step=step, value=0.5))
    return number


def die_once(task: tuple[int, Path]) -> int:
    """Return a task's number; the first process that gets number 1 dies."""
    number, folder = task
    if number == 1 and not (folder / "died").exists():
        (folder / "died").touch()
        os._exit(1)
    return number


def refuse() -> None:
    """A record that no worker can load."""
    raise ConfigError("it cannot be loaded")
