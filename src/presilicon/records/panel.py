"""Curves over training steps, as a report draws them."""

from msgspec import Struct


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
