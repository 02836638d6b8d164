"""Energy of multiply-adds and power of a die that does nothing, read from a technology table."""

from presilicon.base import MILLI
from presilicon.designs import Design, Technology, curve_pj
from presilicon.formats import Format, MacUnit
from presilicon.simulation.area import area, mac_sizes, synthesized_unit


def unit_pj(a: Format, b: Format, mac: MacUnit, technology: Technology) -> float:
    """Picojoules of one multiply-add of a MAC unit: the user's figure for a processing unit, or from the table."""
    if mac.unit is not None and mac.unit.energy_pj is not None:
        return mac.unit.energy_pj / mac.unit.lanes
    return mac_pj(a, b, mac.widest_sum, technology, slice_bits=mac.slice_bits)


def mac_pj(a: Format, b: Format, accumulate: Format, technology: Technology, *, slice_bits: int | None = None) -> float:
    """Picojoules of one multiply-add.

    Of a synthesized unit, if the table has such a one. Off the curves, a multiplier that works in slices takes the same
    energy in several passes.
    """
    figure = synthesized_unit(technology.macs, a, b, accumulate, slice_bits)
    if figure is not None:
        return figure.value
    sizes = mac_sizes(a, b, accumulate)
    multiply = technology.int_multiply if sizes.multiplier_is_integer else technology.float_multiply
    add = technology.int_add if sizes.adder_is_integer else technology.float_add
    return curve_pj(multiply, sizes.multiplier_bits) + curve_pj(add, sizes.adder_bits)


def leakage_w(design: Design, technology: Technology) -> float | None:
    """Watts that the whole die leaks; None where the table has no leakage or the area is not known."""
    mm2 = area(design, technology).mm2
    return None if technology.leakage is None or mm2 is None else technology.leakage.mw_mm2 * mm2 * MILLI
