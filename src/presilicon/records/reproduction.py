"""A published result next to ours, with curves."""

from msgspec import Struct

from presilicon.records.sweep import SweepResult


class Curve(Struct, frozen=True, kw_only=True):
    """One line of a panel."""

    name: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    """None where there was no finite number: the line has a gap."""


class Panel(Struct, frozen=True, kw_only=True):
    """Curves in one frame."""

    title: str
    curves: tuple[Curve, ...]
    y_label: str = ""
    x_label: str = "training step"
    percent: bool = False
    """Whether y is a share, shown in percent from 0 to 100."""
    log: bool = False
    """Whether y is drawn by its logarithm; zeros are gaps then."""
    limits: tuple[float, float] | None = None
    """Range of y, for panels that are compared with each other."""
    marks: tuple[tuple[float, str], ...] = ()
    """Steps at which something happened, and what."""
    note: str = ""
    """Caption."""


class Reproduced(Struct, frozen=True):
    """One published figure, if there is one, next to ours."""

    quantity: str
    """Subject of the figure, such as `ResNet-50 on a P100`."""
    unit: str = ""
    """`h`, `GFLOPS/W`, `mm2`; empty for a plain number."""
    published: float | None = None
    """None where the source gives no figure, or only a bound that `note` states."""
    ours: float | None = None
    """None where we cannot compute it; `note` says why."""
    note: str = ""

    @property
    def difference(self) -> float | None:
        """Ours against the published figure, as a fraction of it: 0.1 is ten percent more."""
        if self.published is None or self.ours is None or self.published == 0:
            return None
        return self.ours / self.published - 1


class Reproduction(Struct, frozen=True, kw_only=True):
    """The figures of one publication, with the assumptions behind ours."""

    name: str
    title: str
    source: str
    """Source of the published figures."""
    rows: tuple[Reproduced, ...]
    assumptions: tuple[str, ...]
    """Assumptions behind our figures, one sentence each."""
    verdict: str = ""
    """Which figures reproduce and which do not, and the assumption that would make them."""
    panels: tuple[Panel, ...] = ()
    """Curves that tell the story, where the publication has curves."""
    study: SweepResult | None = None
    """The study that it ran, whose front is drawn."""
