"""The area of a design, from the same units that its energy is counted from."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import AreaTable, Design, MacArea, MacEnergy, Technology, curve_um2
from presilicon.formats import Format, parse
from presilicon.records import Area, OperatorCost
from presilicon.simulation.instrument import instrument_area_um2

MacFigure = TypeVar("MacFigure", MacArea, MacEnergy)


def area(design: Design, technology: Technology | None = None) -> Area:
    """The area of the machine of `design` by its parts, its instrument among them, or why it is not known.

    `technology` replaces the table that the machine names.

    >>> from presilicon.designs import load_design
    >>> fp32, bf16 = area(load_design("fp32-systolic")).mm2, area(load_design("bf16-systolic")).mm2
    >>> bf16 < fp32
    True
    """
    technology = technology or design.technology
    if technology is not None and technology.area is None:
        return Area(parts_mm2={}, how=f"not known: technology {technology.name} has no areas")
    machine = design.machine.area(design, technology)
    if design.instrument is None or technology is None or not machine.parts_mm2:
        return machine
    assert technology.area is not None
    return replace(
        machine,
        parts_mm2={**machine.parts_mm2, "instrument": instrument_area_um2(design.instrument, technology.area) * 1e-6},
    )


class MacSizes(NamedTuple):
    """Sizes at which a multiply-add is read off the curves of a technology table."""

    multiplier_is_integer: bool
    multiplier_bits: float
    """The geometric mean of the two significand widths: a multiplier grows with their product."""
    adder_is_integer: bool
    adder_bits: float
    """The width of the accumulator."""


def mac_sizes(a: Format, b: Format, accumulate: Format, *, slice_bits: int | None = None) -> MacSizes:
    """The sizes at which the multiplier and the adder of one multiply-add are read off.

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


def mac_area_um2(
    a: Format, b: Format, accumulate: Format, technology: Technology, *, slice_bits: int | None = None
) -> float:
    """Square micrometres of a multiplier of two such operands and an adder of such sums, without overhead.

    Of a synthesized unit, if the table has such a one; else from the table's curves.

    Raises:
        ConfigError: the table has no areas.
    """
    table = area_table(technology)
    figure = synthesized_unit(table.macs, a, b, accumulate, slice_bits)
    if figure is not None:
        return figure.value
    sizes = mac_sizes(a, b, accumulate, slice_bits=slice_bits)
    multiply = table.int_multiply if sizes.multiplier_is_integer else table.float_multiply
    add = table.int_add if sizes.adder_is_integer else table.float_add
    return curve_um2(multiply, sizes.multiplier_bits) + curve_um2(add, sizes.adder_bits)


def synthesized_unit(
    figures: Sequence[MacFigure], a: Format, b: Format, accumulate: Format, slice_bits: int | None
) -> MacFigure | None:
    """The figure of a synthesized unit with these operands and sums; None if the table has none."""
    for figure in figures:
        operands = {_shape(parse(figure.left)), _shape(parse(figure.right))}
        sums = _shape(parse(figure.accumulate))
        if (operands, sums, figure.slice_bits) == ({_shape(a), _shape(b)}, _shape(accumulate), slice_bits):
            return figure
    return None


def _shape(fmt: Format) -> tuple[type[Format], int, int]:
    """The part of a format that a multiplier or an adder sees: not the length of its blocks or its special codes."""
    return type(fmt), fmt.exponent_bits, fmt.significand_bits


def sram_area_um2(kib: float, technology: Technology) -> float:
    """Square micrometres of an SRAM of a capacity, its periphery included.

    Raises:
        ConfigError: the table has no areas.
    """
    return kib * 1024 * 8 * curve_um2(area_table(technology).sram_bit, kib)


def register_area_um2(bits: float, technology: Technology) -> float:
    """Square micrometres of a register, without overhead.

    Raises:
        ConfigError: the table has no areas.
    """
    return bits * area_table(technology).register_bit.um2


def operator_area_um2(cost: OperatorCost, technology: Technology) -> float:
    """Square micrometres of the hardware of one operator, without overhead.

    A unit for division, root, exponential or logarithm is a multiplier and an adder that are used several times. Tables
    are bits of the smallest SRAM in the technology table.

    Raises:
        ConfigError: the table has no areas.
    """
    table = area_table(technology)
    multipliers = (cost.multipliers + cost.special) * curve_um2(table.float_multiply, cost.significand_bits)
    adders = (cost.adders + cost.comparators + cost.special) * curve_um2(table.float_add, cost.bits)
    smallest = min(table.sram_bit, key=lambda point: point.size).um2
    return multipliers + adders + cost.entries * cost.bits * smallest


def area_table(technology: Technology) -> AreaTable:
    """The areas of a technology table.

    Raises:
        ConfigError: it has none.
    """
    if technology.area is None:
        raise ConfigError(f"technology {technology.name} has no areas: add [area] to it, or use one that has them")
    return technology.area
