"""The points of a study: what was chosen, what it costs, and what was decided about it."""

from math import inf, nan
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from presilicon.base import MissingToolError
from presilicon.records.result import Comparison
from presilicon.records.trace import Direction

SIMULATED = {
    "time_per_step_s": "Time of a step",
    "energy_per_step_j": "Energy of a step",
    "time_per_sample_s": "Time of a step over its samples",
    "energy_per_sample_j": "Energy of a step over its samples",
    "power_w": "Energy over time of a step",
    "memory_bytes": "Peak of what a step holds at once",
    "area_mm2": "Area of the design",
}
"""Metrics that simulation gives."""

TRAINED = {
    "accuracy": "The workload's metric on the test split, median over seeds",
    "steps": "Steps to accuracy, median over seeds",
    "time_s": "Time to accuracy, median over seeds",
    "energy_j": "Energy to accuracy, median over seeds",
    "reached": "Share of the seeds that reached the target",
}
"""Metrics that training adds."""

POINT_METRICS = SIMULATED | TRAINED


def direction_of(metric: str, own: Direction = "higher") -> Direction:
    """Which way a metric of a point is better; `own` is the direction of the workload's metric, called `accuracy`.

    >>> direction_of("time_s"), direction_of("reached"), direction_of("accuracy", "lower")
    ('lower', 'higher', 'lower')
    """
    return own if metric == "accuracy" else "higher" if metric == "reached" else "lower"


PointStage = Literal["simulated", "tried", "trained"]


class PointRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One point of a study, as a line of its `points.jsonl` and a row of its table."""

    key: str
    """Hash of the choices: the same point has the same key in every study."""
    number: int
    """Position in the study, from 1."""
    design: str
    workload: str
    values: dict[str, Any] = {}
    """What was chosen on each axis."""
    stage: PointStage = "simulated"
    metrics: dict[str, float | None] = {}
    """By name, see `POINT_METRICS`; None is infinite (a target that was never held) or unknown."""
    error: str = ""
    """Reason if the point cannot be simulated or trained."""
    run: str = ""
    """Directory of its own run below the study's, if it was trained."""

    def metric(self, name: str) -> float:
        """A metric: infinite for a target that was never held, NaN if it is unknown."""
        value = self.metrics.get(name)
        if value is not None:
            return value
        return inf if name in self.metrics and name in ("steps", "time_s", "energy_j") else nan


class Relaxation(Struct, frozen=True, kw_only=True):
    """The best point that a limit keeps from being chosen."""

    condition: str
    design: str
    number: int
    gain: float
    """Time (or energy) of the recommended design over that of this one: per sample if they train alike, otherwise to
    accuracy."""
    value: float
    """What it has in place of the limit."""
    trains_alike: bool = True
    """False for a design that was trained in full and refused after that."""


class Breach(Struct, frozen=True, kw_only=True):
    """A figure of a technology table which, multiplied, takes the recommended design over a limit."""

    technology: str
    entry: str
    factor: float
    condition: str
    value: float


class Recommendation(Struct, frozen=True, kw_only=True):
    """The design that a study recommends, the evidence for it, and what would change the answer."""

    design: str
    number: int
    """0 for the reference, a design of the study as it is."""
    by: Literal["time", "energy"]
    reference: str
    comparison: Comparison
    """The reference and the finalists on paired seeds."""
    limits: tuple[str, ...] = ()
    metrics: dict[str, float | None] = {}
    relaxations: tuple[Relaxation, ...] = ()
    breaches: tuple[Breach, ...] | None = None
    """None if sensitivity was not asked for."""
    file: str = ""
    """Name of the design file in the study's directory."""
    options: str = ""
    """Options of `presilicon evaluate` that its training needs, if the workload varied: `--batch 64`."""


class PointMeasure(Struct, frozen=True):
    """The metric that a workload measures as `accuracy`."""

    name: str = "accuracy"
    direction: Direction = "higher"
    is_fraction: bool = True

    def fields(self, metrics: dict[str, float | None]) -> dict[str, Any]:
        """Metrics of a point as fields of a table; None where one is not known.

        >>> PointMeasure("perplexity", "lower", False).fields({"accuracy": 11.8, "time_s": 0.5})
        {'metric': 'perplexity', 'value': 11.8, 'direction': 'lower', 'time_s': 0.5}
        """
        fields: dict[str, Any] = {}
        for name, value in metrics.items():
            known = None if value != value else value
            own = {"metric": self.name, "value": known, "direction": self.direction}
            fields |= own if name == "accuracy" else {name: known}
        return fields


class SweepResult(Struct, frozen=True, kw_only=True):
    """The result of a study: its points, with the Pareto front of those that satisfy its limits."""

    name: str
    path: Path
    """The study's directory."""
    axes: tuple[str, ...]
    """Paths of the parameters that vary."""
    objectives: tuple[str, ...]
    limits: tuple[str, ...]
    records: tuple[PointRecord, ...]
    """One per point, of its furthest stage, in order."""
    feasible: frozenset[str]
    """Keys of the points that satisfy all limits on metrics that they have."""
    front: frozenset[str]
    """Keys of the points on the Pareto front, of each workload."""
    measures: dict[str, PointMeasure]
    """By workload."""
    recommendation: Recommendation | None = None
    remarks: tuple[str, ...] = ()
    """Sentences on all points together, such as a field that was varied and changes nothing."""

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The metrics that at least one point has, in the order of `POINT_METRICS`."""
        present = {name for record in self.records for name in record.metrics}
        return tuple(name for name in POINT_METRICS if name in present)

    def measure_of(self, record: PointRecord) -> PointMeasure:
        """The measure of a point's workload."""
        return self.measures.get(record.workload, PointMeasure())

    def front_records(self) -> tuple[PointRecord, ...]:
        """The points on the front, the first objective ascending."""
        front = [record for record in self.records if record.key in self.front]
        return tuple(sorted(front, key=lambda record: (record.workload, record.metric(self.objectives[0]))))

    def rows(self) -> list[dict[str, Any]]:
        """The table as plain rows, one per point; None where a metric is unknown, infinite if it was never reached.

        The workload's metric, which is called `accuracy` in a study, has three columns: `metric`, `value`, `direction`.
        """
        names = self.metric_names
        return [
            {
                "point": record.number,
                "workload": record.workload,
                "design": record.design,
                **{path: record.values.get(path) for path in self.axes},
                "stage": record.stage,
                **self.measure_of(record).fields({name: record.metric(name) for name in names}),
                "feasible": record.key in self.feasible,
                "front": record.key in self.front,
                "error": record.error,
                "run": record.run,
            }
            for record in self.records
        ]

    def frame(self) -> Any:
        """The table as a pandas DataFrame.

        Raises:
            MissingToolError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise MissingToolError("a frame needs pandas: pip install pandas; or read table.csv") from None
        return pandas.DataFrame(self.rows())
