"""Technology tables: energy, area and leakage at a process node, each figure labelled with where it comes from."""

import math
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

from presilicon.base import ConfigError, decode_config, unknown
from presilicon.designs.inheritance import is_path, packaged_names, read_packaged

Positive = Annotated[float, Meta(gt=0, le=1e12)]
Label = Literal["verified", "recalled", "assumed"]


class Figure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number of a table with its provenance."""

    unit: ClassVar[str] = ""
    field: ClassVar[str] = ""
    """The field that holds the number."""

    label: Label
    """`verified` against a public copy of the source, `recalled` but not checked, or `assumed` by us."""
    source: str = ""
    """Source of the number; empty: the table's own source."""

    @property
    def value(self) -> float:
        """The number itself, in `unit`."""
        number: float = getattr(self, self.field)
        return number


class Energy(Figure, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Picojoules of one operation."""

    unit: ClassVar[str] = "pJ"
    field: ClassVar[str] = "pj"

    pj: Positive


class EnergyPoint(Energy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Picojoules of an operation at a size (bits or KiB)."""

    size: Positive


class CellArea(Figure, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Square micrometres of a cell."""

    unit: ClassVar[str] = "um2"
    field: ClassVar[str] = "um2"

    um2: Positive


class AreaPoint(CellArea, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Square micrometres of a unit at a size (bits or KiB)."""

    size: Positive


class MacArea(CellArea, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Square micrometres of a synthesized MAC unit, per lane and without its registers."""

    left: str
    right: str
    accumulate: str
    slice_bits: Annotated[int, Meta(ge=1)] | None = None
    """Width of the multipliers, if they multiply mantissas slice by slice."""


class MacEnergy(Energy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Picojoules of a multiply-add in a synthesized MAC unit, without its registers; all slices of a product."""

    left: str
    right: str
    accumulate: str
    slice_bits: Annotated[int, Meta(ge=1)] | None = None
    """Width of the multipliers, if they multiply mantissas slice by slice."""


class Overhead(Figure, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Area of control, clock and wiring, as a share of the cells of a block of logic."""

    unit: ClassVar[str] = "of the cells"
    field: ClassVar[str] = "share"

    share: Positive


class Density(Figure, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Area of a memory of another kind, as a share of an SRAM of the same size."""

    unit: ClassVar[str] = "of SRAM"
    field: ClassVar[str] = "share"

    share: Positive


class WireEnergy(Figure, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Picojoules of one bit on a millimetre of wire with its repeaters."""

    unit: ClassVar[str] = "pJ/bit/mm"
    field: ClassVar[str] = "pj_bit_mm"

    pj_bit_mm: Positive


class Leakage(Figure, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Power of silicon per area, whether it works or not."""

    unit: ClassVar[str] = "mW/mm2"
    field: ClassVar[str] = "mw_mm2"

    mw_mm2: Positive


EnergyCurve = Annotated[tuple[EnergyPoint, ...], Meta(min_length=2)]
AreaCurve = Annotated[tuple[AreaPoint, ...], Meta(min_length=2)]
FigurePath = tuple[str | int, ...]
"""Path of a figure in a table: names of fields, keys, and positions in a curve."""


class AreaTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Areas at a process node, by the same sizes as the energies."""

    float_multiply: AreaCurve
    """By significand bits, the hidden one included."""
    float_add: AreaCurve
    """By total bits."""
    int_multiply: AreaCurve
    """By bits."""
    int_add: AreaCurve
    """By bits."""
    sram_bit: AreaCurve
    """Per bit of a memory, its periphery included, by capacity in KiB."""
    register_bit: CellArea
    """Per bit of a register."""
    mux_bit: CellArea | None = None
    """Per bit of a multiplexer of two inputs; without it, a machine cannot select operands."""
    edram: Density | None = None
    """Of embedded DRAM; without it, a machine cannot have any."""
    overhead: Overhead
    """Applied to all of these except SRAM."""
    macs: tuple[MacArea, ...] = ()
    """Synthesized units; others are read off the curves."""


class Technology(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table of a process node.

    Sizes between and beyond the figures are read off the power law through the two nearest ones, by `curve_pj` and
    `curve_um2`.
    """

    name: str
    node_nm: Positive
    source: str
    float_multiply: EnergyCurve
    """By significand bits, the hidden one included."""
    float_add: EnergyCurve
    """By total bits."""
    int_multiply: EnergyCurve
    """By bits; for fixed point, and for block formats, whose mantissas are integers."""
    int_add: EnergyCurve
    """By bits."""
    sram_64bit: EnergyCurve
    """Energy of one 64-bit access of a bank, by its capacity in KiB."""
    dram: Annotated[dict[str, Energy], Meta(min_length=1)]
    """Energy of 64 bits moved to or from DRAM, by kind of DRAM."""
    register_bit: Energy | None = None
    """Energy of writing one bit to a register; without it, registers cost nothing."""
    mux_bit: Energy | None = None
    """Energy of a bit through a multiplexer of two inputs; without it, a machine cannot select operands."""
    codec_bit: Energy | None = None
    """Energy of compressing or expanding a bit of an operand with zeros; without it, that costs nothing (a remark)."""
    wire: WireEnergy | None = None
    """Wires to the banks of a memory; without it, or without areas, a memory is read off the curve as one bank."""
    macs: tuple[MacEnergy, ...] = ()
    """Synthesized units; others are read off the curves."""
    area: AreaTable | None = None
    """Without it, the area of a design is not known."""
    leakage: Leakage | None = None
    """Per area; without it, leakage is not counted."""

    def check(self) -> None:
        """The sizes of every curve must rise, leakage needs an area, and the table a name."""
        if not self.name.strip():
            raise ConfigError("name must not be empty")
        for path, points in _curves(self):
            sizes = [point.size for point in points]
            if sizes != sorted(set(sizes)):
                raise ConfigError(f"the sizes of {'.'.join(path)} must rise, not {sizes}")
        if self.leakage is not None and self.area is None:
            raise ConfigError("leakage is given per mm2, but the table has no areas: add [area], or leave it out")

    def dram_figure(self, kind: str) -> Energy:
        """The figure of a kind of DRAM.

        Raises:
            ConfigError: the table has no such kind; the message lists those that it has.
        """
        if kind not in self.dram:
            raise unknown(f"kind of DRAM in technology {self.name}", kind, self.dram)
        return self.dram[kind]

    def entries(self) -> dict[FigurePath, Figure]:
        """Every figure of the table, by its path.

        >>> load_technology("horowitz-45nm").entries()["float_multiply", 1].value
        3.7
        """
        return dict(_figures(self, ()))

    def scaled(self, path: FigurePath, factor: float) -> "Technology":
        """The same table with the figure at `path`, one of `entries`, multiplied."""
        scaled: Technology = _scale(self, path, factor)
        return scaled

    def figures(self) -> list[str]:
        """Every figure as a line of provenance."""
        return [
            f"{figure_name(self, path)}: {figure.value:g} {figure.unit} ({figure.label})"
            + (f"; {figure.source}" if figure.source else "")
            for path, figure in self.entries().items()
        ]


def figure_name(technology: Technology, path: FigurePath) -> str:
    """A figure's path in readable form.

    >>> figure_name(load_technology("horowitz-45nm"), ("area", "float_add", 0))
    'area.float_add at 16'
    """
    figure = technology.entries()[path]
    names = ".".join(part for part in path if isinstance(part, str))
    if isinstance(figure, MacArea | MacEnergy):
        slices = f", {figure.slice_bits}-bit slices" if figure.slice_bits else ""
        return f"{names} of {figure.left} by {figure.right}{slices}"
    return f"{names} at {figure.size:g}" if isinstance(figure, EnergyPoint | AreaPoint) else names


def curve_pj(curve: Sequence[EnergyPoint], size: float) -> float:
    """Energy at `size` by the power law through the two figures around it, or the two nearest when it lies outside.

    >>> points = (EnergyPoint(size=8, pj=10, label="verified"), EnergyPoint(size=32, pj=20, label="verified"))
    >>> curve_pj(points, 8), round(curve_pj(points, 128), 6)
    (10.0, 40.0)
    """
    return _power_law(curve, size)


def curve_um2(curve: Sequence[AreaPoint], size: float) -> float:
    """Area at `size`, read as `curve_pj` reads energies."""
    return _power_law(curve, size)


def technology_names() -> list[str]:
    """The tables that come with the package."""
    return packaged_names("technologies")


def load_technology(name_or_path: str) -> Technology:
    """The table of a name that comes with the package, or of a TOML file.

    A name that holds a path separator or ends in `.toml` is a file.

    Raises:
        ConfigError: there is no such table or file, or something in it is wrong.
    """
    try:
        status = os.stat(name_or_path) if is_path(name_or_path) else None
    except (OSError, ValueError):
        status = None
    return _load(name_or_path, None if status is None else (status.st_mtime_ns, status.st_size))


@lru_cache(maxsize=64)
def _load(name_or_path: str, _stamp: tuple[int, int] | None) -> Technology:
    """A table; a file that was written again is read again."""
    data, source = read_packaged(name_or_path, "technologies", "technology", again=True)
    return decode_config(data, Technology, source)


def _power_law(curve: Sequence[EnergyPoint | AreaPoint], size: float) -> float:
    right = next((i for i, point in enumerate(curve) if point.size >= size), len(curve) - 1)
    low, high = curve[max(right - 1, 0)], curve[max(right, 1)]
    slope = math.log(high.value / low.value) / math.log(high.size / low.size)
    return low.value * math.exp(slope * math.log(size / low.size))


def _curves(technology: Technology) -> Iterator[tuple[tuple[str, ...], Sequence[EnergyPoint | AreaPoint]]]:
    for prefix, table in (((), technology), (("area",), technology.area)):
        for name in () if table is None else table.__struct_fields__:
            if isinstance(getattr(table, name), tuple) and name != "macs":
                yield (*prefix, name), getattr(table, name)


def _figures(value: object, path: FigurePath) -> Iterator[tuple[FigurePath, Figure]]:
    match value:
        case Figure():
            yield path, value
        case Struct():
            for name in value.__struct_fields__:
                yield from _figures(getattr(value, name), (*path, name))
        case dict():
            for key, item in value.items():
                yield from _figures(item, (*path, key))
        case tuple():
            for index, item in enumerate(value):
                yield from _figures(item, (*path, index))


def _scale(value: Any, path: FigurePath, factor: float) -> Any:
    """`value` with the figure at `path` multiplied, everything else shared."""
    if isinstance(value, Figure):
        return msgspec.structs.replace(value, **{value.field: value.value * factor})
    first, rest = path[0], path[1:]
    if isinstance(value, Struct):
        return msgspec.structs.replace(value, **{str(first): _scale(getattr(value, str(first)), rest, factor)})
    if isinstance(value, dict):
        return {key: _scale(item, rest, factor) if key == first else item for key, item in value.items()}
    return tuple(_scale(item, rest, factor) if index == first else item for index, item in enumerate(value))
