"""A study while it is carried out: its points simulated, proposed by a sampler, trained, and one of them chosen."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from presilicon.base import ConfigError
from presilicon.records import PointRecord, Recommendation
from presilicon.runs import Run
from presilicon.study.pool import LocalPool, TaskBatch, TaskOutcome
from presilicon.study.runner import Runner
from presilicon.study.search.checks import nearest_miss
from presilicon.study.search.file import StudyFile
from presilicon.study.search.front import broken_limit
from presilicon.study.search.points import GRAPHS, Point, SimulateTask, price_point, simulate_points, study_points
from presilicon.study.search.table import PointTable

if TYPE_CHECKING:
    from presilicon.study.search.training import TrainedPoint

_CHUNK = 16
"""Points that a worker takes at a time."""
_WORTH_PROCESSES = 64
"""Points below which starting processes costs more than they save."""


class SweepWork:
    """A study while it is carried out: its runner, and the table of its points."""

    def __init__(self, study: StudyFile, run: Run, runner: Runner) -> None:
        self.study, self.run, self.runner = study, run, runner
        self.table = PointTable(run.path)
        self.graphs = run.path / GRAPHS

    def carry_out(self) -> Recommendation | None:
        """Simulate all points, then train or choose as the study says; or let a sampler propose them."""
        study = self.study
        if study.search.sampler in ("nsga2", "tpe"):
            points = self._search()
        else:
            points = list(study_points(study))
            self.simulate(points)
        self._require_some([self.table.records[point.key, "simulated"] for point in points])
        if study.choose is not None and study.training is not None:
            from presilicon.study.search.choosing import DesignChoice

            return DesignChoice(self, study.choose, study.training).choose(points)
        if study.training is not None:
            self.train_points(points)
        return None

    def _search(self) -> list[Point]:
        """The points that a sampler proposes, each simulated and, unless one design is chosen at the end, trained."""
        from presilicon.study.search.optimizing import Optimizer

        trains = self.study.training is not None and self.study.choose is None
        known = self._simulated()
        meter = self.runner.meter("search", (self.study.search.points or 0) - len(known))
        on_progress, self.runner.on_progress = self.runner.on_progress, None

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

        Optimizer(self.study, self.run.path).search(known, evaluate)
        self.runner.on_progress = on_progress
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
        few = isinstance(self.runner.pool, LocalPool) and len(missing) < _WORTH_PROCESSES
        pool = LocalPool(1) if few else self.runner.pool
        size = max(1, min(_CHUNK, -(-len(missing) // (4 * pool.workers))))
        tasks = [SimulateTask(chunk, str(self.graphs.resolve())) for chunk in _chunks(missing, size)]

        def records(outcome: TaskOutcome) -> list[PointRecord]:
            if outcome.error:
                return [point.record(error=outcome.error) for point in outcome.task.points]
            return outcome.result or []

        counts = (lambda task: len(task.points), lambda outcome: sum(bool(record.error) for record in records(outcome)))
        work = TaskBatch(simulate_points, tasks, trains=False)
        for outcome in self.runner.outcomes("simulate", work, pool, counts):
            self.table.append(records(outcome))

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
        meter = self.runner.meter("record", len(ready), LocalPool(1))
        for prepared in ready:
            point, name = prepared.point, f"{prepared.point.number:05d}"
            if prepared.key in errors:
                record = point.record(stage="trained", error=errors[prepared.key])
            else:
                result = record_comparison([prepared], self.run.path, name).designs[0]
                record = trained_record(point, self.table.records[point.key, "simulated"], result, name)
            self.table.append([record])
            meter.advance(1, failed=bool(record.error))

    def train(self, trained: Sequence["TrainedPoint"], stage: str) -> dict[str, str]:
        """Train every seed of every different training; returns the errors of those that cannot be trained, by key.

        Raises:
            RunFailedError: workers died; what has finished is kept.
        """
        from presilicon.study.search.training import TRAININGS

        different = {prepared.key: prepared for prepared in trained}
        queue = [(key, task) for key, prepared in different.items() for task in prepared.tasks()]
        (self.run.path / TRAININGS).mkdir(exist_ok=True)
        device = trained[0].training.device if trained else "cpu"
        outcomes = self.runner.train_apart([task for _, task in queue], stage, device=device)
        return {queue[outcome.number][0]: outcome.error for outcome in outcomes if outcome.error}

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
                none = "no point can meet" if self.study.search.sampler == "grid" else "none of the points drawn meets"
                raise ConfigError(f'{none} "{limit}": the nearest of {len(usable)} has {nearest:.4g}')
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
