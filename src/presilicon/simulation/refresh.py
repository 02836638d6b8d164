"""Refreshing a memory that forgets: what a training step's data costs in embedded DRAM."""

from collections.abc import Collection
from typing import Annotated

from msgspec import Meta, Struct

from presilicon.base.units import PICO
from presilicon.designs.technology import Label
from presilicon.records import Lifetime, MemoryPart, MemoryTimeline
from presilicon.records.memory import MEMORY_PARTS

Positive = Annotated[float, Meta(gt=0)]


class Edram(Struct, frozen=True, kw_only=True):
    """A memory that keeps what is written to it for a while. No figure here has a default: each cell has its own.

    Gain cells hold data for tens of microseconds when hot, one-transistor cells for longer.
    """

    retention_s: Positive
    """How long data stays without a refresh."""
    refresh_pj_bit: Positive
    """Energy of refreshing one bit once."""
    label: Label
    source: str = ""


class Refresh(Struct, frozen=True, kw_only=True):
    """What must be refreshed in one training step."""

    energy_j: float
    refreshes: int
    """How often a piece of data is refreshed, over all of them."""
    refreshed: tuple[Lifetime, ...]
    """The data that lives too long, in order of writing."""
    longest_s: float
    """The longest lifetime; zero when there is no data."""


def price_refresh(timeline: MemoryTimeline, memory: Edram, parts: Collection[MemoryPart] = MEMORY_PARTS) -> Refresh:
    """What the data of a step costs to refresh, were those `parts` of it held in `memory`.

    Data that lives for t is refreshed floor(t / retention) times, each time with all of its bits: none when its last
    read comes before it is forgotten. `timeline` is what `memory_timeline` gives.

    >>> data = Lifetime(tensor=1, role="activation", part="activations", size_bytes=4.0, write_s=0.0, last_read_s=9e-5)
    >>> cell = Edram(retention_s=4e-5, refresh_pj_bit=0.5, label="assumed")
    >>> found = price_refresh(MemoryTimeline(points=(), lifetimes=(data,)), cell)
    >>> found.refreshes, found.energy_j
    (2, 3.2e-11)
    """
    lifetimes = [each for each in timeline.lifetimes if each.part in parts]
    counts = [each.refreshes(memory.retention_s) for each in lifetimes]
    bits = sum(8 * each.size_bytes * count for each, count in zip(lifetimes, counts, strict=True))
    return Refresh(
        energy_j=bits * memory.refresh_pj_bit * PICO,
        refreshes=sum(counts),
        refreshed=tuple(each for each, count in zip(lifetimes, counts, strict=True) if count),
        longest_s=max((each.time_s for each in lifetimes), default=0.0),
    )
