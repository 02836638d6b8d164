"""Die area of a design."""

from msgspec import Struct


class Area(Struct, frozen=True, kw_only=True):
    """The area of a design by its parts, or why it is not known."""

    parts_mm2: dict[str, float]
    """Square millimetres by part; empty where the area is not known."""
    how: str
    """Origin of the parts, or the reason why there are none."""

    @property
    def mm2(self) -> float | None:
        """The whole; None where it is not known."""
        return sum(self.parts_mm2.values()) if self.parts_mm2 else None
