"""Training runs of seeds: the tasks of a runner, in worker processes or in this one."""

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import structs

from presilicon.base import ConfigError, Content, content_of
from presilicon.emulation import Checkpoint, PassOn, SavedRun, TrainingRecord, changed_parts, isolated, train_record
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
from presilicon.study.instrumented import InstrumentTask, instrument_of
from presilicon.study.pool import OnEvent, emit, in_worker
from presilicon.workloads import Splits, Workload, resident_pair, splits_digest, workload_errors


class SeedTask(NamedTuple):
    """One training run of a design."""

    design: str
    record: TrainingRecord | Callable[[], TrainingRecord]
    """The record itself, or how a worker that it is not sent to finds it."""
    checkpoint: Checkpoint | None = None
    """Where the run is saved; one that has finished there is not trained again."""
    watched: InstrumentTask | None = None
    """The instrument that watches the run, if there is one."""
    described: dict[str, Any] | None = None
    """The record as it was described before any of the user's code ran; a worker that sees another one refuses."""
    is_followed: bool = True
    """Whether its events are passed on and its trace comes back; if not, the trace stays in its checkpoint."""

    def load(self) -> TrainingRecord:
        """Everything that decides the bits of the run."""
        return self.record if isinstance(self.record, TrainingRecord) else self.record()

    def saved_trace(self, record: TrainingRecord, data: Content) -> Trace | None:
        """The trace in its checkpoint, if it has finished."""
        if self.checkpoint is None:
            return None
        return SavedRun(self.checkpoint, record.identity(data, self.described)).read_trace()


_compared: list[dict[str, Any]] = []
"""Descriptions that this worker saw as the process did that sent them; code that ran since may have left something."""


def train_seed(task: SeedTask, on_wait: PassOn = lambda: None) -> Trace | SeedFinished:
    """Train one seed, with its events emitted; of one that is not followed, only the event of its end is returned."""
    record = task.load()
    if task.described is not None and in_worker() and task.described not in _compared:
        if changed := changed_parts(task.described, record.describe()):
            raise ConfigError(
                f"{', '.join(changed)} changed while the run was in progress: a worker would train something else; "
                "start a new run"
            )
        _compared.append(task.described)
    if task.is_followed:
        return run_seed(task, record, emit, on_wait)
    ends: list[SeedFinished] = []
    run_seed(task, record, lambda event: ends.append(event) if isinstance(event, SeedFinished) else None, on_wait)
    return ends[-1]


def run_seed(task: SeedTask, record: TrainingRecord, on_event: OnEvent, on_wait: PassOn) -> Trace:
    """The trace of a training run, from its checkpoint if it has finished there (`SeedRestored`)."""
    if task.checkpoint is not None and task.described is None:
        task = task._replace(described=record.describe())
    run: dict[str, Any] = {"design": task.design, "seed": record.seed}

    def on_evaluation(point: Evaluation) -> None:
        on_event(EvaluationEvent(**run, **structs.asdict(point)))

    def on_finding(finding: Finding) -> None:
        on_event(FindingEvent(**run, **structs.asdict(finding)))

    def on_instrument(event: InstrumentEvent) -> None:
        on_event(structs.replace(event, **run))

    def end(kind: type[SeedFinished], trace: Trace) -> Trace:
        names = ("steps", "ending", "reason", "test_value")
        on_event(kind(**run, **{name: getattr(trace, name) for name in names}))
        return trace

    with isolated(record.device):
        splits, data = load_splits(record.workload)
        if (saved := task.saved_trace(record, data)) is not None:
            return end(SeedRestored, saved)
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
    return end(SeedFinished, trace)


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
