"""Results of an evaluation: time-to-accuracy and energy-to-accuracy, with uncertainty and provenance."""

from typing import Any

from msgspec import Struct

from presilicon.base import DOCUMENT_SCHEMA
from presilicon.records.fairness import Fairness, Interval, Pair, Probability
from presilicon.records.sensitivity import Sensitivity
from presilicon.records.trace import Direction, Finding


class CurvePoint(Struct, frozen=True, kw_only=True):
    """The metric on the validation split after some steps, and what the design had spent by then."""

    step: int
    samples: int | None = None
    """None in older records."""
    value: float | None
    """Of the metric; None where it was no finite number."""
    time_s: float
    energy_j: float


class Arrival(Struct, frozen=True, kw_only=True):
    """Steps, time and energy of one seed up to a milestone; None where it was never held."""

    target: float
    steps: float | None
    samples: float | None
    updates: float | None
    time_s: float | None
    energy_j: float | None


class Milestone(Struct, frozen=True, kw_only=True):
    """Time and energy of a design up to an easier target on its way to the target."""

    target: float
    reached: str
    """Number of seeds that reached it, of all seeds: `4/5`."""
    steps: Interval
    samples: Interval
    updates: Interval
    time_s: Interval
    energy_j: Interval


class SeedResult(Struct, frozen=True, kw_only=True):
    """One seed of one design; the to-accuracy fields are None when the target was never held."""

    seed: int
    steps_to_accuracy: float | None
    """Interpolated between evaluations; a whole number in older records."""
    samples_to_accuracy: float | None = None
    updates_to_accuracy: float | None = None
    time_to_accuracy_s: float | None
    energy_to_accuracy_j: float | None
    value: float | None
    """Of the metric on the test split when training ended; None where it was no finite number."""
    steps: int
    ending: str
    curve: tuple[CurvePoint, ...]
    time_s: float | None = None
    """Time of all its steps, including those after the arrival; None in older records."""
    energy_j: float | None = None
    reason: str = ""
    """Reason if training had to stop; empty otherwise."""
    findings: tuple[Finding, ...] = ()
    """Findings of the diagnosis."""
    milestones: tuple[Arrival, ...] = ()
    """Easier targets on the way, in the order of the workload."""
    fingerprint: str = ""
    """Hash of every loss and evaluation: equal for runs that trained bit-identically. Empty in older records."""


class Result(Struct, frozen=True, kw_only=True):
    """One design on one workload."""

    name: str
    workload: str
    target: float
    """The value of the metric on the validation split that counts as arrival."""
    metric: str = "accuracy"
    """Name of the workload's metric, which every `value` here and in the seeds is of."""
    value: float | None
    """Median over seeds of the metric on the test split when training ended; a number that is not finite counts as the
    worst, and None says that the median is one."""
    direction: Direction = "higher"
    """Which values of the metric are better."""
    metric_is_fraction: bool = True
    """Whether its values are shown as percentages."""
    steps_to_accuracy: Interval
    samples_to_accuracy: Interval | None = None
    """Training samples; None in older records, as are updates."""
    updates_to_accuracy: Interval | None = None
    time_to_accuracy_s: Interval
    energy_to_accuracy_j: Interval
    reached: str
    """Number of seeds that arrived, of all seeds: `4/5`."""
    reach_probability: Probability | None = None
    """That a seed arrives within the budget, with Wilson's 95% interval; None in older records."""
    expected_time_to_accuracy_s: float | None = None
    """With restarts: the mean of the seeds that arrived, plus (1 - p) / p budgets for those that are expected to miss
    before one arrives. None when no seed arrived."""
    expected_energy_to_accuracy_j: float | None = None
    time_per_step_s: float
    """Time of a step; where steps differ (methods, a schedule of numerics), their mean."""
    energy_per_step_j: float
    memory_bytes: float
    area_mm2: float | None
    seeds: tuple[SeedResult, ...]
    milestones: tuple[Milestone, ...] = ()
    """Easier targets on the way to the target."""
    remarks: tuple[str, ...] = ()
    """What the machine could not use of the training, or used under an assumption."""
    provenance: dict[str, Any]
    """Configuration hash, seeds, versions, commit, sources of the energy figures, and how intervals were made."""


class Comparison(Struct, frozen=True, kw_only=True):
    """Several designs on the same workload, in the given order."""

    designs: tuple[Result, ...]
    schema: int = DOCUMENT_SCHEMA
    sensitivity: Sensitivity | None = None
    """Whether the rankings depend on single figures of the technology tables, if requested."""
    pairs: tuple[Pair, ...] = ()
    """Every pair of designs, compared seed by seed."""
    fairness: Fairness | None = None
    remarks: tuple[str, ...] = ()
    """Sentences on all designs together, such as a field that was varied and changes nothing."""


class DesignChange(Struct, frozen=True, kw_only=True):
    """The results of a design, or of two that correspond, in two runs."""

    first: Result
    second: Result
    pair: Pair | None = None
    """None if the seeds of the two runs cannot be paired."""
    steps_ratio: Interval | None = None
    """Steps to accuracy of the second over those of the first, seed by seed, as `Pair.time_ratio`."""
    unpaired: str = ""
    """Reason if seeds are not paired."""
