"""Building blocks of aggregations: firmware with its decoder, the tensor behind a frame, and common chains."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from presilicon.base import ConfigError
from presilicon.designs import Hardware
from presilicon.instrument.aggregations.counts import CountScope
from presilicon.instrument.firmware.language import Firmware
from presilicon.instrument.host.tensors import join_tensor
from presilicon.instrument.model.words import count_limit, word_limits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]
else:
    Values = Any  # numpy is loaded when something is decoded

Decoder = Callable[[Values, "FrameContents"], dict[str, Any]]
"""Takes the values of a frame's words and returns the results by name."""
FRESH = "notfirst@1"
END = "last@1"
MAX_NUMBERS = 4096
"""Elements of a tensor, or words of a frame, in one event."""


@dataclass(frozen=True)
class FrameContents:
    """The tensor behind a frame, as far as the host knows it, and the problems of decoding the frame."""

    hardware: Hardware
    count: int | None = None
    """Elements of the tensor (of one of the two, in pairs)."""
    nodes: int | None = None
    """Its last dimension."""
    overflowed: list[str] = field(default_factory=list)
    """Results that the words could not hold."""
    imprecise: list[str] = field(default_factory=list)
    """Sums over so many vectors that a float of this width stops growing before their end."""

    @property
    def max_count(self) -> float:
        """The largest possible count: every lane of every vector."""
        return math.inf if self.count is None else self.count + self.padding

    @property
    def padding(self) -> int:
        """Number of zeros in lanes without a node; 0 if the tensor's shape is unknown."""
        if self.nodes is None or self.count is None:
            return 0
        return -self.nodes % self.hardware.lanes * (self.count // self.nodes)

    def check_count(self, name: str, value: float, padding: float = 0.0) -> float | None:
        """A count without the zeros of padding; None if it may have been rounded or saturated.

        Counts only grow, so a count below the limit was exact all the way. So was every count of a tensor that has no
        more elements than the limit.
        """
        limit = count_limit(self.hardware)
        if (value < limit or self.max_count <= limit) and value >= padding:
            return value - padding
        self.overflowed.append(name)
        return None

    def check_sum(self, name: str, value: float) -> float | None:
        """A sum; None if a fixed-point word saturated. A float that overflows is infinite and needs no check."""
        if not self.hardware.is_float:
            low, high = word_limits(self.hardware)
            if not low < value * 2.0**self.hardware.fraction_bits < high:
                self.overflowed.append(name)
                return None
        elif self.count is not None:
            vectors = (self.count + self.padding) // self.hardware.lanes
            if vectors > 2 << self.hardware.word_mantissa:
                self.imprecise.append(name)
        return value


@dataclass(frozen=True)
class AggregationCode:
    """Firmware for a hardware, and the decoder of the words that it sends."""

    firmware: Firmware
    decoder: Decoder
    boundaries: tuple[float, ...] = ()
    """Bin boundaries, for aggregations with bins."""
    counts: CountScope | None = None
    """Everything that one of its words may have to count, where counts must be exact."""


def accumulate(fw: Firmware, row: int, size: int | str = 1) -> None:
    """Add to a scratchpad row over an outer frame and send it at the end: its total, or its words."""
    fw.add(row, FRESH)
    fw.cache(row)
    if size == 1:
        fw.total()
    fw.commit(size, END)


def decode_named(names: Sequence[str]) -> Decoder:
    """A decoder for words that are results as they are; None for those that saturated."""

    def decode(values: Values, contents: FrameContents) -> dict[str, Any]:
        expect_words(values, len(names))
        return {name: contents.check_sum(name, float(value)) for name, value in zip(names, values, strict=True)}

    return decode


def expect_words(values: Values, expected: int) -> None:
    """Raise if a frame has more or fewer words than its aggregation sends."""
    if values.size != expected:
        raise ConfigError(f"{values.size} words, but this aggregation sends {expected} per outer frame")


def join_vectors(values: Values, contents: FrameContents) -> Values:
    """The tensor that the vectors were cut from, or the vectors themselves if its nodes are unknown."""
    lanes = contents.hardware.lanes
    groups = 1 if contents.nodes is None else -(-contents.nodes // lanes)
    if values.size % (groups * lanes):
        nodes = "" if contents.nodes is None else f" and {contents.nodes} nodes"
        raise ConfigError(f"{values.size} words are not whole vectors of {lanes} lanes{nodes}")
    return join_tensor(values.reshape(-1, lanes), values.size // (groups * lanes), contents.nodes or lanes)
