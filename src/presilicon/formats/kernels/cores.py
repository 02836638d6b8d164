"""Ids of rounding modes and rounding cores, shared by the compiled kernels of all devices.

A core is a way to round; `core_for` chooses the fastest that is exact for a grid and a mode.
"""

from presilicon.formats.kernels.grid import BlockGrid, Grid
from presilicon.formats.rounding import Stochastic

NEAREST_EVEN, NEAREST_AWAY, TOWARD_ZERO, UP, DOWN, COUNTER, LFSR = range(7)
_MODES = {
    "nearest-even": NEAREST_EVEN,
    "nearest-away": NEAREST_AWAY,
    "toward-zero": TOWARD_ZERO,
    "up": UP,
    "down": DOWN,
    "counter": COUNTER,
    "lfsr": LFSR,
}
GENERAL, LIFTED, LEVEL, FLAT, SPLIT = range(5)


def mode_number(mode: str | Stochastic) -> int:
    """The kernels' id of a rounding mode."""
    return _MODES[mode.source if isinstance(mode, Stochastic) else mode]


def core_for(grid: Grid, mode: int) -> int:
    """The fastest core that is exact for a grid and a mode."""
    top = max(grid.max_positive, grid.max_negative) >> 23
    random = mode in (COUNTER, LFSR)
    if not (random or mode == NEAREST_EVEN) or grid.mantissa == 0:
        return GENERAL
    if grid.low <= 1:
        return GENERAL if random and grid.mantissa == 23 else FLAT
    level = top < grid.low
    if grid.low < grid.mantissa + 25 or top + 23 - grid.mantissa > 254 or (grid.mantissa == 23 and not level):
        return GENERAL
    if random and grid.mantissa <= 7:
        return SPLIT
    return LEVEL if level else LIFTED


def fast_scales(block: BlockGrid, core: int) -> tuple[int, int]:
    """The first and last scale exponent at which the moved grid still has limits that are normal numbers."""
    grid = block.grid
    top, bottom = (choose(grid.max_positive, grid.max_negative) >> 23 for choose in (max, min))
    first = max((1 if core == GENERAL else grid.mantissa + 25) - grid.low, 1 - bottom)
    reach = max(top, grid.low) if core == LEVEL else top
    return first, min(231 + grid.mantissa - reach, 254 - grid.low, 126 - block.emax)


def is_plain(grid: Grid) -> bool:
    """Whether the limits are the same for both signs and -0 and subnormals exist, as in most floats."""
    sides = (grid.max_positive, grid.over_positive) == (grid.max_negative, grid.over_negative)
    return sides and grid.tiny == 0 and bool(grid.negative_zero)
