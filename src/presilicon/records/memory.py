"""Memory of a training step over time, and lifetimes of its data."""

from math import floor
from typing import Literal, get_args

from msgspec import Struct

from presilicon.records.graph import Phase, Role

MemoryPart = Literal["weights", "rounded_weights", "gradients", "state", "activations", "transients"]
MEMORY_PARTS: tuple[MemoryPart, ...] = get_args(MemoryPart)


class MemoryPoint(Struct, frozen=True, kw_only=True):
    """Memory in use while one op runs."""

    name: str
    """Start of the op."""
    phase: Phase
    start_s: float
    end_s: float
    weights_bytes: float = 0.0
    """Master weights, and weights that are not trained."""
    rounded_weights_bytes: float = 0.0
    """Their copy in the format that products use, where that is another one."""
    gradients_bytes: float = 0.0
    """Weight gradients, from their computation to the update."""
    state_bytes: float = 0.0
    """State of the optimizer and of normalization layers."""
    activations_bytes: float = 0.0
    """Data of the forward pass that the backward pass still needs."""
    transients_bytes: float = 0.0
    """Short-lived data: errors, and results that only neighbouring ops read."""

    @property
    def total_bytes(self) -> float:
        """All of it."""
        return sum(self.parts().values())

    def parts(self) -> dict[MemoryPart, float]:
        """Bytes of each part."""
        return {part: getattr(self, f"{part}_bytes") for part in MEMORY_PARTS}


class Lifetime(Struct, frozen=True, kw_only=True):
    """One piece of data, from the start of the op that writes it to the end of the last op that reads it.

    Storage that is written again holds new data, with a lifetime of its own. What outlives the step, such as a weight,
    is last read in the next one: then `last_read_s` is past the step's end. Data that a step is given is there from 0.

    >>> data = Lifetime(tensor=1, role="activation", part="activations", size_bytes=4.0, write_s=1e-6, last_read_s=9e-6)
    >>> data.refreshes(retention_s=3e-6), data.refreshes(retention_s=10e-6)
    (2, 0)
    """

    tensor: int
    """The storage, as in the graph."""
    role: Role
    part: MemoryPart
    size_bytes: float
    write_s: float
    last_read_s: float
    writer: str = ""
    """Name of the op that writes it; empty when the step is given it."""
    last_reader: str = ""

    @property
    def time_s(self) -> float:
        """Time for which the data must be kept."""
        return self.last_read_s - self.write_s

    def refreshes(self, retention_s: float) -> int:
        """Number of refreshes in a memory that keeps data for `retention_s`."""
        return floor(self.time_s / retention_s)


class MemoryTimeline(Struct, frozen=True, kw_only=True):
    """Memory of a training step, op by op, and the lifetimes of its data."""

    points: tuple[MemoryPoint, ...]
    lifetimes: tuple[Lifetime, ...]
    """In order of writing. Data that no op of the step writes again and again, such as a frozen weight, is left out."""

    @property
    def peak(self) -> MemoryPoint:
        """The first point of maximum memory."""
        return max(self.points, key=lambda point: point.total_bytes)

    @property
    def peak_bytes(self) -> float:
        """The most that is held at once."""
        return self.peak.total_bytes if self.points else 0.0

    def longest(self, part: MemoryPart) -> Lifetime | None:
        """The data of that part that must be kept longest; None when there is none."""
        return max((life for life in self.lifetimes if life.part == part), key=lambda life: life.time_s, default=None)
