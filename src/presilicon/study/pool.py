"""The workers of a run: this process, or processes on local cores. `cluster` has those of Dask."""

import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from presilicon.base import ConfigError, PresiliconError, RunFailedError
from presilicon.formats import NAMED_FORMATS, NAMED_UNITS, UserFormat
from presilicon.ops import OpEntry, enter, entered, withdraw
from presilicon.records import Event
from presilicon.study.processes import prepare_worker, process_context, starting_workers
from presilicon.workloads import load_file

OnEvent = Callable[[Event], None]
Files = tuple[tuple[Path, str], ...]
"""Files of the user's that tasks refer to, as `workloads.files_of` lists them."""

MOST_DEATHS = 3
"""Worker processes that may die before a study gives up."""
PRELOAD = ("presilicon.study.join.seeds", "torch._dynamo", "presilicon.formats.kernels.cpu_passes")
"""Modules that a training needs; optimizers import torch._dynamo at their first step."""


class TaskBatch(NamedTuple):
    """Tasks that a function does, on any pool of workers."""

    function: Callable[..., Any]
    tasks: Sequence[Any]
    trains: bool = True
    """Whether tasks train; others need no torch."""
    device: str = "cpu"
    """Where they train."""
    on_event: OnEvent | None = None
    """Called in this process with the events that tasks on this machine `emit`."""
    ends_early: bool = False
    """Whether the first failure ends all tasks, because the caller raises it."""


class TaskOutcome(NamedTuple):
    """A finished task: its result, or the error by which it failed."""

    number: int
    """Its position among the tasks."""
    task: Any
    result: Any = None
    failure: PresiliconError | None = None
    is_lost: bool = False
    """Whether its workers died, so that another attempt may succeed."""

    @property
    def error(self) -> str:
        """The message of the failure on one line; empty if there is none."""
        return "" if self.failure is None else " ".join(str(self.failure).split())


class WorkerPool(Protocol):
    """Workers that run tasks; one that dies costs only the work since its last checkpoint."""

    @property
    def workers(self) -> int:
        """Tasks that run at the same time."""
        ...

    def run(self, work: TaskBatch) -> Iterator[TaskOutcome]:
        """Outcomes as tasks finish, each exactly once."""
        ...

    def close(self) -> None:
        """Release the workers."""
        ...


def registrations(dumps: Callable[[Any], bytes] = pickle.dumps) -> bytes:
    """The formats, processing units and ops that were registered in this process, for workers; empty if there are none.

    Raises:
        ConfigError: their functions cannot be sent to another process.
    """
    formats = {name: fmt for name, fmt in NAMED_FORMATS.items() if isinstance(fmt, UserFormat)}
    if not formats and not NAMED_UNITS and not entered():
        return b""
    try:
        return dumps((formats, dict(NAMED_UNITS), entered()))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"registered formats, units and ops cannot be sent to workers ({error}): define their functions at the top "
            "level of a file, or give jobs=1"
        ) from None


_registered = b""
_ops: tuple[OpEntry, ...] = ()
"""Entries of the op table that the process that sends tasks has added."""


def _register(registered: bytes) -> None:
    global _registered, _ops
    if registered == _registered:
        return
    formats, units, ops = pickle.loads(registered) if registered else ({}, {}, ())
    NAMED_FORMATS.update(formats)
    NAMED_UNITS.update(units)
    for entry in _ops:
        withdraw(entry.name)
    for entry in ops:
        enter(entry)
    _registered, _ops = registered, ops


def attempt(function: Callable[[Any], Any], task: Any, registered: bytes = b"") -> tuple[Any, PresiliconError | None]:
    """The result of a task, or the error that its user can act on.

    `registered` are the formats, units and ops of the process that sent the task.
    """
    try:
        _register(registered)
        return function(task), None
    except PresiliconError as error:
        return None, error


_send: OnEvent | None = None
"""Where the events of tasks go: in a worker, into the queue by which they reach the process that started it."""
_is_worker = False


def start_worker(events: Any, files: Files, environment: Mapping[str, str]) -> None:
    """Prepare a worker process: where its events go, the files that tasks refer to, and the environment."""
    global _send, _is_worker
    _send, _is_worker = None if events is None else events.put, True
    prepare_worker(environment)
    # The tasks refer to functions in these files, which no import would find.
    for file, shown in files:
        load_file(file, shown)


def in_worker() -> bool:
    """Whether this process is a worker of another on this machine."""
    return _is_worker


def emit(event: Event) -> None:
    """Pass an event of a task on to the process that started it, if that listens."""
    if _send is not None:
        _send(event)


@contextmanager
def _sending(on_event: OnEvent | None) -> Iterator[None]:
    """A context in which tasks run in this process, with their events."""
    global _send
    before, _send = _send, on_event
    try:
        yield
    finally:
        _send = before


class LocalPool:
    """Processes on this machine, or this process alone for one job or a GPU."""

    def __init__(self, jobs: int, *, files: Files = ()) -> None:
        """`files` are those that tasks refer to."""
        self.workers = jobs
        self._files = files

    def run(self, work: TaskBatch) -> Iterator[TaskOutcome]:
        """Outcomes as tasks finish; those of a worker that died are given to another.

        On a GPU tasks take turns in this process, so that the GPU works on one while Python prepares another.
        """
        if self.workers <= 1 or len(work.tasks) <= 1:
            for number, task in enumerate(work.tasks):
                with _sending(work.on_event):
                    result = attempt(work.function, task)
                yield TaskOutcome(number, task, *result)
            return
        if work.device != "cpu":
            yield from self._take_turns(work)
            return
        waiting = dict(enumerate(work.tasks))
        for _ in range(MOST_DEATHS):
            try:
                for outcome in self._run_processes(work, waiting):
                    del waiting[outcome.number]
                    yield outcome
                return
            except BrokenProcessPool:
                continue
        raise RunFailedError(
            f"worker processes died {MOST_DEATHS} times (out of memory, perhaps): try fewer with --jobs 1; what has "
            "finished is kept"
        )

    def _take_turns(self, work: TaskBatch) -> Iterator[TaskOutcome]:
        from presilicon.emulation import take_turns

        def run(number: int, task: Any, on_wait: Callable[[], None]) -> TaskOutcome:
            result, failure = attempt(partial(work.function, on_wait=on_wait), task)
            if work.ends_early and failure is not None:
                raise failure
            return TaskOutcome(number, task, result, failure)

        turns = [partial(run, number, task) for number, task in enumerate(work.tasks)]
        for first in range(0, len(turns), self.workers):
            with _sending(work.on_event):
                outcomes = take_turns(turns[first : first + self.workers], work.device, self.workers)
            yield from outcomes

    def _run_processes(self, work: TaskBatch, tasks: dict[int, Any]) -> Iterator[TaskOutcome]:
        # Torch is loaded by a server once, or not at all, which is sooner than loading it.
        context = process_context(PRELOAD) if work.trains else multiprocessing.get_context("spawn")
        events = None if work.on_event is None else context.Queue()
        listener = None if work.on_event is None else _Listener(events, work.on_event)
        before = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(
            min(self.workers, len(tasks)),
            mp_context=context,
            initializer=start_worker,
            initargs=(events, self._files, dict(os.environ)),
        )
        has_finished = False
        try:
            registered = registrations()
            with starting_workers():
                futures = {pool.submit(attempt, work.function, tasks[number], registered): number for number in tasks}
            for future in _as_completed(futures, listener):
                number = futures[future]
                yield TaskOutcome(number, tasks[number], *future.result())
            has_finished = True
        except BaseException:
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            if listener is not None:
                # After the end every event arrives, however slowly they are passed on. A terminated worker may have
                # died holding the queue's lock; then the last ones are not worth waiting for.
                listener.end(None if has_finished else 5.0)
        if listener is not None:
            listener.check()

    def close(self) -> None:
        """There is nothing to release: processes end with each stage."""


def _as_completed(futures: Mapping[Future[Any], int], listener: "_Listener | None") -> Iterator[Future[Any]]:
    """The futures as they finish; an error in passing on events is raised at once."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=None if listener is None else 0.2, return_when=FIRST_COMPLETED)
        if listener is not None:
            listener.check()
        yield from done


class _Listener(threading.Thread):
    """Passes on the workers' events in this process; after an error it keeps emptying the queue."""

    def __init__(self, events: Any, on_event: OnEvent) -> None:
        super().__init__(daemon=True)
        self._error: Exception | None = None
        self._events = events
        self._on_event = on_event
        self.start()

    def run(self) -> None:
        """Pass on events until None arrives."""
        while (event := self._events.get()) is not None:
            if self._error is None:
                try:
                    self._on_event(event)
                except Exception as error:
                    self._error = error

    def end(self, patience_s: float | None) -> None:
        """Wait until all events have been passed on, for some time at most."""
        self._events.put(None)
        self._events.cancel_join_thread()
        self.join(patience_s)

    def check(self) -> None:
        """Raise the error that occurred while events were passed on."""
        if self._error is not None:
            raise RunFailedError(f"the run could not be recorded: {self._error}") from self._error
