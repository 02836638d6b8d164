"""Where a multiply-add is read off the curves of a technology table, for energy and for area."""

from typing import NamedTuple

from presilicon.formats import Format
from presilicon.records import Phase, Role

OPERANDS: dict[Phase, tuple[Role, Role]] = {
    "forward": ("activation", "weight"),
    "input_grad": ("error", "weight"),
    "weight_grad": ("activation", "error"),
}
"""The roles of the two factors of each product of a layer."""


class MacSizes(NamedTuple):
    """Where a multiply-add is read off the curves of a table."""

    multiplier_is_integer: bool
    multiplier_bits: float
    """The geometric mean of the two significand widths: a multiplier grows with their product."""
    adder_is_integer: bool
    adder_bits: float
    """The width of the accumulator."""


def mac_sizes(a: Format, b: Format, accumulate: Format, *, slice_bits: int | None = None) -> MacSizes:
    """Where the multiplier and the adder of one multiply-add are read off.

    Numbers without an exponent of their own are multiplied as integers. A multiplier that works in slices is as wide
    as `slice_bits`.

    >>> from presilicon.formats import parse
    >>> mac_sizes(parse("bfloat16"), parse("bfloat16"), parse("float32"))
    MacSizes(multiplier_is_integer=False, multiplier_bits=8.0, adder_is_integer=False, adder_bits=32.0)
    """
    widths = [fmt.significand_bits if slice_bits is None else min(fmt.significand_bits, slice_bits) for fmt in (a, b)]
    return MacSizes(
        multiplier_is_integer=a.exponent_bits == b.exponent_bits == 0,
        multiplier_bits=(widths[0] * widths[1]) ** 0.5,
        adder_is_integer=accumulate.exponent_bits == 0,
        adder_bits=accumulate.bits_per_element,
    )
