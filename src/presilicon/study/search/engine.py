"""Where the tasks of a study run: in this process, or in processes on local cores. `cluster` has Dask's workers."""

import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple, Protocol

from presilicon.base import ConfigError, PresiliconError, RunFailedError
from presilicon.formats import NAMED_FORMATS, NAMED_UNITS, UserFormat
from presilicon.study.processes import prepare_worker, process_context, starting_workers

MOST_DEATHS = 3
"""Worker processes that may die before a study gives up."""


class Outcome(NamedTuple):
    """A finished task: its result, or the reason why it failed."""

    task: Any
    result: Any = None
    error: str = ""
    is_lost: bool = False
    """Whether its workers died, so that another attempt may succeed."""


class Engine(Protocol):
    """Runs tasks on workers; a worker that dies costs only the work since its last checkpoint."""

    @property
    def workers(self) -> int:
        """Tasks that run at the same time."""
        ...

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any], *, trains: bool = True) -> Iterator[Outcome]:
        """Outcomes as tasks finish, each exactly once; tasks that do not train need no torch."""
        ...

    def close(self) -> None:
        """Release the workers."""
        ...


def registrations(dumps: Callable[[Any], bytes] = pickle.dumps) -> bytes:
    """The formats and processing units that were registered in this process, for workers; empty if there are none.

    Raises:
        ConfigError: their functions cannot be sent to another process.
    """
    formats = {name: fmt for name, fmt in NAMED_FORMATS.items() if isinstance(fmt, UserFormat)}
    if not formats and not NAMED_UNITS:
        return b""
    try:
        return dumps((formats, dict(NAMED_UNITS)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"registered formats and units cannot be sent to workers ({error}): define their functions at the top "
            "level of a file, or give jobs=1"
        ) from None


_registered = b""


def _register(registered: bytes) -> None:
    global _registered
    if registered != _registered:
        formats, units = pickle.loads(registered)
        NAMED_FORMATS.update(formats)
        NAMED_UNITS.update(units)
        _registered = registered


def attempt(function: Callable[[Any], Any], task: Any, registered: bytes = b"") -> tuple[Any, str]:
    """The result of a task, or the message of an error that its user can act on.

    `registered` are the formats and units of the process that sent the task.
    """
    try:
        if registered:
            _register(registered)
        return function(task), ""
    except PresiliconError as error:
        return None, " ".join(str(error).split())


def _workers(trains: bool) -> dict[str, Any]:
    """How worker processes start: with torch loaded by a server, or without it, which is sooner than loading it."""
    environment = dict(os.environ)
    if not trains:
        spawn = multiprocessing.get_context("spawn")
        return {"mp_context": spawn, "initializer": prepare_worker, "initargs": (environment,)}
    from presilicon.study.seeds import PRELOAD, start_worker

    return {
        "mp_context": process_context(PRELOAD), "initializer": start_worker, "initargs": (None, (), environment),
    }  # fmt: skip


class LocalEngine:
    """Processes on this machine, or this process alone for one job."""

    def __init__(self, jobs: int) -> None:
        self.workers = jobs

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any], *, trains: bool = True) -> Iterator[Outcome]:
        """Outcomes as tasks finish; those of a worker that died are given to another."""
        if self.workers <= 1 or len(tasks) <= 1:
            for task in tasks:
                yield Outcome(task, *attempt(function, task))
            return
        waiting = dict(enumerate(tasks))
        for _ in range(MOST_DEATHS):
            try:
                for number, outcome in self._run_pool(function, waiting, trains):
                    del waiting[number]
                    yield outcome
                return
            except BrokenProcessPool:
                continue
        raise RunFailedError(
            f"worker processes died {MOST_DEATHS} times (out of memory, perhaps): try fewer with --jobs 1; what has "
            "finished is kept"
        )

    def _run_pool(
        self, function: Callable[[Any], Any], tasks: dict[int, Any], trains: bool
    ) -> Iterator[tuple[int, Outcome]]:
        before = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(min(self.workers, len(tasks)), **_workers(trains))
        try:
            registered = registrations()
            with starting_workers():
                futures = {pool.submit(attempt, function, task, registered): number for number, task in tasks.items()}
            for future in as_completed(futures):
                number = futures[future]
                yield number, Outcome(tasks[number], *future.result())
        except BaseException:
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        """There is nothing to release: processes end with each stage."""
