"""Formats given by a table of their values."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from presilicon.formats.format import Format, require, require_word
from presilicon.formats.kernels.reference import float32

Overflow = Literal["infinity", "saturate"]

LARGEST = 3.4028234663852886e38
"""The largest float32 number."""


@dataclass(frozen=True, slots=True)
class Table(Format):
    """Any list of representable values; the code of a value is its index in ascending order.

    Values are taken as float32. Nearest rounding is to the nearest value, ties to the even code. NaN becomes the value
    nearest to 0, since a table has no code for it; `overflow` says what infinities become.

    >>> Table((0.0, 1.0, -1.0, 4.0)).values
    (-1.0, 0.0, 1.0, 4.0)
    >>> str(Table((0.0, 1.0, 2.0, 4.0, float("inf"))))
    'table(values=[0.0, 1.0, 2.0, 4.0, inf])'
    """

    kind: ClassVar[str] = "table"

    values: tuple[float, ...]
    """Finite numbers, with `inf` and `-inf` for the ends that have an infinity."""
    overflow: Overflow | None = None
    """What numbers that round beyond the largest and the smallest finite value become, infinities included: `infinity`
    where `values` has one at that end, or `saturate`. None: `infinity` if there is one. Nearest rounding overflows from
    half way to the value that would come next: 12 after 1, 2, 4, 8."""

    def __post_init__(self) -> None:
        numbers = isinstance(self.values, tuple | list) and all(
            isinstance(v, int | float) and not isinstance(v, bool) and (abs(v) < 2.0**128 or math.isinf(v))
            for v in self.values
        )
        rule = f"values must be a list of float32 numbers, as in table(values=[-1, 0, 1, inf]), not {self.values!r}"
        require(numbers, "table", rule)
        ordered = tuple(sorted({_saturated(v) + 0.0 for v in self.values}))
        finite = sum(map(math.isfinite, ordered))
        require(
            2 <= finite <= len(ordered) <= 1 << 16,
            "table",
            f"values must be 2 to 65536 different numbers, not {finite}",
        )
        object.__setattr__(self, "values", ordered)
        if self.overflow is None:
            object.__setattr__(self, "overflow", "infinity" if finite < len(ordered) else "saturate")
        require_word("table", "overflow", self.overflow, ("infinity", "saturate"))
        has_infinity = self.overflow == "saturate" or finite < len(ordered)
        require(has_infinity, "table", "overflow=infinity needs inf among the values, as in table(values=[0, 1, inf])")

    @property
    def bits(self) -> int:
        """Enough to number the values."""
        return max(1, math.ceil(math.log2(len(self.values))))

    @property
    def saturates(self) -> bool:
        """As `overflow` says."""
        return self.overflow == "saturate"

    def code_values(self) -> tuple[float, ...]:
        """The values themselves."""
        return self.values


def _saturated(value: float) -> float:
    return value if math.isinf(value) else min(max(float32(value), -LARGEST), LARGEST)
