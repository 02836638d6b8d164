"""A figure of the instrument that is worth a curve."""

from msgspec import Struct


class ReadingFigure(Struct, frozen=True, omit_defaults=True):
    """One of an aggregation's results, and how it is drawn. Events carry it, so that old runs show what they showed."""

    name: str
    """Key in a reading's values."""
    title: str = ""
    """Heading of its panel; empty: the name."""
    percent: bool = False
    """Whether it is a share, shown in percent."""
    panel: str = ""
    """Figures of a tap with the same panel are drawn in one frame, such as percentiles; empty: a frame per figure, with
    the curves of all taps."""
