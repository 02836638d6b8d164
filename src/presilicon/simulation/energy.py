"""Energy of one operation, read from a technology table at the widths of number formats."""

from collections.abc import Callable
from functools import cache

from msgspec import Struct

from presilicon.base.units import MILLI, PICO
from presilicon.designs import Design, SystolicMachine, Technology, curve_pj
from presilicon.formats import Format
from presilicon.simulation.area import area
from presilicon.simulation.macs import mac_sizes


def mac_pj(a: Format, b: Format, accumulate: Format, technology: Technology) -> float:
    """Picojoules of one multiply-add; a multiplier that works in slices takes as much in more passes."""
    sizes = mac_sizes(a, b, accumulate)
    multiply = technology.int_multiply if sizes.multiplier_is_integer else technology.float_multiply
    add = technology.int_add if sizes.adder_is_integer else technology.float_add
    return curve_pj(multiply, sizes.multiplier_bits) + curve_pj(add, sizes.adder_bits)


class Rates(Struct, frozen=True, kw_only=True):
    """What a systolic machine pays for each thing it does: read from the table once for a whole step."""

    mac_j: Callable[[Format, Format, Format], float]
    """Of one multiply-add with such operands and sums."""
    vector_j: float
    """Of one operation of the vector unit: float32, priced by the adder's figure whatever it is."""
    register_bit_j: float
    """Of writing one bit to a register in the array or the transposer."""
    sram_byte_j: float
    dram_byte_j: float
    leakage_w: float | None
    """Of the whole die; None where the table does not say."""


def systolic_rates(design: Design, machine: SystolicMachine, technology: Technology) -> Rates:
    """The rates of `machine` by `technology`."""

    @cache
    def mac_j(a: Format, b: Format, accumulate: Format) -> float:
        return mac_pj(a, b, accumulate, technology) * PICO

    return Rates(
        mac_j=mac_j,
        vector_j=curve_pj(technology.float_add, 32) * PICO,
        register_bit_j=technology.register_bit.pj * PICO if technology.register_bit else 0.0,
        sram_byte_j=curve_pj(technology.sram_64bit, machine.sram_kib) / 8 * PICO,
        dram_byte_j=technology.dram_figure(machine.dram_kind).pj / 8 * PICO,
        leakage_w=leakage_w(design, technology),
    )


def leakage_w(design: Design, technology: Technology) -> float | None:
    """Watts that the whole die takes whether it works or not; None where the table or the area does not say."""
    mm2 = area(design, technology).mm2
    return None if technology.leakage is None or mm2 is None else technology.leakage.mw_mm2 * mm2 * MILLI


def transposer_writes(height: int, width: int, rows: int, cols: int, count: int = 1) -> int:
    """How often a register of the transposer is written for `count` height x width matrices.

    A tile of h x w enters row by row and leaves column by column: the first row moves through h registers, the last one
    through one, and on the way out the columns through w to one. That is h w (h + w + 2) / 2 writes a tile.

    >>> transposer_writes(height=2, width=2, rows=4, cols=4)
    12
    """
    whole = [(height // rows, rows), (1, height % rows)]
    across = [(width // cols, cols), (1, width % cols)]
    return count * sum(m * n * (h * w * (h + w + 2) // 2) for m, h in whole for n, w in across)
