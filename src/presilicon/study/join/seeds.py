"""Training runs of many seeds and designs, in worker processes or in this one."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec import structs

from presilicon.base import ConfigError, Content, content_of
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
    Finding,
    FindingEvent,
    InstrumentEvent,
    RoundingEvent,
    SeedFinished,
    SeedRestored,
    Trace,
)
from presilicon.study.engine import LocalEngine, OnEvent, emit
from presilicon.study.instrumented import InstrumentTask, instrument_of
from presilicon.workloads import Splits, Workload, files_of, resident_pair, splits_digest, workload_errors


class SeedTask(NamedTuple):
    """One training run of a design."""

    design: str
    record: TrainingRecord
    checkpoint: Checkpoint | None = None
    """Where the run is saved; one that has finished there is not trained again."""
    watched: InstrumentTask | None = None
    """The instrument that watches the run, if there is one."""
    described: dict[str, Any] | None = None
    """The record as it was described before any of the user's code ran; a worker that sees another one refuses."""


def train_seeds(tasks: Sequence[SeedTask], jobs: int, on_event: OnEvent) -> list[Trace]:
    """The trace of each task, in the order of the tasks.

    Each run uses one torch thread, whether it runs here (`jobs=1`) or in one of `jobs` worker processes, so the
    numbers do not depend on `jobs`. On a GPU, `jobs` runs take turns in this process, so that the GPU works on one
    while Python prepares the next. `on_event` is called in this process with evaluations and finished seeds as they
    happen, and with seeds that had already finished in their checkpoints (`SeedRestored`).
    """
    if jobs <= 1 or len(tasks) <= 1:
        return [run_seed(task, on_event) for task in tasks]
    if tasks[0].record.device != "cpu":
        return take_turns([partial(run_seed, task, on_event) for task in tasks], tasks[0].record.device, jobs)
    files = tuple({file for task in tasks for file in files_of(task.record.workload)})
    engine = LocalEngine(jobs, files=files, on_event=on_event)
    sent = [(number, _described(task)) for number, task in enumerate(tasks)]
    traces: dict[int, Trace] = {}
    for outcome in engine.run(_run_in_worker, sent):
        if outcome.failure is not None:
            raise outcome.failure
        traces[outcome.task[0]] = outcome.result
    return [traces[number] for number in range(len(tasks))]


def _described(task: SeedTask) -> SeedTask:
    return task if task.described is not None else task._replace(described=task.record.describe())


_compared: list[dict[str, Any]] = []
"""Descriptions that this worker saw as the process did that sent them; code that ran since may have left something."""


def _run_in_worker(numbered: tuple[int, SeedTask]) -> Trace:
    task = numbered[1]
    if task.described is not None and task.described not in _compared:
        if changed := changed_parts(task.described, task.record.describe()):
            raise ConfigError(
                f"{', '.join(changed)} changed while the run was in progress: a worker would train something else; "
                "start a new run"
            )
        _compared.append(task.described)
    return run_seed(task, emit)


def run_seed(task: SeedTask, on_event: OnEvent, on_wait: PassOn = lambda: None) -> Trace:
    """The trace of a training run, from its checkpoint if it has finished there."""
    task = task if task.checkpoint is None else _described(task)
    record = task.record
    run: dict[str, Any] = {"design": task.design, "seed": record.seed}

    def on_evaluation(point: Evaluation) -> None:
        on_event(EvaluationEvent(**run, **structs.asdict(point)))

    def on_finding(finding: Finding) -> None:
        on_event(FindingEvent(**run, **structs.asdict(finding)))

    def on_instrument(event: InstrumentEvent) -> None:
        on_event(structs.replace(event, **run))

    with isolated(record.device):
        splits, data = load_splits(record.workload)
        if task.checkpoint is not None:
            trace = SavedRun(task.checkpoint, record.identity(data, task.described)).read_trace()
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
                    splits=splits, data=data, described=task.described,
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


def forget_data() -> None:
    """Load data again for a new study: what they are made from may have changed."""
    _loaded.clear()


def _summary(trace: Trace) -> dict[str, Any]:
    return {"steps": trace.steps, "ending": trace.ending, "reason": trace.reason, "test_value": trace.test_value}
