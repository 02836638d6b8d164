"""Many seeds of many designs, in spawned processes or in this one."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

import torch

from presilicon.base.config import to_plain
from presilicon.base.errors import RunFailedError
from presilicon.designs import Numerics
from presilicon.emulation import train
from presilicon.emulation.checkpoint import Checkpoint, read_trace
from presilicon.emulation.training import identity
from presilicon.records import Evaluation, Finding, Trace
from presilicon.study.instrumented import InstrumentTask, instrument_of
from presilicon.workloads import Workload
from presilicon.workloads.user import files_of, load_file, workload_errors

OnEvent = Callable[[dict[str, Any]], None]


class SeedTask(NamedTuple):
    """One training run to do."""

    design: str
    numerics: Numerics
    workload: Workload
    seed: int
    device: str = "cpu"
    checkpoint: Checkpoint | None = None
    """Where the run is kept; one that had ended there is not done again."""
    watched: InstrumentTask | None = None
    """The instrument that looks on, if one does."""


def train_seeds(tasks: Sequence[SeedTask], jobs: int, on_event: OnEvent) -> list[Trace]:
    """The trace of each task, in the order of the tasks.

    One thread of torch in each run, whether it happens here (`jobs=1`) or in one of `jobs` spawned processes, so the
    numbers do not depend on `jobs`. `on_event` hears of evaluations and finished seeds as they happen, in this process,
    and of seeds that had ended in their checkpoints (`seed_restored`).
    """
    if jobs <= 1 or len(tasks) <= 1:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return [_run(task, on_event) for task in tasks]
        finally:
            torch.set_num_threads(threads)
    return _train_in_processes(tasks, min(jobs, len(tasks)), on_event)


def _train_in_processes(tasks: Sequence[SeedTask], jobs: int, on_event: OnEvent) -> list[Trace]:
    # Spawned, never forked: a process that has run parallel Numba must not fork.
    context = multiprocessing.get_context("spawn")
    events = context.Queue()
    listener = _Listener(events, on_event)
    listener.start()
    before = set(multiprocessing.active_children())
    given = (events, tuple({file for task in tasks for file in files_of(task.workload)}))
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker, initargs=given)
    try:
        futures = [pool.submit(_run_in_worker, task) for task in tasks]
        _wait(futures, listener)
        traces = [future.result() for future in futures]
    except BrokenProcessPool:
        raise RunFailedError("a worker process died (out of memory, perhaps); try fewer with --jobs 1") from None
    except BaseException:
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        events.put(None)
        # A terminated worker may have died holding the queue's lock; then the last events are not worth waiting for.
        events.cancel_join_thread()
        listener.join(timeout=5)
    listener.check()
    return traces


def _wait(futures: Sequence[Future[Trace]], listener: "_Listener") -> None:
    """Until all are done; the first failure, of the work or of recording it, is raised at once."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=0.2, return_when=FIRST_EXCEPTION)
        listener.check()
        for future in done:
            future.result()


class _Listener(threading.Thread):
    """Hands the workers' events on, in this process; if that fails it remembers why, and still empties the queue."""

    def __init__(self, events: Any, on_event: OnEvent) -> None:
        super().__init__(daemon=True)
        self._error: Exception | None = None
        self._events = events
        self._on_event = on_event

    def run(self) -> None:
        """Until a None comes through the queue."""
        while (event := self._events.get()) is not None:
            if self._error is None:
                try:
                    self._on_event(event)
                except Exception as error:
                    self._error = error

    def check(self) -> None:
        """Raise what went wrong in handing events on."""
        if self._error is not None:
            raise RunFailedError(f"the run could not be recorded: {self._error}") from self._error


_events: Any = None


def _start_worker(events: Any, files: tuple[tuple[Path, str], ...]) -> None:
    global _events
    _events = events
    # Ctrl-C reaches the whole process group; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    # The tasks name functions of these files, which no import would find.
    for file, shown in files:
        load_file(file, shown)


def _die_with_parent() -> None:
    """A worker whose parent was killed would train on for nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_in_worker(task: SeedTask) -> Trace:
    return _run(task, _events.put)


def _run(task: SeedTask, on_event: OnEvent) -> Trace:
    def on_evaluation(point: Evaluation) -> None:
        on_event(
            {
                "event": "evaluation",
                "design": task.design,
                "seed": task.seed,
                "step": point.step,
                "accuracy": point.accuracy,
                "loss": point.loss,
            }
        )

    def on_finding(finding: Finding) -> None:
        on_event({"event": "finding", "design": task.design, "seed": task.seed, **to_plain(finding)})

    def on_instrument(event: dict[str, Any]) -> None:
        on_event({**event, "design": task.design, "seed": task.seed})

    kept, event, trace = task.checkpoint, "seed_restored", None
    if kept is not None:
        trace = read_trace(kept.path, identity(task.workload, task.numerics, task.seed, task.device))
    if trace is None:
        event = "seed_finished"
        name = f"{task.design}-seed{task.seed}"
        watched = task.watched
        watching = () if watched is None else (instrument_of(watched, task.numerics, on_instrument, name=name),)
        try:
            with workload_errors():
                trace = train(
                    task.workload, task.numerics, seed=task.seed, device=task.device, on_evaluation=on_evaluation,
                    on_finding=on_finding, checkpoint=kept, observers=watching, hooks=watching,
                )  # fmt: skip
        finally:
            for instrument in watching:
                instrument.finish()
    for share in trace.shares if event == "seed_finished" else ():
        on_event({"event": "rounding", "design": task.design, "seed": task.seed, **to_plain(share)})
    on_event(
        {
            "event": event,
            "design": task.design,
            "seed": task.seed,
            "steps": trace.steps,
            "ending": trace.ending,
            "reason": trace.reason,
            "test_accuracy": trace.test_accuracy,
        }
    )
    return trace
