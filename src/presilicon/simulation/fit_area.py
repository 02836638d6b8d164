"""The size of an array at which a design is as large as another one."""

from math import sqrt
from typing import NamedTuple

import msgspec

from presilicon.base import ConfigError
from presilicon.designs import Design
from presilicon.simulation.area import area
from presilicon.simulation.systolic.machine import SystolicMachine


class FittedDesign(NamedTuple):
    """A design whose array was sized to an area."""

    design: Design
    mm2: float
    goal_mm2: float


def fit_area(design: Design, like: Design) -> FittedDesign:
    """`design` with rows and columns such that its area is nearest to that of `like`.

    The shape of the array stays nearly the same: rows by columns may change by a tenth. Lanes and memory stay. Its name
    is that of the design with the size of the array: `fp8-systolic-151x155`.

    Raises:
        ConfigError: no systolic array, an area that is not known, two technologies, or no array fits.
    """
    machine = design.machine
    if not isinstance(machine, SystolicMachine):
        kind = design.to_plain()["machine"]["kind"]
        raise ConfigError(f"{design.name}: rows and columns of a systolic machine are fitted, not of {kind}")
    goal = _mm2(like)
    if design.technology != like.technology:
        raise ConfigError(
            f"{design.name} and {like.name} have different technologies, in which areas cannot be compared: try "
            f"--set machine.technology={like.technology.name if like.technology else 'horowitz-45nm'}"
        )
    one, two = (_mm2(_sized(design, machine, 1, cols)) for cols in (1, 2))
    cells = (goal - one) / (two - one) + 1
    if cells < 1:
        raise ConfigError(
            f"{like.name} has {goal:.4g} mm2, but {design.name} has {one:.4g} mm2 with a single cell: try less "
            "machine.sram_kib or machine.vector_lanes"
        )
    ratio = machine.rows / machine.cols
    middle = sqrt(cells * ratio)
    rows = range(max(1, round(0.95 * middle)), max(1, round(1.05 * middle)) + 1)
    shapes = [(count, max(1, round(cells / count))) for count in rows]
    best = min(shapes, key=lambda shape: (abs(shape[0] * shape[1] - cells), abs(shape[0] / shape[1] / ratio - 1)))
    fitted = _sized(design, machine, *best)
    if best != (machine.rows, machine.cols):
        fitted = msgspec.structs.replace(fitted, name=f"{design.name}-{best[0]}x{best[1]}")
    return FittedDesign(fitted, _mm2(fitted), goal)


def _sized(design: Design, machine: SystolicMachine, rows: int, cols: int) -> Design:
    return msgspec.structs.replace(design, machine=msgspec.structs.replace(machine, rows=rows, cols=cols))


def _mm2(design: Design) -> float:
    whole = area(design)
    if whole.mm2 is None:
        raise ConfigError(f"{design.name}: the area is {whole.how}")
    return whole.mm2
