"""Formats given by a table of their values."""

import math
from dataclasses import dataclass
from typing import ClassVar

from presilicon.formats.format import Format, require
from presilicon.formats.kernels.reference import float32

LARGEST = 3.4028234663852886e38
"""The largest float32 number."""


@dataclass(frozen=True, slots=True)
class Table(Format):
    """Any list of representable values; the code of a value is its index in ascending order.

    Values are taken as float32. Nearest rounding is to the nearest value, ties to the even code; numbers outside
    saturate; NaN becomes the value nearest to 0.

    >>> Table((0.0, 1.0, -1.0, 4.0)).values
    (-1.0, 0.0, 1.0, 4.0)
    """

    kind: ClassVar[str] = "table"

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        numbers = isinstance(self.values, tuple | list) and all(
            isinstance(v, int | float) and not isinstance(v, bool) and abs(v) < 2.0**128 for v in self.values
        )
        require(numbers, "table", f"values must be a list of finite float32 numbers, not {self.values!r}")
        ordered = tuple(sorted({_saturated(v) + 0.0 for v in self.values}))
        rule = f"values must be 2 to 65536 different numbers, not {len(ordered)}"
        require(2 <= len(ordered) <= 1 << 16, "table", rule)
        object.__setattr__(self, "values", ordered)

    @property
    def bits(self) -> int:
        """Enough to number the values."""
        return max(1, math.ceil(math.log2(len(self.values))))

    def code_values(self) -> tuple[float, ...]:
        """The values themselves."""
        return self.values


def _saturated(value: float) -> float:
    return min(max(float32(value), -LARGEST), LARGEST)
