"""What the aggregations are made of: what is known of a tensor, firmware with its decoder, and common chains."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from presilicon.base.errors import ConfigError
from presilicon.designs import Hardware
from presilicon.instrument.counts import Counted
from presilicon.instrument.firmware import Firmware
from presilicon.instrument.words import count_limit, word_limits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Decoder = Callable[["NDArray[np.float64]", "Cut"], dict[str, Any]]
FRESH = "notfirst@1"
END = "last@1"


@dataclass(frozen=True)
class Cut:
    """What the host knows of the tensor behind a frame; None where it does not."""

    hardware: Hardware
    count: int | None = None
    nodes: int | None = None
    lost: list[str] = field(default_factory=list)
    """Results that the words could not hold."""
    rough: list[str] = field(default_factory=list)
    """Sums of so many vectors that a float of this width stops growing before their end."""

    @property
    def most(self) -> float:
        """The largest count that there can be: every lane of every vector."""
        return math.inf if self.count is None else self.count + self.padding

    @property
    def padding(self) -> int:
        """Zeros that stand where there are no nodes; 0 where nothing is known."""
        if self.nodes is None or self.count is None:
            return 0
        return -self.nodes % self.hardware.lanes * (self.count // self.nodes)

    def counted(self, name: str, value: float, less: float = 0.0) -> float | None:
        """A count, less the zeros of padding where they are in it; None where the words need not have held it.

        Counts only grow, so that one below the limit was never rounded and never saturated on its way; nor was any of
        a tensor that has no more elements than that.
        """
        limit = count_limit(self.hardware)
        if (value < limit or self.most <= limit) and value >= less:
            return value - less
        self.lost.append(name)
        return None

    def held(self, name: str, value: float) -> float | None:
        """A sum; None where a fixed-point word stands at one of its ends. A float says so itself."""
        if not self.hardware.is_float:
            low, high = word_limits(self.hardware)
            if not low < value * 2.0**self.hardware.fraction_bits < high:
                self.lost.append(name)
                return None
        elif self.count is not None:
            vectors = (self.count + self.padding) // self.hardware.lanes
            if vectors > 2 << self.hardware.word_mantissa:
                self.rough.append(name)
        return value


@dataclass(frozen=True)
class Made:
    """Firmware and what reads its words."""

    firmware: Firmware
    decoder: Decoder
    boundaries: tuple[float, ...] = ()
    """Of the bins, where it has any."""
    counts: Counted | None = None
    """What one of its words may have to count all of, where counts must be exact."""


def accumulate(fw: Firmware, row: int, size: int | str = 1) -> None:
    """Add to a row from an outer frame's begin to its end, and send it then: its total, or its words."""
    fw.add(row, FRESH)
    fw.cache(row)
    if size == 1:
        fw.total()
    fw.commit(size, END)


def named(names: Sequence[str]) -> Decoder:
    """A decoder of words that are results as they are; None for those that saturated."""

    def decode(values: "NDArray[np.float64]", cut: Cut) -> dict[str, Any]:
        expect(values, len(names))
        return {name: cut.held(name, float(value)) for name, value in zip(names, values, strict=True)}

    return decode


def expect(values: "NDArray[np.float64]", wanted: int) -> None:
    """Refuse more or fewer words than a frame has."""
    if values.size != wanted:
        raise ConfigError(f"{values.size} words, but this aggregation sends {wanted} for an outer frame")
