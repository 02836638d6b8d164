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

from presilicon.base import ConfigError, Content, RunFailedError, content_of
from presilicon.emulation import (
    Checkpoint,
    PassOn,
    SavedRun,
    TrainingRecord,
    changed_parts,
    isolated,
    take_turns,
    train_record,
)
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
from presilicon.study.instrumented import InstrumentTask, instrument_of
from presilicon.study.processes import prepare_worker, process_context, starting_workers
from presilicon.workloads import Splits, Workload, files_of, load_file, resident_pair, splits_digest, workload_errors

OnEvent = Callable[[Event], None]

PRELOAD = (__name__, "torch._dynamo", "presilicon.formats.kernels.cpu_passes")
"""Modules that a training needs; optimizers import torch._dynamo at their first step."""


class SeedTask(NamedTuple):
    """One training run of a design."""

    design: str
    record: TrainingRecord
    checkpoint: Checkpoint | None = None
    """Where the run is saved; one that has finished there is not trained again."""
    watched: InstrumentTask | None = None
    """The instrument that watches the run, if there is one."""
    expected: dict[str, Any] | None = None
    """The record as the process that sent the task described it; a worker that sees another one refuses."""


def train_seeds(tasks: Sequence[SeedTask], jobs: int, on_event: OnEvent) -> list[Trace]:
    """The trace of each task, in the order of the tasks.

    Each run uses one torch thread, whether it runs here (`jobs=1`) or in one of `jobs` worker processes, so the
    numbers do not depend on `jobs`. On a GPU, `jobs` runs take turns in this process, so that the GPU works on one
    while Python prepares the next. `on_event` is called in this process with evaluations and finished seeds as they
    happen, and with seeds that had already finished in their checkpoints (`SeedRestored`).
    """
    if jobs <= 1 or len(tasks) <= 1 or tasks[0].record.device != "cpu":
        return _train_here(tasks, jobs, on_event)
    tasks = [task._replace(expected=task.record.describe()) for task in tasks]
    return _train_in_processes(tasks, min(jobs, len(tasks)), on_event)


def _train_here(tasks: Sequence[SeedTask], jobs: int, on_event: OnEvent) -> list[Trace]:
    if jobs <= 1 or len(tasks) <= 1:
        return [run_seed(task, on_event) for task in tasks]
    return take_turns([partial(run_seed, task, on_event) for task in tasks], tasks[0].record.device, jobs)


def _train_in_processes(tasks: Sequence[SeedTask], jobs: int, on_event: OnEvent) -> list[Trace]:
    context = process_context(PRELOAD)
    events = context.Queue()
    listener = _Listener(events, on_event)
    listener.start()
    before = set(multiprocessing.active_children())
    files = tuple({file for task in tasks for file in files_of(task.record.workload)})
    arguments = (events, files, dict(os.environ))
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=start_worker, initargs=arguments)
    patience_s: float | None = 5.0
    try:
        with starting_workers():
            futures = [pool.submit(_run_in_worker, task) for task in tasks]
        _wait(futures, listener)
        traces = [future.result() for future in futures]
        patience_s = None  # every event arrives, however slowly they are passed on
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
        listener.join(patience_s)
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
    """The trace of a training run, from its checkpoint if it has finished there.

    Raises:
        ConfigError: the record is not the one that the task was made for.
    """
    record = task.record
    run: dict[str, Any] = {"design": task.design, "seed": record.seed}

    def on_evaluation(point: Evaluation) -> None:
        on_event(EvaluationEvent(**run, **structs.asdict(point)))

    def on_finding(finding: Finding) -> None:
        on_event(FindingEvent(**run, **structs.asdict(finding)))

    def on_instrument(event: InstrumentEvent) -> None:
        on_event(structs.replace(event, **run))

    if task.expected is not None and (changed := changed_parts(task.expected, record.describe())):
        raise ConfigError(
            f"{', '.join(changed)} changed while the run was in progress: a worker would train something else; start a "
            "new run"
        )
    with isolated(record.device):
        splits, data = load_splits(record.workload)
        if task.checkpoint is not None:
            trace = SavedRun(task.checkpoint, record.identity(data)).read_trace()
            if trace is not None:
                on_event(SeedRestored(**run, **_summary(trace)))
                return trace
        name = f"{task.design}-seed{record.seed}"
        watched = task.watched
        instruments = () if watched is None else (instrument_of(watched, record.numerics, on_instrument, name=name),)
        try:
            with workload_errors():
                trace = train_record(
                    record._replace(hooks=(*record.hooks, *instruments)), observers=instruments,
                    on_evaluation=on_evaluation, on_finding=on_finding, on_wait=on_wait, checkpoint=task.checkpoint,
                    splits=splits, data=data,
                )  # fmt: skip
        finally:
            for instrument in instruments:
                instrument.finish()
    for shares in trace.shares:
        on_event(RoundingEvent(**run, **structs.asdict(shares)))
    on_event(SeedFinished(**run, **_summary(trace)))
    return trace


_loaded: list[tuple[str, Splits, Content]] = []
"""Digest of the function that loads the data of the last workload trained here, the data and their content."""


def load_splits(workload: Workload) -> tuple[Splits, Content]:
    """The data of a workload and their content; its seeds share them if they are tensors, which no seed uses up."""
    source = content_of(workload.data)
    if _loaded and _loaded[0][0] == source.digest and not source.unknown:
        return _loaded[0][1:]
    _loaded.clear()
    splits = workload.require_data()[0]()
    data = splits_digest(splits)
    if all(resident_pair(split) is not None for split in (splits.train, splits.validation, splits.test)):
        _loaded.append((source.digest, splits, data))
    return splits, data


def _summary(trace: Trace) -> dict[str, Any]:
    return {"steps": trace.steps, "ending": trace.ending, "reason": trace.reason, "test_accuracy": trace.test_accuracy}
