"""Energy tables: picojoules per operation at a process node, each figure labelled with where it comes from."""

import math
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

from msgspec import Meta, Struct

from presilicon.base.config import decode, parse_toml
from presilicon.base.errors import ConfigError, unknown

Positive = Annotated[float, Meta(gt=0)]
Label = Literal["verified", "recalled", "assumed"]


class EnergyPoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One figure of a table: the energy of an operation at a size (bits or KiB)."""

    size: Positive
    pj: Positive
    label: Label
    """`verified` against a public copy of the source, `recalled` and not checked, or `assumed` by us."""


Curve = Annotated[tuple[EnergyPoint, ...], Meta(min_length=2)]
CURVES = ("float_multiply", "float_add", "int_multiply", "int_add", "sram_64bit")


class Technology(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The energy table of a process node.

    Sizes between and beyond the figures are read off the power law through the two nearest ones, in `curve_pj`.
    """

    name: str
    node_nm: Positive
    source: str
    float_multiply: Curve
    """By significand bits, the hidden one included."""
    float_add: Curve
    """By total bits."""
    int_multiply: Curve
    """By bits; for fixed point, and for block formats, whose mantissas are integers."""
    int_add: Curve
    """By bits."""
    sram_64bit: Curve
    """Energy of one 64-bit access, by capacity in KiB."""
    dram_64bit: EnergyPoint
    """Energy of 64 bits moved to or from DRAM; `size` is 64."""

    def check(self) -> None:
        """The sizes of every curve must rise."""
        for name in CURVES:
            sizes = [point.size for point in getattr(self, name)]
            if sizes != sorted(set(sizes)):
                raise ConfigError(f"the sizes of {name} must rise, given {sizes}")

    def figures(self) -> list[str]:
        """Every figure as a line of provenance."""
        lines = []
        for name in CURVES:
            for point in getattr(self, name):
                lines.append(f"{name} at {point.size:g}: {point.pj:g} pJ ({point.label})")
        return [*lines, f"dram_64bit: {self.dram_64bit.pj:g} pJ ({self.dram_64bit.label})"]


def curve_pj(curve: tuple[EnergyPoint, ...], size: float) -> float:
    """Energy at `size` by the power law through the two figures around it, or the two nearest when it lies outside.

    >>> points = (EnergyPoint(size=8, pj=10, label="verified"), EnergyPoint(size=32, pj=20, label="verified"))
    >>> curve_pj(points, 8), round(curve_pj(points, 128), 6)
    (10.0, 40.0)
    """
    right = next((i for i, point in enumerate(curve) if point.size >= size), len(curve) - 1)
    low, high = curve[max(right - 1, 0)], curve[max(right, 1)]
    slope = math.log(high.pj / low.pj) / math.log(high.size / low.size)
    return low.pj * math.exp(slope * math.log(size / low.size))


def technology_names() -> list[str]:
    """The energy tables that come with the package."""
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in (files("presilicon.designs") / "technologies").iterdir()
        if entry.name.endswith(".toml")
    )


@cache
def load_technology(name: str) -> Technology:
    """The energy table called `name`."""
    if name not in technology_names():
        raise unknown("technology", name, technology_names())
    text = (files("presilicon.designs") / "technologies" / f"{name}.toml").read_text()
    data, source = parse_toml(text, f"technology {name}")
    return decode(data, Technology, source)
