"""Measured efficiency: how long kernels take beside their limits, by group and shape.

A group is fitted to layers that were measured on a card. It has a fixed time and a share of the limits, and what
remains (the logarithm of measured over fitted time) is smoothed between shapes by Gaussian bells around the measured
ones; far from all of them, fixed time and share stand alone. Libraries choose kernels by rules of their own, so what a
layer's own time differs from the smooth one is kept too: a layer that was measured has its measured time, and at other
batch sizes what remains of the difference.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Struct

from presilicon.base import LARGEST_DATA, ConfigError, read_file
from presilicon.records import StepChecks
from presilicon.simulation.roofline.features import Features

AboveZero = Annotated[float, Meta(gt=0)]


class KernelGroup(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Kernels of one kind."""

    fixed_us: Annotated[float, Meta(ge=0)]
    """Time of a launch, whatever its work."""
    reached: AboveZero
    """Share of the limit's rate that large kernels reach."""
    error: float = 0.0
    """Mean error of a logarithm whose layer was left out of the fit, those that were set aside included."""
    set_aside: int = 0
    """Layers that were left out of the fit, because their neighbours say nothing about them."""
    scales: tuple[AboveZero, ...] = ()
    """Width of the bells along each axis of the shape; empty where there are none."""
    points: tuple[tuple[float, ...], ...] = ()
    """Measured shapes."""
    weights: tuple[float, ...] = ()
    """Height of the bell around each point."""
    known: dict[str, tuple[tuple[float, float], ...]] = {}
    """Layers that were measured: logarithms of batch sizes, in rising order, and of measured over smoothed time."""

    def __post_init__(self) -> None:
        """Every point must have all axes and a weight, and every known layer a time."""
        if len(self.points) != len(self.weights) or bool(self.points) != bool(self.scales):
            raise ValueError(
                f"{len(self.points)} points, {len(self.weights)} weights and {len(self.scales)} scales do not match"
            )
        if any(len(point) != len(self.scales) for point in self.points):
            raise ValueError(f"every point must have {len(self.scales)} axes, as many as there are scales")
        if not all(self.known.values()):
            raise ValueError("known: a layer must have at least one batch size")
        for layer, pairs in self.known.items():
            if any(after <= before for (before, _), (after, _) in pairwise(pairs)):
                raise ValueError(f'known, "{layer}": batch sizes must rise from one to the next')


class Peaks(Struct, frozen=True, kw_only=True):
    """The limits of kernels on a chip."""

    memory_gb_s: AboveZero
    issue: Annotated[float, Meta(ge=0)]
    """Cores times their clock in GHz; 0 if the clock is not known."""
    tflops: dict[str, AboveZero]


class KernelLoad(NamedTuple):
    """The load of a working kernel, on which its power depends."""

    labels: tuple[str, ...]
    """Its class, number format, operator, pass and layout."""
    flops: float
    """Logarithm of its share of the peak arithmetic."""
    traffic: float
    """Logarithm of its share of the bandwidth."""


class MeasuredPowers(Struct, frozen=True, kw_only=True):
    """How the power of measured kernels differs from that of their class: bells around them."""

    points: tuple[KernelLoad, ...]
    weights: tuple[float, ...]
    lowest: float
    """The least and the greatest logarithm of measured over fitted power, beyond which the sum never goes."""
    highest: float

    def __post_init__(self) -> None:
        """Every kernel must have a weight and all labels."""
        if not self.points or len(self.points) != len(self.weights):
            raise ValueError(f"{len(self.points)} points and {len(self.weights)} weights do not match")
        if any(len(point.labels) != len(_APART) for point in self.points):
            raise ValueError(f"every point must have {len(_APART)} labels")


TABLE_SCHEMA = 2
"""Version of tables: names of groups and axes of shapes."""


class MeasuredLayers(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A card, as its layers were measured."""

    schema: int
    device: str
    source: str
    """How and when it was measured."""
    is_processor: bool = False
    """Whether ops run where they are launched; no host launches them."""
    peaks: Peaks
    """Those of the card."""
    groups: dict[str, KernelGroup]
    powers: MeasuredPowers | None = None
    checks: tuple[StepChecks, ...] = ()
    """Errors of whole steps in a graph, by the least share of known layers, in falling order."""


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


HALF_LIFE = 4.0
"""Doublings of the batch after which a known difference of a layer has halved."""


def remembered(measured: Sequence[tuple[float, float]], scale: float) -> float:
    """A layer's remembered difference at a batch size: between two measured ones on a line, else fading.

    >>> remembered(((5.0, 0.2), (7.0, 0.4)), 6.0)
    0.30000000000000004
    >>> remembered(((5.0, 0.2), (7.0, 0.4)), 7.0 + HALF_LIFE)
    0.2
    """
    for (low, first), (high, second) in pairwise(measured):
        if low <= scale <= high:
            return first + (second - first) * (scale - low) / (high - low)
    end, value = measured[0] if scale < measured[0][0] else measured[-1]
    return value * float(0.5 ** (abs(scale - end) / HALF_LIFE))


_APART = (1.0, 1.0, 0.36, 0.36, 0.36)
"""Half the squared distance between kernels that differ in a label of their `Activity`, for each label."""
_WIDTH = 2.0
"""Width of the bells around measured powers, in doublings of a rate."""


class Activities:
    """Kernels by their activity, to which others are compared."""

    def __init__(self, activities: Sequence[KernelLoad]) -> None:
        from numpy import array

        self._numbers: list[dict[str, int]] = [{} for _ in _APART]
        for activity in activities:
            for numbers, label in zip(self._numbers, activity.labels, strict=True):
                numbers.setdefault(label, len(numbers))
        self._labels, self._rates = self._encode(activities)
        self._apart = array(_APART)

    def likeness(self, others: Sequence[KernelLoad]) -> Any:
        """How alike each of some other kernels is to each of these, from 0 to 1, as a matrix."""
        from numpy import exp

        labels, rates = self._encode(others)
        away = (labels[:, None] != self._labels) @ self._apart
        return exp(-away - ((rates[:, None] - self._rates) ** 2).sum(-1) / (2 * _WIDTH**2))

    def _encode(self, activities: Sequence[KernelLoad]) -> tuple[Any, Any]:
        """Labels as numbers, -1 for unknown ones, and rates."""
        from numpy import array

        labels = [
            [numbers.get(label, -1) for numbers, label in zip(self._numbers, activity.labels, strict=True)]
            for activity in activities
        ]
        return array(labels), array([(activity.flops, activity.traffic) for activity in activities])


class Efficiency:
    """Rates of a card, by features of a kernel."""

    def __init__(self, layers: MeasuredLayers | None = None) -> None:
        self.layers = layers
        self.peaks = layers.peaks if layers else None
        self._groups = layers.groups if layers else {}
        self._powers = layers.powers if layers else None
        self._measured: Activities | None = None
        self._factors: dict[KernelLoad, float] = {}
        self._arrays: dict[str, _Bells] = {}
        self._known: dict[Features, KernelRate | None] = {}

    def rate(self, features: Features) -> KernelRate | None:
        """The rate of a kernel; None if nothing similar was measured."""
        if features not in self._known:
            self._known[features] = self._rate(features)
        return self._known[features]

    def knows(self, features: Features) -> bool:
        """Whether the layer of a kernel was measured itself."""
        return any(features.layer in self._groups[key].known for key in features.keys[:1] if key in self._groups)

    def power_factor(self, activity: KernelLoad) -> float:
        """Power of a working kernel over what its class draws; 1 where no powers were measured."""
        if self._powers is None:
            return 1.0
        if activity not in self._factors:
            self._factors[activity] = self._power_factor(activity, self._powers)
        return self._factors[activity]

    def _power_factor(self, activity: KernelLoad, powers: MeasuredPowers) -> float:
        from numpy import exp

        self._measured = self._measured or Activities(powers.points)
        height = float(self._measured.likeness([activity])[0] @ powers.weights)
        return float(exp(min(max(height, powers.lowest), powers.highest)))

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


def load_efficiency(name: str) -> Efficiency:
    """The efficiency of a card by the name of a shipped table, or by the path of a file.

    Raises:
        ConfigError: there is no such table, or it cannot be read.
    """
    try:
        status = Path(name).stat() if name and not _is_shipped(name) else None
    except (OSError, ValueError):
        status = None
    return _load(name, None if status is None else (status.st_mtime_ns, status.st_size))


def table_content(name: str) -> bytes:
    """The text of a table, by the name of a shipped one or by the path of a file.

    Raises:
        ConfigError: there is no such table, or it cannot be read.
    """
    try:
        return _shipped(name).read_bytes() if _is_shipped(name) else read_file(Path(name), LARGEST_DATA, again=True)
    except ConfigError:
        known = ", ".join(shipped_cards())
        raise ConfigError(
            f'machine.measured: no table "{name}"; shipped: {known}; or give the file of `presilicon characterize-gpu`'
        ) from None


@lru_cache(maxsize=16)
def _load(name: str, _stamp: tuple[int, int] | None) -> Efficiency:
    """A card's efficiency; a file that was written again is read again."""
    if not name:
        return Efficiency()
    content = table_content(name)
    try:
        table = msgspec.json.decode(content, type=MeasuredLayers)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f'machine.measured: "{name}" is no table of measured layers ({error})') from None
    if table.schema != TABLE_SCHEMA:
        raise ConfigError(
            f'machine.measured: "{name}" has schema {table.schema}, and this version reads {TABLE_SCHEMA}: fit its '
            "times again (`presilicon characterize-gpu DESIGN --times times.json --out DIR`)"
        )
    return Efficiency(table)


def _shipped(name: str) -> Traversable:
    return files("presilicon.simulation.roofline") / "cards" / f"{name}.json"


@cache
def _is_shipped(name: str) -> bool:
    return _shipped(name).is_file()


def shipped_cards() -> Sequence[str]:
    """Names of the tables that come with the package."""
    folder = files("presilicon.simulation.roofline") / "cards"
    return sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json"))
