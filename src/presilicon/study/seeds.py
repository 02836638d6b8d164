"""Training runs of many seeds and designs, in worker processes or in this one."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from msgspec import structs

from presilicon.base import RunFailedError
from presilicon.designs import MINIBATCH, Method, Numerics, UpdateRule
from presilicon.emulation import Checkpoint, PassOn, identity, read_trace, take_turns, train
from presilicon.records import (
    Evaluation,
    EvaluationEvent,
    Event,
    Finding,
    FindingEvent,
    InstrumentEvent,
    RoundingEvent,
    SeedFinished,
    SeedRestored,
    Trace,
)
from presilicon.study.instrumented import InstrumentTask, instrument_of, one_thread
from presilicon.study.processes import prepare_worker, process_context, starting_workers
from presilicon.workloads import Splits, Workload, files_of, load_file, resident_pair, workload_errors

OnEvent = Callable[[Event], None]

PRELOAD = (__name__, "torch._dynamo", "presilicon.formats.kernels.cpu_passes")
"""Modules that a training needs; optimizers import torch._dynamo at their first step."""


class SeedTask(NamedTuple):
    """One training run."""

    design: str
    numerics: Numerics
    workload: Workload
    seed: int
    device: str = "cpu"
    checkpoint: Checkpoint | None = None
    """Where the run is saved; one that has finished there is not trained again."""
    watched: InstrumentTask | None = None
    """The instrument that watches the run, if there is one."""
    update_rule: UpdateRule = MINIBATCH
    """How the machine updates the weights."""
    methods: tuple[Method, ...] = ()


def train_seeds(tasks: Sequence[SeedTask], jobs: int, on_event: OnEvent) -> list[Trace]:
    """The trace of each task, in the order of the tasks.

    Each run uses one torch thread, whether it runs here (`jobs=1`) or in one of `jobs` worker processes, so the
    numbers do not depend on `jobs`. On a GPU, `jobs` runs take turns in this process, so that the GPU works on one
    while Python prepares the next. `on_event` is called in this process with evaluations and finished seeds as they
    happen, and with seeds that had already finished in their checkpoints (`SeedRestored`).
    """
    if jobs <= 1 or len(tasks) <= 1 or tasks[0].device != "cpu":
        with one_thread():
            return _train_here(tasks, jobs, on_event)
    return _train_in_processes(tasks, min(jobs, len(tasks)), on_event)


def _train_here(tasks: Sequence[SeedTask], jobs: int, on_event: OnEvent) -> list[Trace]:
    if jobs <= 1 or len(tasks) <= 1:
        return [run_seed(task, on_event) for task in tasks]
    return take_turns([partial(run_seed, task, on_event) for task in tasks], tasks[0].device, jobs)


def _train_in_processes(tasks: Sequence[SeedTask], jobs: int, on_event: OnEvent) -> list[Trace]:
    context = process_context(PRELOAD)
    events = context.Queue()
    listener = _Listener(events, on_event)
    listener.start()
    before = set(multiprocessing.active_children())
    files = tuple({file for task in tasks for file in files_of(task.workload)})
    arguments = (events, files, dict(os.environ))
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=start_worker, initargs=arguments)
    try:
        with starting_workers():
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
    """Wait for all futures; the first failure, of a run or of recording it, is raised at once."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=0.2, return_when=FIRST_EXCEPTION)
        listener.check()
        for future in done:
            future.result()


class _Listener(threading.Thread):
    """Passes on the workers' events in this process; after an error it keeps emptying the queue."""

    def __init__(self, events: Any, on_event: OnEvent) -> None:
        super().__init__(daemon=True)
        self._error: Exception | None = None
        self._events = events
        self._on_event = on_event

    def run(self) -> None:
        """Pass on events until None arrives."""
        while (event := self._events.get()) is not None:
            if self._error is None:
                try:
                    self._on_event(event)
                except Exception as error:
                    self._error = error

    def check(self) -> None:
        """Raise the error that occurred while events were passed on."""
        if self._error is not None:
            raise RunFailedError(f"the run could not be recorded: {self._error}") from self._error


_events: Any = None


def start_worker(events: Any, files: tuple[tuple[Path, str], ...], environment: Mapping[str, str]) -> None:
    """Prepare a worker process: where its events go, the files that tasks refer to, and the environment."""
    global _events
    _events = events
    prepare_worker(environment)
    torch.set_num_threads(1)
    # The tasks refer to functions in these files, which no import would find.
    for file, shown in files:
        load_file(file, shown)


def _run_in_worker(task: SeedTask) -> Trace:
    return run_seed(task, _events.put)


def run_seed(task: SeedTask, on_event: OnEvent, on_wait: PassOn = lambda: None) -> Trace:
    """The trace of a training run, from its checkpoint if it has finished there."""
    run: dict[str, Any] = {"design": task.design, "seed": task.seed}

    def on_evaluation(point: Evaluation) -> None:
        on_event(EvaluationEvent(**run, **structs.asdict(point)))

    def on_finding(finding: Finding) -> None:
        on_event(FindingEvent(**run, **structs.asdict(finding)))

    def on_instrument(event: InstrumentEvent) -> None:
        on_event(structs.replace(event, **run))

    if task.checkpoint is not None:
        run_identity = identity(
            task.workload, task.numerics, task.seed, task.device, update_rule=task.update_rule, methods=task.methods
        )
        trace = read_trace(task.checkpoint.path, run_identity)
        if trace is not None:
            on_event(SeedRestored(**run, **_summary(trace)))
            return trace
    name = f"{task.design}-seed{task.seed}"
    watched = task.watched
    instruments = () if watched is None else (instrument_of(watched, task.numerics, on_instrument, name=name),)
    try:
        with workload_errors():
            trace = train(
                task.workload, task.numerics, seed=task.seed, device=task.device, on_evaluation=on_evaluation,
                on_finding=on_finding, checkpoint=task.checkpoint, observers=instruments, hooks=instruments,
                update_rule=task.update_rule, methods=task.methods, on_wait=on_wait, splits=_splits_of(task.workload),
            )  # fmt: skip
    finally:
        for instrument in instruments:
            instrument.finish()
    for shares in trace.shares:
        on_event(RoundingEvent(**run, **structs.asdict(shares)))
    on_event(SeedFinished(**run, **_summary(trace)))
    return trace


_loaded: list[tuple[Any, Splits]] = []
"""The function that loads the data of the last workload that was trained here, and the data."""


def _splits_of(workload: Workload) -> Splits:
    """The data of a workload; its seeds share them if they are tensors, which no seed uses up."""
    if _loaded and _loaded[0][0] is workload.data:
        return _loaded[0][1]
    _loaded.clear()
    splits = workload.require_data()[0]()
    if all(resident_pair(split) is not None for split in (splits.train, splits.validation, splits.test)):
        _loaded.append((workload.data, splits))
    return splits


def _summary(trace: Trace) -> dict[str, Any]:
    return {"steps": trace.steps, "ending": trace.ending, "reason": trace.reason, "test_accuracy": trace.test_accuracy}
