"""Building blocks of aggregations: firmware with its decoder, the tensor behind a frame, counts that fit, chains."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from presilicon.base import ConfigError
from presilicon.designs import WIDEST_WORD, Hardware
from presilicon.instrument.firmware.language import Firmware
from presilicon.instrument.host.tensors import join_tensor
from presilicon.instrument.model.words import count_limit, word_limits

CountScope = Literal["elements", "samples"]
"""Everything that one word may have to count: a tensor's elements with their padding, or the samples of a node."""
MAX_MANTISSA = 23


class CountWarning(NamedTuple):
    """A count that may be larger than a word can hold."""

    largest_count: int
    """The largest possible count."""
    limit: int
    """The largest count that a word holds exactly."""
    message: str


def check_counts(hardware: Hardware, scope: CountScope, count: int, nodes: int) -> CountWarning | None:
    """A warning for a tensor of `count` elements with `nodes` in its last dimension; None if every count fits.

    >>> from presilicon.formats import parse
    >>> narrow = Hardware(lanes=4, element=parse("fixed(8, 8)"))
    >>> check_counts(narrow, "elements", 120, 4)
    >>> warning = check_counts(narrow, "elements", 400, 4)
    >>> warning.largest_count, warning.limit
    (400, 127)
    >>> for part in warning.message.replace("; ", ", ").split(", "):
    ...     print(part)
    counts may reach 400
    but words of 16 bits hold no more than 127: those above will be null
    try accumulator_bits = 18 or more in [instrument.hardware]
    vectors = 31 or fewer in the tap
    or an element of 6 fraction bits or fewer
    """
    samples, groups = count // nodes, -(-nodes // hardware.lanes)
    largest = samples * (groups * hardware.lanes if scope == "elements" else 1)
    limit = int(count_limit(hardware))
    if largest <= limit:
        return None
    vectors = limit // hardware.lanes if scope == "elements" else limit * groups
    remedies = [
        *_wider(hardware, largest),
        *([f"vectors = {vectors} or fewer in the tap"] if vectors >= groups else []),
        *_coarser(hardware, largest),
    ]
    *others, last = remedies or ["another aggregation"]
    listed = f"{', '.join(others)}, or {last}" if others else last
    message = (
        f"counts may reach {largest}, but words of {hardware.word_bits} bits hold no more than {limit}: those above "
        f"will be null; try {listed}"
    )
    return CountWarning(largest, limit, message)


def _wider(hardware: Hardware, count: int) -> list[str]:
    """A wider accumulator, if one that can be built holds the count."""
    if hardware.is_float:
        mantissa = (count - 1).bit_length() - 1
        bits = 1 + hardware.exponent_bits + mantissa
        is_possible = mantissa <= MAX_MANTISSA and count <= 2 ** ((1 << hardware.exponent_bits - 1) - 1)
    else:
        bits = (count << hardware.fraction_bits).bit_length() + 1
        is_possible = bits <= WIDEST_WORD
    return [f"accumulator_bits = {bits} or more in [instrument.hardware]"] if is_possible else []


def _coarser(hardware: Hardware, count: int) -> list[str]:
    """Fewer fraction bits of fixed point, if words of the same width would then hold the count."""
    fraction = hardware.word_bits - 1 - count.bit_length()
    is_possible = 0 <= fraction < hardware.fraction_bits
    return [f"an element of {fraction} fraction bits or fewer"] if is_possible else []


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
