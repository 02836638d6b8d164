"""Whether a ranking of designs hangs on single figures of the technology tables."""

from msgspec import Struct


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
