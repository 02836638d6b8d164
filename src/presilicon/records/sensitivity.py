"""Sensitivity of results: of rankings to single figures of the technology tables, of layers to number formats."""

from typing import Literal

from msgspec import Struct

from presilicon.base import columns
from presilicon.records.graph import Role


class RankingChange(Struct, frozen=True, kw_only=True):
    """A figure which, multiplied, makes designs change places."""

    technology: str
    entry: str
    """The figure, as in `float_multiply at 24`."""
    value: float
    unit: str
    label: str
    factor: float
    """Factor that it was multiplied by."""
    pairs: tuple[tuple[str, str], ...]
    """Designs that change places: the one that is better as the tables stand, then the one that becomes better."""


class ClosestCall(Struct, frozen=True, kw_only=True):
    """The point at which neighbours in the ranking come closest, or pass each other furthest."""

    better: str
    worse: str
    ratio: float
    """The worse one's value over the better one's, as the tables stand."""
    technology: str
    entry: str
    factor: float
    scaled_ratio: float
    """The same with that figure multiplied; below 1 where they changed places."""


class RankingSensitivity(Struct, frozen=True, kw_only=True):
    """One ranking, lowest value first, and what overturns it."""

    quantity: str
    """`energy_to_accuracy_j`, `energy_per_step_j` or `area_mm2`."""
    order: tuple[str, ...]
    values: tuple[float | None, ...]
    """In that order; None stands for infinity."""
    survives: bool
    """Whether no figure makes two designs change places."""
    changes: tuple[RankingChange, ...]
    closest: ClosestCall | None
    """None where no two values can be compared."""


class Sensitivity(Struct, frozen=True, kw_only=True):
    """Rankings of designs, with every figure of their technology tables multiplied and divided in turn."""

    factor: float
    figures: dict[str, int]
    """Number of figures that were varied, by technology."""
    rankings: tuple[RankingSensitivity, ...]


SensitivityMetric = Literal["gradient_error", "loss_change"]


class FormatTrial(Struct, frozen=True, kw_only=True):
    """One training step with one layer (or one role of it) in a format and everything else as before.

    None: the loss or a gradient was not finite.
    """

    layer: str
    role: Role | None = None
    """None: all roles of the layer that were asked for."""
    format: str
    bits: float
    """Bits per number, shared scales included."""
    loss: float | None
    loss_change: float | None
    """Difference to the loss of the model as it is, over its magnitude."""
    sqnr_db: float | None
    """Of the layer's output, in dB; None also if the output is the same (as for a format of errors)."""
    gradient_cosine: float | None
    """Cosine of the angle between the gradients of all parameters and those of the model as it is."""
    gradient_error: float | None
    """Norm of their difference over the norm of the latter."""

    @property
    def subject(self) -> tuple[str, Role | None]:
        """The layer and role."""
        return self.layer, self.role

    def size(self, metric: SensitivityMetric) -> float:
        """The magnitude of a metric; infinite if it is not finite."""
        value = self.gradient_error if metric == "gradient_error" else self.loss_change
        return float("inf") if value is None else abs(value)


class LayerSensitivity(Struct, frozen=True, kw_only=True):
    """A layer, or a role of it, over all formats."""

    layer: str
    role: Role | None = None
    narrowest: str | None
    """The format of fewest bits whose metric is at most the threshold; None if none is."""
    worst: float | None
    """The largest metric over all formats; None if one is not finite."""


class FormatSensitivity(Struct, frozen=True, kw_only=True):
    """Which layer breaks in which format."""

    name: str
    """Class of the model."""
    loss: float
    """Of the model as it is."""
    metric: SensitivityMetric
    threshold: float
    formats: tuple[str, ...]
    layers: tuple[LayerSensitivity, ...]
    """The most sensitive first: by the metric in the narrowest format, then in the next."""
    trials: tuple[FormatTrial, ...]
    """In the order in which the layers run."""
    lift: bool = False
    """Whether the formats are wider than those of the model, and trials are compared with the model in float32: then
    the layer that comes closest in the widest format is the first."""
    unlifted: float | None = None
    """The metric of the model as it is, where layers are lifted; None also if it is not finite."""

    def __str__(self) -> str:
        sizes = {(trial.subject, trial.format): trial.size(self.metric) for trial in self.trials}
        has_roles = any(entry.role is not None for entry in self.layers)
        header = ["layer", *(["role"] if has_roles else []), "narrowest", *self.formats]
        rows = [header]
        for entry in self.layers:
            cells = [_cell(sizes.get(((entry.layer, entry.role), name))) for name in self.formats]
            roles = [entry.role or ""] if has_roles else []
            rows.append([entry.layer or "(root)", *roles, entry.narrowest or "none", *cells])
        lines = columns(rows, left=range(len(header) - len(self.formats)))
        what = "relative error of the gradients" if self.metric == "gradient_error" else "relative change of the loss"
        how = "one layer at a time"
        if self.lift:
            how = f"to float32, one layer lifted at a time ({_cell(self.unlifted) or 'not finite'} as it is)"
        return "\n".join([f"{self.name}: {what}, {how}; at most {self.threshold:g} passes", *lines])


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return "not finite" if value == float("inf") else f"{value:.2g}"
