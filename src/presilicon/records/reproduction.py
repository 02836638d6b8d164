"""A published result beside ours."""

from msgspec import Struct

from presilicon.records.panel import Panel


class Reproduced(Struct, frozen=True, kw_only=True):
    """One published figure, or none, and what we get for it."""

    quantity: str
    """What it is of, as in `ResNet-50 on a P100`."""
    unit: str
    """`h`, `GFLOPS/W`, `mm2`; empty for a plain number."""
    published: float | None
    """None where the source gives no figure, or only a bound that `note` states."""
    ours: float | None
    """None where we cannot compute it; `note` says why."""
    note: str = ""

    @property
    def difference(self) -> float | None:
        """Ours against the published figure, as a fraction of it: 0.1 is ten percent more."""
        if self.published is None or self.ours is None or self.published == 0:
            return None
        return self.ours / self.published - 1


class Reproduction(Struct, frozen=True, kw_only=True):
    """The figures of one publication, with what was assumed to compute ours."""

    name: str
    title: str
    source: str
    """Where the published figures come from."""
    rows: tuple[Reproduced, ...]
    assumptions: tuple[str, ...]
    """What ours rest on, one sentence each."""
    verdict: str = ""
    """What reproduces and what does not, and the assumption that would make it."""
    panels: tuple[Panel, ...] = ()
    """Curves that tell the story, where the publication has curves."""
