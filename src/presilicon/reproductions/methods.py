"""Shared by the reproductions of training methods: designs compared over paired seeds, as rows and curves."""

import os
from collections.abc import Callable, Sequence
from statistics import median

from msgspec.structs import replace

from presilicon.designs import Design, load_design
from presilicon.records import Comparison, Curve, Event, Result
from presilicon.study import compare

OnEvent = Callable[[Event], None]
SEEDS = 3


class Trial:
    """Designs on one workload, over the same seeds."""

    def __init__(self, designs: Sequence[Design], workload: str, on_event: OnEvent | None, seeds: int = SEEDS) -> None:
        jobs = min(os.cpu_count() or 1, 4)
        self.comparison: Comparison = compare(designs, workload, seeds=seeds, jobs=jobs, on_event=on_event)
        self._results = {result.name: result for result in self.comparison.designs}

    def __getitem__(self, name: str) -> Result:
        return self._results[name]

    def gain(self, name: str, over: str, *, energy: bool = False) -> float | None:
        """Median over the seeds of what `over` needs to the target over what the design needs; None if none arrived."""
        field = "energy_to_accuracy_j" if energy else "time_to_accuracy_s"
        pairs = zip(self[name].seeds, self[over].seeds, strict=True)
        ratios = [
            getattr(other, field) / getattr(own, field)
            for own, other in pairs
            if getattr(own, field) and getattr(other, field)
        ]
        return median(ratios) if ratios else None

    def reached(self, *names: str) -> str:
        """The seeds of each design that came to the target."""
        return ", ".join(f"{name} {self[name].reached}" for name in names)

    def curve(self, name: str, *, over_time: bool = True) -> Curve:
        """Validation accuracy of the first seed, over modelled milliseconds or steps."""
        points = self[name].seeds[0].curve
        x = tuple(1e3 * point.time_s if over_time else float(point.step) for point in points)
        return Curve(name=name, x=x, y=tuple(point.accuracy for point in points))


def named(
    name: str, base: str, settings: Sequence[str] = (), *, numerics: str | None = None, method: str = ""
) -> Design:
    """A design by a name of its own; `method` is a name, or several settings of one, separated by blanks."""
    design = load_design(base, settings, numerics=numerics, methods=method.split())
    return replace(design, name=name)
