"""Times that another simulator, or a profiler, gives for a step: they stand in for ours where they are given."""

from typing import Literal

from msgspec import Struct

TimesKind = Literal["presilicon", "scale-sim", "timeloop", "torch-profiler"]
Matching = Literal["op", "order", "operator", "step"]


class ForeignTime(Struct, frozen=True, kw_only=True):
    """One figure of a file."""

    names: tuple[str, ...]
    """Name of the op. By operator: every operator that was running, outermost first, such as `aten.convolution`."""
    runs: tuple[int, ...] = ()
    """By operator: which run of each of these it is a part of."""
    time_s: float
    energy_j: float | None = None
    """None where the source says nothing of energy."""
    cycles: int | None = None
    calls: int = 1
    """Number of runs that `time_s` adds up."""
    place: str = ""
    """File and line, for whoever must mend it."""


class ForeignTimes(Struct, frozen=True, kw_only=True):
    """The figures of a file, and how they find their ops."""

    source: str
    """The file."""
    kind: TimesKind
    matching: Matching
    """By the op's name, by the order of the matrix products, by ATen operator, or the whole step at once."""
    entries: tuple[ForeignTime, ...]
    steps: int = 1
    """Steps that the figures are the sum of."""


class Coverage(Struct, frozen=True, kw_only=True):
    """Share of a step whose times come from elsewhere."""

    source: str
    kind: TimesKind
    ops_given: int
    ops: int
    time_share: float
    """Share of the step's time (or of the busy time of all ops, if they overlap) that came from the file."""
    energies_given: int
    """Ops whose energy came from the file; all others keep ours, with the leakage of their new time."""
    unmatched: tuple[str, ...] = ()
    """Names in the file that are no op's, the longest first; their time is left out."""
    unmatched_s: float = 0.0
