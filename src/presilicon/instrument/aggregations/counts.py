"""Whether the counts of an aggregation fit into the words of a hardware, before anything is counted."""

from typing import Literal, NamedTuple

from presilicon.designs import WIDEST_WORD, Hardware
from presilicon.instrument.model.words import count_limit

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
