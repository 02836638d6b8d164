"""Whether the counts of an aggregation fit into the words of a hardware, before anything is counted."""

from typing import Literal, NamedTuple

from presilicon.designs import Hardware
from presilicon.designs.instrument import WIDEST_WORD
from presilicon.instrument.words import count_limit

Counted = Literal["elements", "samples"]
"""What one word may have to count all of: a tensor's elements with their padding, or the samples of a node."""
MOST_MANTISSA = 23


class Doubt(NamedTuple):
    """A count that may be larger than a word can hold."""

    largest_count: int
    """That there can be."""
    limit: int
    """That a word holds."""
    message: str


def doubt(hardware: Hardware, counted: Counted, count: int, nodes: int) -> Doubt | None:
    """What to tell of a tensor of `count` elements, `nodes` in its last dimension; None where every count fits.

    >>> from presilicon.formats import parse
    >>> narrow = Hardware(lanes=4, element=parse("fixed(8, 8)"))
    >>> doubt(narrow, "elements", 120, 4)
    >>> found = doubt(narrow, "elements", 400, 4)
    >>> found.largest_count, found.limit
    (400, 127)
    >>> for part in found.message.replace("; ", ", ").split(", "):
    ...     print(part)
    counts may reach 400
    but words of 16 bits hold no more than 127: those above will be null
    try accumulator_bits = 18 or more in [instrument.hardware]
    vectors = 31 or fewer in the tap
    or an element of 6 fraction bits or fewer
    """
    samples, groups = count // nodes, -(-nodes // hardware.lanes)
    each = groups * hardware.lanes if counted == "elements" else 1
    most, limit = samples * each, int(count_limit(hardware))
    if most <= limit:
        return None
    vectors = limit // hardware.lanes if counted == "elements" else limit * groups
    tries = [
        *_wider(hardware, most),
        *([f"vectors = {vectors} or fewer in the tap"] if vectors >= groups else []),
        *_coarser(hardware, most),
    ]
    *others, last = tries or ["another aggregation"]
    listed = f"{', '.join(others)}, or {last}" if others else last
    message = (
        f"counts may reach {most}, but words of {hardware.word_bits} bits hold no more than {limit}: those above will "
        f"be null; try {listed}"
    )
    return Doubt(most, limit, message)


def _wider(hardware: Hardware, most: int) -> list[str]:
    """A wider accumulator, where one that can be built holds so many."""
    if hardware.is_float:
        mantissa = (most - 1).bit_length() - 1
        bits = 1 + hardware.exponent_bits + mantissa
        can_be = mantissa <= MOST_MANTISSA and most <= 2 ** ((1 << hardware.exponent_bits - 1) - 1)
    else:
        bits = (most << hardware.fraction_bits).bit_length() + 1
        can_be = bits <= WIDEST_WORD
    return [f"accumulator_bits = {bits} or more in [instrument.hardware]"] if can_be else []


def _coarser(hardware: Hardware, most: int) -> list[str]:
    """Fewer fraction bits of fixed point, where words of the same width would then hold so many."""
    fraction = hardware.word_bits - 1 - most.bit_length()
    can_be = 0 <= fraction < hardware.fraction_bits
    return [f"an element of {fraction} fraction bits or fewer"] if can_be else []
