"""A study carried out: points simulated, trained and compared, recorded as it goes, and continued where it stopped."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from presilicon.base import ConfigError, RunFailedError, json_text, to_plain
from presilicon.designs import load_design
from presilicon.records import Event, PointMeasure, PointRecord, Recommendation, SeedRestored, SweepResult
from presilicon.runs import Run, StoredRun, config_hash, create_run, list_runs, load_run, versions
from presilicon.study.request import resume as resume_stored
from presilicon.study.search.checks import check_study, nearest_miss
from presilicon.study.search.engine import Engine, LocalEngine
from presilicon.study.search.file import StudyFile, read_study
from presilicon.study.search.front import broken_limit, pareto_front
from presilicon.study.search.points import Point, SimulateTask, price_point, simulate_points, study_points
from presilicon.study.search.table import PointTable
from presilicon.workloads import load_workload

if TYPE_CHECKING:
    from presilicon.study.search.training import TrainedPoint

STUDY_FILE = "study.json"
GRAPHS = "graphs"
_CHUNK = 16
"""Points that a worker takes at a time."""
_WORTH_PROCESSES = 64
"""Points below which starting processes costs more than they save."""


class SweepProgress(NamedTuple):
    """How far a stage of a study has come."""

    stage: str
    total: int
    done: int
    failed: int
    running: int
    eta_s: float | None


OnProgress = Callable[[SweepProgress], None]


class SweepOptions(NamedTuple):
    """How a study is carried out; none of it changes the numbers."""

    jobs: int | None = None
    on: str | None = None
    """Address of a Dask scheduler."""
    resume: str | None = None
    """Name of the run to continue."""
    new: bool = False
    """Start again even if the same study is there."""
    on_run: Callable[[Run, int], None] | None = None
    """Called with the run and the number of records that it has already."""
    on_progress: OnProgress | None = None
    on_event: Callable[[Event], None] | None = None
    """Called with each training that ended."""
    write_report: Callable[[Run, SweepResult], None] | None = None


def sweep(
    study: str | Path | Mapping[str, Any] | StudyFile,
    *,
    out: str | Path = "runs",
    jobs: int | None = None,
    on: str | None = None,
    new: bool = False,
    on_progress: OnProgress | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> SweepResult:
    """Carry out a study: `presilicon sweep` in Python.

    `study` is a TOML file, or its tables as a dict. It is recorded in a directory under `out`; the same study continues
    there if it was interrupted, and is read from there if it has finished, unless it is `new`. `jobs` processes work on
    it (one per core by default), so a script needs the usual `if __name__ == "__main__":`; with `on`, the workers of
    the Dask scheduler at that address.

    Raises:
        ConfigError: something in the study is wrong, or no point meets its limits.
        MissingToolError: Optuna or Dask is needed and not installed.
        RunFailedError: workers died again and again.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     study = {"designs": "edge-bf16", "workloads": "digits-mlp", "vary": {"machine.rows": [8, 16, 32]}}
    ...     result = sweep(study, out=folder)
    >>> [record.number for record in result.front_records()]
    [3, 2, 1]
    """
    options = SweepOptions(jobs=jobs, on=on, new=new, on_progress=on_progress, on_event=on_event)
    return carry_out_sweep(read_study(study), Path(out), options)


def carry_out_sweep(study: StudyFile, out: Path, options: SweepOptions) -> SweepResult:
    """Carry out a study, or continue it, in a run directory under `out`."""
    check_study(study)
    stored = _stored_run(study, out, options)
    if stored is not None and stored.status == "finished":
        return read_sweep(stored.path, study)
    with closing(_engine(study, out, options)) as engine:
        config = study_config(study)
        if stored is not None:
            run = resume_stored(stored, config)
        else:
            run = create_run(out, "sweep", config, seed=study.search.seed)
        with run:
            run.write_file(STUDY_FILE, json_text(study))
            (run.path / GRAPHS).mkdir(exist_ok=True)
            work = SweepWork(study, run, engine, options.on_progress, options.on_event)
            if options.on_run is not None:
                options.on_run(run, len(work.table.records))
            result = work.carry_out()
            if options.write_report is not None:
                options.write_report(run, result)
        return result


def read_study_of(out: Path, name: str) -> StudyFile:
    """The study of a recorded run.

    Raises:
        ConfigError: there is no such run, or it is not a study.
    """
    run = load_run(out, name)
    try:
        return msgspec.json.decode((run.path / STUDY_FILE).read_bytes(), type=StudyFile)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{run.name} cannot be continued: {STUDY_FILE} cannot be read ({error})") from None


def read_sweep(path: Path, study: StudyFile) -> SweepResult:
    """The result of a study that has finished, from its directory."""
    return _result(study, path, PointTable(path).records.values(), read_recommendation(path))


RECOMMENDATION_FILE = "recommendation.json"


def read_recommendation(path: Path) -> Recommendation | None:
    """The recommendation in a study's directory, if there is one."""
    try:
        return msgspec.json.decode((path / RECOMMENDATION_FILE).read_bytes(), type=Recommendation)
    except (OSError, msgspec.MsgspecError):
        return None


def study_config(study: StudyFile) -> dict[str, Any]:
    """Everything that decides the numbers of a study, with the contents of its designs and workloads."""
    designs = [load_design(name) for name in study.designs]
    plain = msgspec.to_builtins(study)
    plain["designs"] = [Path(name).name for name in study.designs]
    plain["workloads"] = [Path(name).name for name in study.workloads]
    return {
        "study": plain,
        "designs": [design.to_plain() for design in designs],
        "technologies": [to_plain(design.technology) for design in designs],
        "workloads": [load_workload(name).describe() for name in study.workloads],
    }


def _stored_run(study: StudyFile, out: Path, options: SweepOptions) -> StoredRun | None:
    """The run to continue: the named one, or the newest of the same study and versions."""
    if options.resume is not None:
        stored = load_run(out, options.resume)
        if stored.status == "running":
            raise ConfigError(f"{stored.name} is running: only an interrupted or failed study can be continued")
        return stored
    if options.new:
        return None
    wanted = config_hash(study_config(study))
    for stored in reversed(list_runs(out)):
        record = stored.record
        if record and record.kind == "sweep" and (record.config_hash, record.versions) == (wanted, versions()):
            if stored.status == "running":
                raise ConfigError(f"this study is running already, as {stored.name}; to start another, use --new")
            return stored
    return None


def _engine(study: StudyFile, out: Path, options: SweepOptions) -> Engine:
    if options.on is not None:
        from presilicon.study.search.cluster import DaskEngine

        return DaskEngine(options.on, out)
    return LocalEngine(options.jobs or os.cpu_count() or 1)


class SweepWork:
    """A study while it is carried out: its run, its table, and the engine that does the work."""

    def __init__(
        self,
        study: StudyFile,
        run: Run,
        engine: Engine,
        on_progress: OnProgress | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self.study, self.run, self.engine = study, run, engine
        self.table = PointTable(run.path)
        self.graphs = run.path / GRAPHS
        self._on_progress, self._on_event = on_progress, on_event

    def carry_out(self) -> SweepResult:
        """Simulate all points, then train or choose as the study says; or let a sampler propose them."""
        study, recommendation = self.study, None
        if study.search.sampler in ("nsga2", "tpe"):
            points = self._search()
        else:
            points = list(study_points(study))
            self.simulate(points)
        self._require_some([self.table.records[point.key, "simulated"] for point in points])
        if study.choose is not None and study.training is not None:
            from presilicon.study.search.choosing import Choice

            recommendation = Choice(self, study.choose, study.training).choose(points)
            self.run.write_file(RECOMMENDATION_FILE, json_text(recommendation))
        elif study.training is not None:
            self.train_points(points)
        records = [record for record in self.table.records.values() if record.number]
        return _result(study, self.run.path, records, recommendation)

    def _search(self) -> list[Point]:
        """The points that a sampler proposes, each simulated and, unless one design is chosen at the end, trained."""
        from presilicon.study.search.optimizing import Optimizer

        trains = self.study.training is not None and self.study.choose is None
        on_progress, self._on_progress = self._on_progress, None
        total = self.study.search.points or 0

        def evaluate(points: Sequence[Point]) -> list[PointRecord]:
            new = {point.key for point in points if self.table.get(point.key, "simulated") is None}
            self.simulate(points)
            if trains:
                self.train_points(points)
            records = [
                self.table.get(point.key, "trained") or self.table.records[point.key, "simulated"] for point in points
            ]
            meter.advance(len(new), failed=sum(bool(record.error) for record in records if record.key in new))
            return records

        known = self._simulated()
        meter = Meter("search", total - len(known), self.engine, on_progress)
        Optimizer(self.study, self.run.path).search(known, evaluate)
        self._on_progress = on_progress
        return [
            Point(number=record.number, workload=record.workload, design=record.design, values=record.values)
            for record in self._simulated()
        ]

    def _simulated(self) -> list[PointRecord]:
        """The points of the study that have been simulated; the reference of a choice has no number."""
        return [record for (_, stage), record in self.table.records.items() if stage == "simulated" and record.number]

    def simulate(self, points: Sequence[Point]) -> None:
        """Simulate the points that the table does not have; equal steps are priced once."""
        missing = [point for point in points if self.table.get(point.key, "simulated") is None]
        if not missing:
            return
        self._capture(missing)
        engine = self.engine
        if isinstance(engine, LocalEngine) and len(missing) < _WORTH_PROCESSES:
            engine = LocalEngine(1)
        size = max(1, min(_CHUNK, -(-len(missing) // (4 * engine.workers))))
        tasks = [SimulateTask(chunk, str(self.graphs.resolve())) for chunk in _chunks(missing, size)]
        meter = Meter("simulate", len(missing), engine, self._on_progress)
        for outcome in engine.run(simulate_points, tasks):
            if outcome.error:
                records = [point.record(error=outcome.error) for point in outcome.task.points]
            else:
                records = outcome.result
            self.table.append(records)
            meter.advance(len(records), failed=sum(bool(record.error) for record in records))

    def train_points(self, points: Sequence[Point]) -> None:
        """Train the points that meet the limits so far, and record each as a run; trainings that are equal are shared.

        Raises:
            RunFailedError: workers died; what has finished is kept.
        """
        from presilicon.study.search.training import prepare_point, record_comparison, trained_record

        training, ready = self.study.training, []
        assert training is not None
        for point in points:
            simulated = self.table.records[point.key, "simulated"]
            if simulated.error or broken_limit(simulated, self.study.limits, known=True):
                continue
            if self.table.get(point.key, "trained") is None:
                try:
                    ready.append(prepare_point(point, training, self.run.path))
                except ConfigError as error:
                    self.table.append([point.record(stage="trained", error=str(error))])
        errors = self.train(ready, "train")
        meter = Meter("record", len(ready), LocalEngine(1), self._on_progress)
        for each in ready:
            point, name = each.point, f"{each.point.number:05d}"
            if each.key in errors:
                record = point.record(stage="trained", error=errors[each.key])
            else:
                result = record_comparison([each], self.run.path, name).designs[0]
                record = trained_record(point, self.table.records[point.key, "simulated"], result, name)
            self.table.append([record])
            meter.advance(1, failed=bool(record.error))

    def train(self, trained: Sequence["TrainedPoint"], stage: str) -> dict[str, str]:
        """Train every seed of every different training; returns the errors of those that cannot be trained, by key.

        Raises:
            RunFailedError: workers died; what has finished is kept.
        """
        from presilicon.study.search.training import TRAININGS, train_point

        different = {each.key: each for each in trained}
        tasks = {task.path: each.key for each in different.values() for task in each.tasks()}
        queue = [task for each in different.values() for task in each.tasks()]
        (self.run.path / TRAININGS).mkdir(exist_ok=True)
        on_gpu = any(each.training.device != "cpu" for each in trained)
        engine = LocalEngine(1) if on_gpu and isinstance(self.engine, LocalEngine) else self.engine
        meter, errors, lost = Meter(stage, len(queue), engine, self._on_progress), {}, 0
        for outcome in engine.run(train_point, queue):
            if outcome.is_lost:
                lost += 1
            elif outcome.error:
                errors[tasks[outcome.task.path]] = outcome.error
            else:
                self._note(outcome.result)
            meter.advance(1, failed=bool(outcome.error))
        if lost:
            raise RunFailedError(f"{lost} trainings failed because their workers died; the same command tries again")
        return errors

    def _note(self, event: Event) -> None:
        """Record the end of a training, unless it had ended before the study was continued."""
        if not isinstance(event, SeedRestored):
            self.run.record(event)
        if self._on_event is not None:
            self._on_event(event)

    def _capture(self, points: Iterable[Point]) -> None:
        """Capture the step of every workload, batch size and method here, so that workers only read them."""
        steps: set[str] = set()
        for point in points:
            axes = ("batch", "accumulate", "optimizer", "methods")
            methods = {path: value for path, value in point.values.items() if path.startswith("method.")}
            step = repr((point.workload, point.design, [point.values.get(path) for path in axes], methods))
            if step in steps:
                continue
            steps.add(step)
            try:
                price_point(point, self.graphs)
            except ConfigError:  # the point's own record will say so
                steps.discard(step)

    def _require_some(self, records: Sequence[PointRecord]) -> None:
        """Refuse a study none of whose points meets its limits, and say how close they come."""
        usable = [record for record in records if not record.error]
        if not usable:
            first = records[0].error if records else "there are none"
            raise ConfigError(f"none of the {len(records)} points can be simulated; the first: {first}")
        limits = self.study.limits
        if any(broken_limit(record, limits, known=True) is None for record in usable):
            return
        for limit in limits:
            values = [record.metric(limit.name) for record in usable if limit.name in record.metrics]
            if values and not any(map(limit.holds, values)):
                nearest = nearest_miss(iter(values), limit.comparison)
                raise ConfigError(f'no point can meet "{limit}": the nearest of {len(usable)} has {nearest:.4g}')
        together = ", ".join(map(str, limits))
        raise ConfigError(f"no point meets all limits together: {together}; each alone is met by some")


def _chunks(points: Sequence[Point], size: int) -> Iterator[tuple[Point, ...]]:
    """Points in groups of about `size`, those with equal steps together, because a group prices each step once."""
    by_step: dict[str, list[Point]] = {}
    for point in points:
        by_step.setdefault(point.step, []).append(point)
    chunk: list[Point] = []
    for group in by_step.values():
        chunk += group
        if len(chunk) >= size:
            yield tuple(chunk)
            chunk = []
    if chunk:
        yield tuple(chunk)


class Meter:
    """Counts the finished points of a stage and estimates when it ends."""

    def __init__(self, stage: str, total: int, engine: Engine, on_progress: OnProgress | None) -> None:
        self._stage, self._total, self._engine, self._on_progress = stage, total, engine, on_progress
        self._done = self._failed = 0
        self._started = time.monotonic()
        self.advance(0)

    def advance(self, count: int, failed: int = 0) -> None:
        """Report that many more finished points."""
        self._done, self._failed = self._done + count, self._failed + failed
        if self._on_progress is None:
            return
        left = self._total - self._done
        elapsed = time.monotonic() - self._started
        eta_s = elapsed / self._done * left if self._done else None
        running = min(self._engine.workers, left)
        self._on_progress(SweepProgress(self._stage, self._total, self._done, self._failed, running, eta_s))


def _result(
    study: StudyFile, path: Path, records: Iterable[PointRecord], recommendation: Recommendation | None
) -> SweepResult:
    """The result with one record per point: that of its furthest stage."""
    furthest: dict[str, PointRecord] = {}
    order = ("simulated", "tried", "trained")
    for record in sorted(records, key=lambda record: (record.number, order.index(record.stage))):
        furthest[record.key] = record
    measures = {}
    for name in study.workloads:
        measure = load_workload(name).measure
        measures[name] = PointMeasure(measure.name, measure.direction, measure.is_fraction)
    limits = study.limits
    feasible = [
        record for record in furthest.values() if not record.error and not broken_limit(record, limits, known=True)
    ]
    front = [
        record.key
        for name in study.workloads
        for record in pareto_front(
            [record for record in feasible if record.workload == name], study.front_metrics, measures[name].better
        )
    ]
    return SweepResult(
        name=study.name,
        path=path,
        axes=tuple(axis.path for axis in study.axes[2:] if axis.span is not None or len(axis.values) > 1),
        objectives=study.front_metrics,
        limits=tuple(map(str, limits)),
        records=tuple(furthest.values()),
        feasible=frozenset(record.key for record in feasible),
        front=frozenset(front),
        measures=measures,
        recommendation=recommendation,
    )
