"""Aggregations of two tensors whose vectors alternate: where pairs come from, and the chains that tell them apart."""

from typing import Literal

from presilicon.base import ConfigError
from presilicon.formats import Format, parse
from presilicon.instrument.aggregations.parts import END, FRESH
from presilicon.instrument.firmware.language import Firmware

PairSource = Literal["previous", "update", "rounding"]
"""Which two tensors an aggregation of pairs compares: a tensor at the look before and now, the update of a weight and
the weight, or a tensor before and after rounding."""


def check_pair_source(source: PairSource, aggregation: str, tensor: str, role: str, *, has_parameter: bool) -> None:
    """Raise if a tap's tensor has no pairs from this source; `tensor` names it in the error.

    Raises:
        ConfigError: updates are asked of something that is no weight.
    """
    if source == "update" and (role != "weight" or not has_parameter):
        raise ConfigError(
            f"{aggregation} compares weights with their updates, but the tap is on the {tensor}: tap it with "
            'role = "weight"'
        )


def check_rounding(aggregation: str, tensor: str, rounded: Format, element: Format) -> None:
    """Raise if rounding of a tensor to a format cannot be seen by an instrument with this element.

    Raises:
        ConfigError: the tensor is not rounded, or the element rounds as coarsely.
    """
    if rounded == parse("float32"):
        raise ConfigError(f"{aggregation} measures rounding, but the design's numerics leave the {tensor} in float32")
    if not shows_rounding(element, rounded):
        raise ConfigError(
            f"{aggregation} would show nothing: the instrument's element {element} rounds the {tensor} as coarsely as "
            f'its format {rounded} does; set a finer element in [instrument.hardware], such as element = "float32"'
        )


def shows_rounding(element: Format, rounded: Format) -> bool:
    """Whether an element can tell a number from the same number rounded to a format.

    An element that rounds as coarsely cannot: both are the same to it, and the error is 0. Formats that cannot be
    compared without looking at numbers pass.

    >>> elements = map(parse, ("bfloat16", "e5m2", "float16", "fixed(8, 24)"))
    >>> [shows_rounding(element, parse("bfloat16")) for element in elements]
    [False, False, True, True]
    """
    return element.is_finer_than(rounded)


NOTHING = 0
"""Range row without members. Its counts are zeros whatever the input is, also NaN or infinity: x - x is not."""


def zeros(fw: Firmware) -> None:
    """Begin a chain with a vector of zeros."""
    fw.class_row(NOTHING, [])
    fw.filter(NOTHING)
    fw.reduce("N")


def clear_row(fw: Firmware, row: int) -> None:
    """Put zeros into a scratchpad row at the start of an outer frame."""
    with fw.chain():
        zeros(fw)
        fw.cache(row, "first@1")


def sum_second(fw: Firmware, row: int, *, carried: bool = True) -> None:
    """Sum the carried vector, or the input, at the second vector of each pair into a row that was cleared."""
    with fw.chain():
        if carried:
            fw.load()
        fw.add(row)
        fw.cache(row, "last")
        fw.total()
        fw.commit(1, END)


def sum_first(fw: Firmware, row: int, *, carried: bool = True) -> None:
    """Sum the carried vector, or the input, at the first vector of each pair."""
    with fw.chain():
        if carried:
            fw.load()
        fw.add(row, FRESH)
        fw.cache(row, "first")


def send_total(fw: Firmware, row: int) -> None:
    """Send the total of a row at the end: zero plus the row."""
    with fw.chain():
        zeros(fw)
        fw.add(row)
        fw.total()
        fw.commit(1, END)
