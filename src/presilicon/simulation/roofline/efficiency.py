"""Measured efficiency: how long kernels take beside their limits, by group and shape.

A group is fitted to layers that were measured on a card. It has a fixed time and a share of the limits, and what
remains (the logarithm of measured over fitted time) is smoothed between shapes by Gaussian bells around the measured
ones; far from all of them, fixed time and share stand alone. Libraries choose kernels by rules of their own, so what a
layer's own time differs from the smooth one is kept too: a layer that was measured has its measured time, and at other
batch sizes what remains of the difference.
"""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from presilicon.base import ConfigError
from presilicon.simulation.roofline.features import Features


class KernelGroup(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Kernels of one kind."""

    fixed_us: float
    """Time of a launch, whatever its work."""
    reached: float
    """Share of the limit's rate that large kernels reach."""
    error: float = 0.0
    """Mean error of a logarithm whose layer was left out of the fit."""
    scales: tuple[float, ...] = ()
    """Width of the bells along each axis of the shape; empty where there are none."""
    points: tuple[tuple[float, ...], ...] = ()
    """Measured shapes."""
    weights: tuple[float, ...] = ()
    """Height of the bell around each point."""
    known: dict[str, tuple[tuple[float, float], ...]] = {}
    """Layers that were measured: logarithms of batch sizes, in rising order, and of measured over smoothed time."""


class Peaks(Struct, frozen=True, kw_only=True):
    """What limits kernels on a chip."""

    memory_gb_s: float
    issue: float
    """Cores times their clock in GHz; 0 if the clock is not known."""
    tflops: dict[str, float]


class Activity(NamedTuple):
    """What the power of a working kernel depends on."""

    words: tuple[str, ...]
    """Its class, number format, operator, pass and layout."""
    flops: float
    """Logarithm of its share of the peak arithmetic."""
    traffic: float
    """Logarithm of its share of the bandwidth."""


class MeasuredPowers(Struct, frozen=True, kw_only=True):
    """Kernels whose power was measured, where it differs from that of their class: points of a sum of bells."""

    points: tuple[Activity, ...]
    weights: tuple[float, ...]
    lowest: float
    """The least and the greatest logarithm of measured over fitted power, beyond which the sum never goes."""
    highest: float


SCHEMA = 2
"""Version of tables: names of groups and axes of shapes."""


class MeasuredLayers(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A card, as its layers were measured."""

    schema: int
    device: str
    source: str
    """How and when it was measured."""
    peaks: Peaks
    """Those of the card."""
    groups: dict[str, KernelGroup]
    powers: MeasuredPowers | None = None


TRANSFER = 0.75
"""Exponent with which kernels that do not reach their limit on one chip follow the issue rate of another one rather
than its limit; chosen on the published speeds that `presilicon reproduce mlperf` calls fitted."""
REACHABLE = 0.9
"""Share of a limit that no transfer to another chip exceeds."""


class KernelRate(NamedTuple):
    """Efficiency of one kernel."""

    fixed_us: float
    stretch: float
    """Time over the time of the limit."""


class _Bells:
    """A sum of bells. Between and beyond its points it stays in the range that it has at them."""

    def __init__(self, points: Any, weights: Any) -> None:
        self._points, self._weights = points, weights
        at_points = [self._sum(point) for point in points]
        self._range = min(0.0, *at_points), max(0.0, *at_points)

    def height(self, point: Any) -> float:
        """Its value at a point."""
        return min(max(self._sum(point), self._range[0]), self._range[1])

    def _sum(self, point: Any) -> float:
        from numpy import exp

        return float(exp(-((self._points - point) ** 2).sum(-1) / 2) @ self._weights)


FADES = 4.0
"""Doublings of the batch after which a known difference of a layer has halved."""


def remembered(measured: Sequence[tuple[float, float]], scale: float) -> float:
    """What is known of a layer's difference at a batch size: between two measured ones on a line, else fading.

    >>> remembered(((5.0, 0.2), (7.0, 0.4)), 6.0)
    0.30000000000000004
    >>> remembered(((5.0, 0.2), (7.0, 0.4)), 7.0 + FADES)
    0.2
    """
    for (low, first), (high, second) in pairwise(measured):
        if low <= scale <= high:
            return first + (second - first) * (scale - low) / (high - low)
    end, value = measured[0] if scale < measured[0][0] else measured[-1]
    return value * float(0.5 ** (abs(scale - end) / FADES))


_APART = (1.0, 1.0, 0.36, 0.36, 0.36)
"""How far apart kernels are that differ in a word of their `Activity`, as half a square."""
_RATES = 2.0
"""Doublings of a rate that are as far as one unit."""


def likeness(some: Sequence[Activity], others: Sequence[Activity]) -> Any:
    """How alike kernels are in their activity, from 0 to 1, as a matrix."""
    from numpy import array, exp

    away: Any = 0.0
    for place, apart in enumerate(_APART):
        numbers: dict[str, int] = {}
        first, second = (
            array([numbers.setdefault(activity.words[place], len(numbers)) for activity in part])
            for part in (some, others)
        )
        away = away + apart * (first[:, None] != second)
    for rates in (
        [array([activity.flops for activity in part]) for part in (some, others)],
        [array([activity.traffic for activity in part]) for part in (some, others)],
    ):
        away = away + (rates[0][:, None] - rates[1]) ** 2 / (2 * _RATES**2)
    return exp(-away)


class _PowerBells:
    """The sum of bells around measured powers, with words as numbers."""

    def __init__(self, powers: MeasuredPowers) -> None:
        from numpy import array

        self._numbers: list[dict[str, int]] = [{} for _ in _APART]
        self._codes = array([
            [numbers.setdefault(word, len(numbers)) for numbers, word in zip(self._numbers, point.words, strict=True)]
            for point in powers.points
        ])  # fmt: skip
        self._rates = array([(point.flops, point.traffic) for point in powers.points])
        self._weights, self._range = array(powers.weights), (powers.lowest, powers.highest)

    def factor(self, activity: Activity) -> float:
        """Measured over fitted power of kernels that are like one."""
        from numpy import array, exp

        codes = [numbers.get(word, -1) for numbers, word in zip(self._numbers, activity.words, strict=True)]
        away = (self._codes != codes) @ array(_APART)
        away += ((self._rates - (activity.flops, activity.traffic)) ** 2).sum(-1) / (2 * _RATES**2)
        height = float(exp(-away) @ self._weights)
        return float(exp(min(max(height, self._range[0]), self._range[1])))


class Efficiency:
    """Rates of a card, by features of a kernel."""

    def __init__(self, layers: MeasuredLayers | None = None) -> None:
        self.peaks = layers.peaks if layers else None
        self._groups = layers.groups if layers else {}
        self._powers = layers.powers if layers else None
        self._power_bells: _PowerBells | None = None
        self._factors: dict[Activity, float] = {}
        self._arrays: dict[str, _Bells] = {}
        self._known: dict[Features, KernelRate | None] = {}

    def rate(self, features: Features) -> KernelRate | None:
        """The rate of a kernel; None if nothing similar was measured."""
        if features not in self._known:
            self._known[features] = self._rate(features)
        return self._known[features]

    def power_factor(self, activity: Activity) -> float:
        """Power of a working kernel over what its class draws; 1 where no powers were measured."""
        if self._powers is None:
            return 1.0
        if activity not in self._factors:
            self._power_bells = self._power_bells or _PowerBells(self._powers)  # needs numpy
            self._factors[activity] = self._power_bells.factor(activity)
        return self._factors[activity]

    def transferred(self, stretch: float, chip: Peaks, unit: str) -> float:
        """The stretch of a kernel on another chip; `unit` is the matrix unit whose arithmetic limits it, or empty.

        A kernel far from its limit waits for something else, such as the issue of instructions: where another chip has
        less of the limit per issued instruction, the kernel comes closer to it.
        """
        card = self.peaks
        if card is None or not (card.issue and chip.issue) or (unit and unit not in card.tflops):
            return stretch
        limit = chip.tflops[unit] / card.tflops[unit] if unit else chip.memory_gb_s / card.memory_gb_s
        ratio = limit * card.issue / chip.issue
        return max(min(stretch, 1 / REACHABLE), stretch * float(ratio**TRANSFER))

    def _rate(self, features: Features) -> KernelRate | None:
        from numpy import array, exp

        key = next((key for key in features.keys if key in self._groups), None)
        if key is None:
            return None
        group, height = self._groups[key], 0.0
        if len(group.scales) == len(features.shape):  # bells of a fallback may stand on other axes
            if key not in self._arrays:
                self._arrays[key] = _Bells(array(group.points) / array(group.scales), array(group.weights))
            height = self._arrays[key].height(array(features.shape) / array(group.scales))
        if features.layer in group.known:
            height += remembered(group.known[features.layer], features.scale)
        factor = float(exp(height))
        return KernelRate(group.fixed_us * factor, factor / group.reached)


@cache
def load_efficiency(name: str) -> Efficiency:
    """The efficiency of a card by the name of a shipped table, or by the path of a file.

    Raises:
        ConfigError: there is no such table, or it cannot be read.
    """
    if not name:
        return Efficiency()
    shipped = files("presilicon.simulation.roofline") / "cards" / f"{name}.json"
    path = shipped if shipped.is_file() else Path(name)
    try:
        table = msgspec.json.decode(path.read_bytes(), type=MeasuredLayers)
    except OSError:
        known = ", ".join(shipped_cards())
        raise ConfigError(
            f'machine.measured: no table "{name}"; shipped: {known}; or give the file of `presilicon characterize-gpu`'
        ) from None
    except msgspec.MsgspecError as error:
        raise ConfigError(f'machine.measured: "{name}" is no table of measured layers ({error})') from None
    if table.schema != SCHEMA:
        raise ConfigError(
            f'machine.measured: "{name}" has schema {table.schema}, and this version reads {SCHEMA}: fit its times '
            "again (`presilicon characterize-gpu DESIGN --times times.json --out DIR`)"
        )
    return Efficiency(table)


def shipped_cards() -> Sequence[str]:
    """Names of the tables that come with the package."""
    folder = files("presilicon.simulation.roofline") / "cards"
    return sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json"))
