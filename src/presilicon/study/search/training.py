"""Points trained: each different training once, shared by all points that differ in hardware only."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from presilicon.base import ConfigError, RunFailedError, json_text
from presilicon.designs import Design
from presilicon.emulation import Checkpoint, SavedRun, TrainingRecord
from presilicon.records import Comparison, DesignEvent, EvaluationEvent, Event, PointRecord, Result, ResultEvent, Trace
from presilicon.runs import config_hash, create_run
from presilicon.study.join.evaluation import Study
from presilicon.study.join.options import shared_fields
from presilicon.study.join.plan import Plan
from presilicon.study.join.seeds import SeedTask, load_splits, run_seed
from presilicon.study.search.file import Training
from presilicon.study.search.points import Point, load_point_workload, step_graphs
from presilicon.workloads import Workload

TRAININGS, POINT_RUNS = "trainings", "points"
"""Directories below that of the study: checkpoints with traces, and runs of points."""


class TrainTask(Struct, frozen=True):
    """One seed of a point's training, and the file of its checkpoint, where its trace is when it has finished."""

    point: Point
    training: Training
    seed: int
    path: str


def train_point(task: TrainTask) -> Event:
    """Train one seed, from its checkpoint if there is one; returns the event of its end.

    Other events stay here: the trace has all evaluations.
    """
    design, workload = task.point.load_design(), load_point_workload(task.point, task.training)
    seed_task = _seed_task(design, workload, task.training, task.seed, Path(task.path))
    events: list[Event] = []
    run_seed(seed_task, events.append)
    return events[-1]


def _seed_task(design: Design, workload: Workload, training: Training, seed: int, path: Path) -> SeedTask:
    record = TrainingRecord.of_design(design, workload, seed=seed, device=training.device)
    return SeedTask(design.name, record, Checkpoint(path, training.checkpoint_every, training.any_processor))


class TrainedPoint(NamedTuple):
    """A point ready to be trained: its design and workload, and the files of its seeds."""

    point: Point
    design: Design
    workload: Workload
    training: Training
    key: str
    """Hash of everything that its training depends on: equal for designs that train alike."""
    folder: Path

    def path(self, seed: int) -> Path:
        """The file of a seed."""
        return self.folder / f"{self.key}-seed{seed}.safetensors"

    def tasks(self) -> Iterator[TrainTask]:
        """One task per seed."""
        for seed in range(self.training.seed, self.training.seed + self.training.seeds):
            yield TrainTask(self.point, self.training, seed, str(self.path(seed)))

    def trace(self, seed: int) -> Trace:
        """The trace of a seed that has finished.

        Raises:
            RunFailedError: it has not.
        """
        task = _seed_task(self.design, self.workload, self.training, seed, self.path(seed))
        assert task.checkpoint is not None
        trace = SavedRun(task.checkpoint, task.record.identity(load_splits(self.workload)[1])).read_trace()
        if trace is None:
            raise RunFailedError(f"{self.path(seed).name}: this training has not finished")
        return trace

    def traces(self) -> tuple[Trace, ...]:
        """The traces of all its seeds."""
        return tuple(self.trace(task.seed) for task in self.tasks())


def prepare_point(point: Point, training: Training, directory: Path) -> TrainedPoint:
    """A point with what its training needs.

    Raises:
        ConfigError: it cannot be trained like that.
    """
    design, workload = point.load_design(), load_point_workload(point, training)
    plan_of([design], workload, training).check()
    described = TrainingRecord.of_design(design, workload, device=training.device).describe()
    key = config_hash(described)[:16]
    return TrainedPoint(point, design, workload, training, key, (directory / TRAININGS).resolve())


def plan_of(designs: Sequence[Design], workload: Workload, training: Training, *, sensitivity: bool = False) -> Plan:
    """The evaluation of designs that were trained for a study."""
    return Plan(
        designs=tuple(designs),
        workload=workload,
        sensitivity=sensitivity,
        **shared_fields(training, Plan),
    )


def record_comparison(
    trained: Sequence[TrainedPoint], directory: Path, name: str, *, sensitivity: bool = False
) -> Comparison:
    """Price the traces of points, compare them, and record that as a run of its own, `name` in the study's directory.

    The same run is written again if the study was killed while it wrote.
    """
    first, designs = trained[0], [prepared.design for prepared in trained]
    plan = plan_of(designs, first.workload, first.training, sensitivity=sensitivity)
    folder = directory / "graphs"
    graphs = {prepared.design.name: step_graphs(prepared.point, prepared.design, folder) for prepared in trained}
    study = Study(plan, graphs)
    study.traces = tuple(prepared.traces() for prepared in trained)
    comparison = study.comparison([prepared.workload for prepared in trained])
    root = directory / POINT_RUNS
    shutil.rmtree(root / name, ignore_errors=True)
    with create_run(root, "evaluate", plan.config(), seed=plan.seed, name=name) as run:
        evaluations = [event for event in study.evaluations() if isinstance(event, EvaluationEvent)]
        configs = [DesignEvent(design=design.name, config=design.to_plain()) for design in designs]
        run.log.extend([*configs, *evaluations, ResultEvent(comparison=to_builtins(comparison))])
        run.write_file("result.json", json_text(comparison))
    return comparison


def result_of(prepared: TrainedPoint, directory: Path) -> Result:
    """The result of a point that was trained, or that trains as one that was."""
    design, folder = prepared.design, directory / "graphs"
    study = Study(
        plan_of([design], prepared.workload, prepared.training),
        {design.name: step_graphs(prepared.point, design, folder)},
    )
    study.traces = (prepared.traces(),)
    return study.comparison([prepared.workload]).designs[0]


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


def few_steps(training: Training, workload: Workload, steps: int | None, tries: int) -> Training:
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
    return Training(**asdict(training) | {"max_steps": min(short, budget), "seeds": tries, "stop_hopeless": False})
