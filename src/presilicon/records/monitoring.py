"""Statistics of the tensors of an emulated model: effects of rounding by layer and role, and the first failures."""

from typing import Literal

from msgspec import Struct

from presilicon.base import columns
from presilicon.records.graph import ProductPhase, Role

MonitoredRole = Role | Literal["output"]
FailureKind = Literal["non-finite", "overflow", "underflow"]


class Limits(Struct, frozen=True, kw_only=True):
    """Shares of a tensor's numbers above which rounding is a failure; numbers that are not finite always are."""

    overflow: float = 0.001
    """Numbers beyond the largest value, whether they become infinite, NaN or the largest value."""
    underflow: float = 0.5
    """Nonzero numbers that become zero."""
    negligible: float = 2.0**-24
    """A tensor whose largest number is at most this share of the largest in its role and step may underflow."""


class TensorStatistics(Struct, frozen=True, kw_only=True):
    """Statistics of tensors before rounding, and of the error of rounding. None: not defined for these tensors.

    Means, norms and extremes are over the finite numbers.
    """

    numbers: int
    sqnr_db: float | None = None
    """Signal power over the power of the rounding error, in dB; None if rounding changed nothing."""
    mse: float = 0.0
    """Mean squared error of rounding."""
    underflow: float = 0.0
    """Share of the nonzero numbers that became zero."""
    overflow: float = 0.0
    """Share of the finite numbers that became infinite or NaN."""
    saturation: float = 0.0
    """Share of the finite numbers beyond the largest value that were held at it."""
    nans: int = 0
    """NaN before rounding."""
    infinities: int = 0
    """Infinities before rounding."""
    largest: float | None = None
    """Largest magnitude."""
    smallest: float | None = None
    """Smallest magnitude that is not zero."""
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    std: float | None = None
    l1_norm: float = 0.0
    l2_norm: float = 0.0
    dynamic_range: float | None = None
    """log2 of the largest over the smallest magnitude."""
    clipped_blocks: float | None = None
    """Share of the blocks whose largest magnitude exceeds the largest value under the block's scale."""
    block_dynamic_range: float | None = None
    """The largest dynamic range in a block."""
    scale_min: float | None = None
    """Smallest scale that values are multiplied by when they are read: "scale_inv" in Transformer Engine."""
    scale_max: float | None = None


class RoleStatistics(Struct, frozen=True, kw_only=True):
    """Statistics of one role of one layer, over the monitored steps."""

    layer: str
    role: MonitoredRole
    product: ProductPhase | None = None
    """The backward product that a tensor was rounded for, where it is rounded again; None for the first rounding."""
    format: str
    tensors: int
    statistics: TensorStatistics

    @property
    def key(self) -> str:
        """Layer, role and product, as loggers name them."""
        return "/".join([self.layer or "(root)", self.role, *([self.product] if self.product else [])])


class DeadUnits(Struct, frozen=True, kw_only=True):
    """Outputs of a layer that were zero for every sample of every monitored step."""

    layer: str
    dead: int
    units: int


class Failure(Struct, frozen=True, kw_only=True):
    """A tensor that its format does not hold."""

    step: int
    layer: str
    role: MonitoredRole
    product: ProductPhase | None = None
    symptom: FailureKind
    format: str
    message: str
    """The failure in words."""
    statistics: TensorStatistics | None = None
    """Of the tensor; None if a module made numbers that are not finite."""


class MonitorReport(Struct, frozen=True, kw_only=True):
    """Statistics of a model over the monitored steps."""

    steps: tuple[int, ...]
    """The monitored steps."""
    roles: tuple[RoleStatistics, ...]
    """In the order in which they were first rounded."""
    dead_units: tuple[DeadUnits, ...] = ()
    failures: tuple[Failure, ...] = ()
    """The first of each symptom of a layer and role, in the order in which they happened."""

    @property
    def first_failure(self) -> Failure | None:
        """The failure that came before all others."""
        return self.failures[0] if self.failures else None

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [_HEADER]
        rows += [_row(entry) for entry in self.roles]
        lines = columns(rows, left=(0, 1, 2))
        lines += [f"{dead.layer or '(root)'}: {dead.dead} of {dead.units} units are dead" for dead in _dying(self)]
        steps = f"{len(self.steps)} step{'s' if len(self.steps) != 1 else ''} monitored"
        first = self.first_failure
        return "\n".join([f"{steps}; {'no failure' if first is None else f'first failure at {first.message}'}", *lines])


_HEADER = ("layer", "role", "format", "SQNR", "underflow", "overflow", "largest", "NaN/Inf", "clipped blocks")


def _dying(report: MonitorReport) -> list[DeadUnits]:
    return [entry for entry in report.dead_units if entry.dead]


def _row(entry: RoleStatistics) -> tuple[str, ...]:
    numbers = entry.statistics
    role = entry.role if entry.product is None else f"{entry.role} ({entry.product})"
    return (
        entry.layer or "(root)",
        role,
        entry.format,
        "exact" if numbers.sqnr_db is None else f"{numbers.sqnr_db:.1f} dB",
        f"{numbers.underflow:.2%}",
        f"{numbers.overflow + numbers.saturation:.2%}",
        "" if numbers.largest is None else f"{numbers.largest:.3g}",
        str(numbers.nans + numbers.infinities),
        "" if numbers.clipped_blocks is None else f"{numbers.clipped_blocks:.2%}",
    )
