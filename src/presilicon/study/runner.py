"""The one runner: the work of evaluations and studies, done on one pool of workers and recorded in one log."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from presilicon.base import ConfigError, RunFailedError, describe_processor
from presilicon.records import DecisionEvent, EvaluationEvent, Event, SeedFinished, SeedsAdded, Trace
from presilicon.runs import Run, StoredRun, create_run, resume_run
from presilicon.study.pool import LocalPool, OnEvent, TaskBatch, TaskOutcome, WorkerPool

if TYPE_CHECKING:
    from presilicon.study.join.seeds import SeedTask

T = TypeVar("T")


class SweepProgress(NamedTuple):
    """How far a stage of a study has come."""

    stage: str
    total: int
    done: int
    failed: int
    running: int
    eta_s: float | None


OnProgress = Callable[[SweepProgress], None]
PointCounts = tuple[Callable[[Any], int], Callable[[TaskOutcome], int]]
"""How many points a task has, and how many of an outcome failed."""


class Runner:
    """Does the work of one run: its tasks on a pool of workers, its events in the run's log and to whoever listens.

    An evaluation is a study of one point: both train `SeedTask`s here, and a run that continues logs nothing twice.
    """

    def __init__(
        self,
        pool: WorkerPool,
        run: Run | None = None,
        *,
        on_event: OnEvent | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.pool, self.run, self.on_progress, self._on_event = pool, run, on_progress, on_event
        self._logged: set[object] = set() if run is None else {_identity(event) for event in run.log.read()} - {None}

    def record(self, event: Event) -> None:
        """Log an event and pass it on, unless that was done before the run was interrupted.

        That seeds are added, or had ended, is passed on again, because progress is counted from the beginning.
        Decisions about points are for the log alone.
        """
        identity = _identity(event)
        is_known = identity in self._logged and type(event) is not SeedFinished
        if identity is not None:
            self._logged.add(identity)
        if self.run is not None and not is_known:
            self.run.record(event)
        is_repeated = is_known and isinstance(event, EvaluationEvent)
        if self._on_event is not None and not is_repeated and not isinstance(event, DecisionEvent):
            self._on_event(event)

    def outcomes(
        self, stage: str, work: TaskBatch, pool: WorkerPool | None = None, points: PointCounts | None = None
    ) -> Iterator[TaskOutcome]:
        """Outcomes of tasks as they finish, counted as the progress of a stage; `points` counts parts of tasks.

        Raises:
            RunFailedError: at the end, if workers died with their tasks; what has finished is kept.
        """
        pool, lost = pool or self.pool, 0
        all_of, failed_of = points or (lambda task: 1, lambda outcome: bool(outcome.error))
        meter = self.meter(stage, sum(map(all_of, work.tasks)), pool)
        for outcome in pool.run(work):
            if outcome.is_lost:
                lost += all_of(outcome.task)
            else:
                yield outcome
            meter.advance(all_of(outcome.task), failed_of(outcome))
        if lost:
            what = "trainings" if points is None else "points"
            raise RunFailedError(f"{lost} {what} failed because their workers died; the same command tries again")

    def train(self, tasks: "Sequence[SeedTask]", *, device: str = "cpu") -> list[Trace]:
        """The trace of each task, in their order; the first failure ends all of them and is raised.

        Each training uses one torch thread, in this process or in a worker, so that the numbers do not depend on the
        pool.
        """
        from presilicon.study.join.seeds import train_seed

        traces: dict[int, Trace] = {}
        work = TaskBatch(train_seed, tasks, device=device, on_event=self.record, ends_early=True)
        for outcome in self.outcomes("train", work):
            if outcome.failure is not None:
                raise outcome.failure
            traces[outcome.number] = outcome.result
        return [traces[number] for number in range(len(tasks))]

    def train_apart(self, tasks: "Sequence[SeedTask]", stage: str, *, device: str = "cpu") -> Iterator[TaskOutcome]:
        """Outcomes of trainings whose traces stay in their checkpoints, and which fail one by one.

        On a GPU of this machine they train one after another, since their models may be of very different sizes.
        """
        from presilicon.study.join.seeds import train_seed

        pool = LocalPool(1) if device != "cpu" and isinstance(self.pool, LocalPool) else self.pool
        for outcome in self.outcomes(stage, TaskBatch(train_seed, tasks, device=device), pool):
            if isinstance(outcome.result, SeedFinished):
                self.record(outcome.result)
            yield outcome

    def meter(self, stage: str, total: int, pool: WorkerPool | None = None) -> "ProgressMeter":
        """Counts the finished tasks of a stage."""
        return ProgressMeter(stage, total, pool or self.pool, self.on_progress)


def _identity(event: Event) -> object:
    """Equal for events that say the same thing, of which one is enough in a log; None for events of other types."""
    match event:
        case EvaluationEvent():
            return event.design, event.seed, event.step
        case SeedFinished():
            return event.design, event.seed
        case SeedsAdded():
            return event.seeds
        case DecisionEvent():
            return event.point, event.decision
    return None


class ProgressMeter:
    """Counts the finished tasks of a stage and estimates when it ends."""

    def __init__(self, stage: str, total: int, pool: WorkerPool, on_progress: OnProgress | None) -> None:
        self._stage, self._total, self._pool, self._on_progress = stage, total, pool, on_progress
        self._done = self._failed = 0
        self._started = time.monotonic()
        if total:
            self.advance(0)

    def advance(self, count: int, failed: int = 0) -> None:
        """Report that many more finished tasks."""
        self._done, self._failed = self._done + count, self._failed + failed
        if self._on_progress is None:
            return
        left = self._total - self._done
        eta_s = (time.monotonic() - self._started) / self._done * left if self._done else None
        running = min(self._pool.workers, left)
        self._on_progress(SweepProgress(self._stage, self._total, self._done, self._failed, running, eta_s))


def open_run(
    kind: str,
    config: dict[str, Any],
    out: Path,
    seed: int,
    stored: StoredRun | None = None,
    any_processor: bool = False,
) -> Run:
    """A new run under `out`, or the stored one, if the configuration it was started with still equals `config`.

    Raises:
        ConfigError: a design, the workload or its data has changed, another process owns the run, the run's record
            cannot be read, or it began on another kind of processor and that is not allowed.
    """
    if stored is None:
        return create_run(out, kind, config, seed=seed)
    if stored.record is None:
        raise ConfigError(f"{stored.name} cannot be resumed: {stored.problem}")
    if config.get("unknown"):
        raise ConfigError(
            f"{stored.name} cannot be resumed: it depends on {', '.join(config['unknown'])}, which cannot be compared "
            "with what it was then; start a new run"
        )
    then, now = stored.record.config.get("processor"), config.get("processor")
    if then != now and not any_processor:
        raise ConfigError(
            f"{stored.name} cannot be resumed: it began on {describe_processor(then)}, and this is "
            f"{describe_processor(now)}, on which libraries add in another order; --any-processor continues all the "
            "same, and marks the result"
        )
    return resume_run(stored.path, stored.record, config if then == now else config | {"processor": then})


def saved_arguments(run: StoredRun, file: str, kind: type[T]) -> T:
    """The arguments that were saved with a run, whatever became of it.

    Raises:
        ConfigError: the run has none, or they cannot be read.
    """
    try:
        return msgspec.json.decode((run.path / file).read_bytes(), type=kind)
    except FileNotFoundError:
        raise ConfigError(f"{run.name} cannot be resumed: it has no {file}") from None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{run.name} cannot be resumed: {file} cannot be read ({error})") from None
