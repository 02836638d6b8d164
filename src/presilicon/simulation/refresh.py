"""Refresh of embedded DRAM: the energy of keeping a training step's data in a memory that forgets."""

from collections.abc import Collection
from typing import Annotated

from msgspec import Meta, Struct

from presilicon.base import PICO
from presilicon.designs import Label
from presilicon.records import MEMORY_PARTS, Lifetime, MemoryPart, MemoryTimeline

Positive = Annotated[float, Meta(gt=0)]


class Edram(Struct, frozen=True, kw_only=True):
    """A memory that loses its data after a while. No figure has a default: each cell technology has its own.

    Gain cells hold data for tens of microseconds when hot, one-transistor cells for longer.
    """

    retention_s: Positive
    """Time that data stays without a refresh."""
    refresh_pj_bit: Positive
    """Energy of refreshing one bit once."""
    label: Label
    source: str = ""


class Refresh(Struct, frozen=True, kw_only=True):
    """Refreshes of one training step and their energy."""

    energy_j: float
    refreshes: int
    """Refreshes of all pieces of data together."""
    refreshed: tuple[Lifetime, ...]
    """The data that lives too long, in order of writing."""
    longest_s: float
    """The longest lifetime; zero when there is no data."""


def price_refresh(timeline: MemoryTimeline, memory: Edram, parts: Collection[MemoryPart] = MEMORY_PARTS) -> Refresh:
    """Energy of refreshing the data of a step if those `parts` of it are held in `memory`.

    Data that lives for t is refreshed floor(t / retention) times, each time with all of its bits: none when its last
    read comes before it is forgotten. `timeline` is what `memory_timeline` gives.

    >>> data = Lifetime(tensor=1, role="activation", part="activations", size_bytes=4.0, write_s=0.0, last_read_s=9e-5)
    >>> cell = Edram(retention_s=4e-5, refresh_pj_bit=0.5, label="assumed")
    >>> refresh = price_refresh(MemoryTimeline(points=(), lifetimes=(data,)), cell)
    >>> refresh.refreshes, refresh.energy_j
    (2, 3.2e-11)
    """
    lifetimes = [lifetime for lifetime in timeline.lifetimes if lifetime.part in parts]
    counts = [lifetime.refreshes(memory.retention_s) for lifetime in lifetimes]
    bits = sum(8 * lifetime.size_bytes * count for lifetime, count in zip(lifetimes, counts, strict=True))
    return Refresh(
        energy_j=bits * memory.refresh_pj_bit * PICO,
        refreshes=sum(counts),
        refreshed=tuple(lifetime for lifetime, count in zip(lifetimes, counts, strict=True) if count),
        longest_s=max((lifetime.time_s for lifetime in lifetimes), default=0.0),
    )
