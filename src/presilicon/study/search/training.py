"""Points trained: each different training once, shared by all points that differ in hardware only."""

import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec import to_builtins
from msgspec.structs import asdict

from presilicon.base import ConfigError, RunFailedError, json_text
from presilicon.designs import Design
from presilicon.emulation import TrainingRecord
from presilicon.records import Comparison, PointRecord, Result, ResultEvent, Trace
from presilicon.runs import config_hash, create_run
from presilicon.study.join.evaluation import Study
from presilicon.study.join.plan import EvaluationPlan
from presilicon.study.join.seeds import SeedTask, load_splits
from presilicon.study.options import shared_fields
from presilicon.study.search.file import PointTraining
from presilicon.study.search.points import GRAPHS, Point, load_point_workload, step_graphs
from presilicon.workloads import Workload

TRAININGS, POINT_RUNS = "trainings", "points"
"""Directories below that of the study: checkpoints with traces, and runs of points."""


def load_record(point: Point, training: PointTraining, seed: int) -> TrainingRecord:
    """Everything that decides the bits of a point's training, from its names: a worker loads it itself."""
    design, workload = point.load_design(), load_point_workload(point, training)
    return TrainingRecord.of_design(design, workload, seed=seed, device=training.device)


class TrainedPoint(NamedTuple):
    """A point ready to be trained: its design and workload, and the files of its seeds."""

    point: Point
    design: Design
    workload: Workload
    training: PointTraining
    key: str
    """Hash of everything that its training depends on: equal for designs that train alike."""
    folder: Path

    def tasks(self) -> Iterator[SeedTask]:
        """One task per seed; points that train alike have the same files."""
        for seed in self.training.all_seeds:
            checkpoint = self.training.checkpoint(self.folder, self.key, seed)
            source = partial(load_record, self.point, self.training, seed)
            yield SeedTask(self.design.name, source, checkpoint, is_followed=False)

    def traces(self) -> tuple[Trace, ...]:
        """The traces of all its seeds.

        Raises:
            RunFailedError: one has not finished.
        """
        return tuple(map(self._trace, self.training.all_seeds, self.tasks()))

    def _trace(self, seed: int, task: SeedTask) -> Trace:
        record = TrainingRecord.of_design(self.design, self.workload, seed=seed, device=self.training.device)
        trace = task.saved_trace(record, load_splits(self.workload)[1])
        if trace is None:
            raise RunFailedError(f"seed {seed} of {self.design.name}: this training has not finished")
        return trace


def prepare_point(point: Point, training: PointTraining, directory: Path) -> TrainedPoint:
    """A point with what its training needs.

    Raises:
        ConfigError: it cannot be trained like that.
    """
    design, workload = point.load_design(), load_point_workload(point, training)
    plan_of([design], workload, training).check()
    described = TrainingRecord.of_design(design, workload, device=training.device).describe()
    key = config_hash(described)[:16]
    return TrainedPoint(point, design, workload, training, key, (directory / TRAININGS).resolve())


def plan_of(
    designs: Sequence[Design], workload: Workload, training: PointTraining, *, sensitivity: bool = False
) -> EvaluationPlan:
    """The evaluation of designs that were trained for a study."""
    return EvaluationPlan(
        designs=tuple(designs), workload=workload, sensitivity=sensitivity, **shared_fields(training, EvaluationPlan)
    )


def record_comparison(
    trained: Sequence[TrainedPoint], directory: Path, name: str, *, sensitivity: bool = False
) -> Comparison:
    """Price the traces of points, compare them, and record that as a run of its own, `name` in the study's directory.

    The same run is written again if the study was killed while it wrote.
    """
    study = _study_of(trained, directory, sensitivity)
    comparison = study.comparison([prepared.workload for prepared in trained])
    root = directory / POINT_RUNS
    shutil.rmtree(root / name, ignore_errors=True)
    with create_run(root, "evaluate", study.plan.config(), seed=study.plan.seed, name=name) as run:
        result = ResultEvent(comparison=to_builtins(comparison))
        run.log.extend([*study.design_events(), *study.evaluations(), result])
        run.write_file("result.json", json_text(comparison))
    return comparison


def result_of(prepared: TrainedPoint, directory: Path) -> Result:
    """The result of a point that was trained, or that trains as one that was."""
    return _study_of([prepared], directory).comparison([prepared.workload]).designs[0]


def _study_of(trained: Sequence[TrainedPoint], directory: Path, sensitivity: bool = False) -> Study:
    """The evaluation of points that have been trained, with their traces."""
    first, folder = trained[0], directory / GRAPHS
    plan = plan_of([prepared.design for prepared in trained], first.workload, first.training, sensitivity=sensitivity)
    study = Study(plan, {one.design.name: step_graphs(one.point, one.design, folder) for one in trained})
    study.traces = tuple(prepared.traces() for prepared in trained)
    return study


def trained_record(point: Point, simulated: PointRecord, result: Result, run: str) -> PointRecord:
    """A point's record with the metrics of its result."""
    reached = sum(seed.steps_to_accuracy is not None for seed in result.seeds) / len(result.seeds)
    metrics = dict(simulated.metrics) | {
        "time_per_step_s": result.time_per_step_s,
        "energy_per_step_j": result.energy_per_step_j,
        "power_w": result.energy_per_step_j / result.time_per_step_s if result.time_per_step_s else None,
        "memory_bytes": result.memory_bytes,
        "accuracy": result.value,
        "steps": result.steps_to_accuracy.median,
        "time_s": result.time_to_accuracy_s.median,
        "energy_j": result.energy_to_accuracy_j.median,
        "reached": reached,
    }
    return point.record(stage="trained", metrics=metrics, run=f"{POINT_RUNS}/{run}")


def few_steps(training: PointTraining, workload: Workload, steps: int | None, tries: int) -> PointTraining:
    """A short training for a first look: some steps, or a quarter of the budget, and few seeds.

    Raises:
        ConfigError: there would be no evaluation to look at.
    """
    budget = training.max_steps or workload.max_steps
    short = steps or max(budget // 4, workload.sustain * workload.evaluate_every)
    if short < workload.sustain * workload.evaluate_every:
        raise ConfigError(
            f"choose.few_steps must be at least {workload.sustain * workload.evaluate_every}, {workload.sustain} "
            f"evaluations, not {short}"
        )
    return PointTraining(**asdict(training) | {"max_steps": min(short, budget), "seeds": tries, "stop_hopeless": False})
