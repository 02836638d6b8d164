"""Shared by the reproductions of training methods: designs compared over paired seeds, as rows and curves."""

import os
from collections.abc import Callable, Sequence
from math import inf

from msgspec.structs import replace

from presilicon.designs import Design, load_design
from presilicon.records import Comparison, Curve, Event, Interval, Reproduced, Result
from presilicon.study import compare

OnEvent = Callable[[Event], None]
SEEDS = 3
_MISSES = "misses the target"


class Trial:
    """Designs on one workload, over the same seeds."""

    def __init__(self, designs: Sequence[Design], workload: str, on_event: OnEvent | None, seeds: int = SEEDS) -> None:
        jobs = min(os.cpu_count() or 1, 4)
        self.comparison: Comparison = compare(designs, workload, seeds=seeds, jobs=jobs, on_event=on_event)
        self._results = {result.name: result for result in self.comparison.designs}

    def __getitem__(self, name: str) -> Result:
        return self._results[name]

    def gain(self, name: str, over: str, *, energy: bool = False) -> float | None:
        """Median over the seeds of what `over` needs to the target over what the design needs; see `ratio`."""
        ratio = self.ratio(name, over, energy=energy)
        return None if ratio is None else inf if ratio.median is None else ratio.median

    def ratio(self, name: str, over: str, *, energy: bool = False) -> Interval | None:
        """The paired ratio of `over` to the design, in which a seed that one of them misses is infinite.

        None if no seed of either arrived.
        """
        if not any(seed.steps_to_accuracy is not None for one in (name, over) for seed in self[one].seeds):
            return None
        pairs = (way for pair in self.comparison.pairs for way in (pair, pair.swapped))
        pair = next(pair for pair in pairs if (pair.first, pair.second) == (name, over))
        return pair.energy_ratio if energy else pair.time_ratio

    def row(
        self, quantity: str, name: str, over: str, published: float | None = None, *,
        energy: bool = False, note: str = "",
    ) -> Reproduced:  # fmt: skip
        """The gain of a design as a row that names its interval and the seeds that arrived."""
        ratio = self.ratio(name, over, energy=energy)
        notes = [note] if note else []
        if ratio is None:
            notes.append("neither arrives")
        else:
            low, high = ("infinite" if end is None else f"{end:.3g}" for end in (ratio.low, ratio.high))
            notes += [f"{low} to {high}"] if (low, high) != ("0", "infinite") else []
            notes += [f"{over} {_MISSES}"] if ratio.median is None else []
        return Reproduced(
            quantity, "x", published, None if ratio is None else ratio.median,
            note="; ".join([*notes, f"reached: {self.reached(name, over)}"]),
        )  # fmt: skip

    def reached(self, *names: str) -> str:
        """The seeds of each design that came to the target."""
        return ", ".join(f"{name} {self[name].reached}" for name in names)

    def curve(self, name: str, *, over_time: bool = True) -> Curve:
        """Validation accuracy of the first seed, over modelled milliseconds or steps."""
        points = self[name].seeds[0].curve
        x = tuple(1e3 * point.time_s if over_time else float(point.step) for point in points)
        return Curve(name=name, x=x, y=tuple(point.value for point in points))


def named(
    name: str, base: str, settings: Sequence[str] = (), *, numerics: str | None = None, method: str = ""
) -> Design:
    """A design by a name of its own; `method` is a name, or several settings of one, separated by blanks."""
    design = load_design(base, settings, numerics=numerics, methods=method.split())
    return replace(design, name=name)


def gain_of(row: Reproduced) -> float:
    """The gain of a row: infinite where only the other design misses the target, 0 where neither arrives."""
    return row.ours if row.ours is not None else inf if _MISSES in row.note else 0.0


def beats(row: Reproduced) -> bool:
    """Whether a row is a gain."""
    return gain_of(row) > 1
