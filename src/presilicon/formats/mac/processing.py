"""Processing units: vector multiply-adds that a user defines, as the MAC units of products."""

import keyword
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from presilicon.base import FormatError, did_you_mean
from presilicon.formats.families.user import UserFormat, argument_count
from presilicon.formats.format import require, require_integer, require_word

UnitOrder = Literal["tree", "sequential", "lanes"]
MOST_LANES = 256


class VectorUnit:
    """The type of a unit in a MAC unit; files give its name."""

    __slots__ = ()

    if TYPE_CHECKING:
        name: str
        format: UserFormat
        lanes: int
        mad: Callable[..., Any] | None
        order: UnitOrder
        depth: int
        interval: int
        energy_pj: float | None
        area_um2: float | None

        @property
        def has_state(self) -> bool:
            """Whether `mad` takes and returns a lane's state."""

        def describe(self) -> str:
            """Name, lanes, order and pipeline."""


@dataclass(frozen=True, slots=True)
class ProcessingUnit(VectorUnit):
    """A unit that multiplies and adds several pairs of codes at once.

    Either its `order` says how the format's own functions are arranged over the lanes, or `mad` is the whole unit:
    `mad(a, b, c)` takes `lanes` codes of each operand and the code of the running sum and returns that of the next sum.
    A `mad(a, b)` returns a code per lane, and the format's `add` adds these up in the `order`, tree or sequential, and
    to the running sum. Lanes beyond the end of the reduction receive the code of 0. `register_unit` makes the name
    known to design files, where a product has the unit as `mac.unit`.

    >>> def as_float(code):
    ...     return float(code)
    >>> def mad(a, b, c):
    ...     return min(c + a[0] * b[0] + a[1] * b[1], 255)
    >>> pair = ProcessingUnit("pair", UserFormat("byte", (("m", 8),), as_float), lanes=2, mad=mad)
    >>> str(pair), pair.describe()
    ('pair', 'pair (2 lanes of byte, own mad)')
    """

    name: str
    format: UserFormat
    lanes: int = 1
    mad: Callable[..., Any] | None = None
    order: UnitOrder = "tree"
    """`tree`: products by `mul`, added in neighbouring pairs, level by level; the tree's sum is added to the running
    sum. `sequential`: the lanes are a chain of `mad`, or `mul` and `add`, that starts at 0; its end is added to the
    running sum. `lanes`: each lane has a running sum of its own, and these are added as a tree in the end."""
    depth: int = 1
    """Pipeline stages: cycles from the operands to the sum."""
    interval: int = 1
    """Cycles between the starts of two operations."""
    energy_pj: float | None = None
    """Energy of one operation on all lanes; None: from the technology table, as for as many MAC units."""
    area_um2: float | None = None
    """Area of the unit; None: from the technology table."""

    def __post_init__(self) -> None:
        label = f'processing unit "{self.name}"'
        usable = isinstance(self.name, str) and self.name.isidentifier() and not keyword.iskeyword(self.name)
        require(usable, label, f"name must be a word such as pairs16, not {self.name!r}")
        require(isinstance(self.format, UserFormat), label, f"format must be a UserFormat, not {self.format!r}")
        require_integer(label, "lanes", self.lanes, 1, MOST_LANES)
        require_integer(label, "depth", self.depth, 1, 1024)
        require_integer(label, "interval", self.interval, 1, 1024)
        require_word(label, "order", self.order, ("tree", "sequential", "lanes"))
        for name in ("energy_pj", "area_um2"):
            figure = getattr(self, name)
            is_number = isinstance(figure, int | float) and not isinstance(figure, bool) and figure >= 0
            require(figure is None or is_number, label, f"{name} must be a number of at least 0, not {figure!r}")
        require(self.mad is None or callable(self.mad), label, f"mad must be a function, not {self.mad!r}")
        count = None if self.mad is None else argument_count(self.mad)
        allowed = (2, 3, 4) if self.format.state is not None else (2, 3)
        needed = "the lanes' codes a and b, or these and the running sum c: 2 or 3 arguments"
        require(count is None or count in allowed, label, f"mad must take {needed}, not {count}")
        is_split = count == 2 and self.order == "lanes"
        require(not is_split, label, 'order must be "tree" or "sequential" with a mad of two arguments')

    @property
    def has_state(self) -> bool:
        """Whether `mad` takes and returns a lane's state."""
        return self.mad is not None and argument_count(self.mad) == 4

    def __str__(self) -> str:
        return self.name  # as files spell it

    def describe(self) -> str:
        """Name, lanes, order and pipeline."""
        how = "own mad" if self.mad is not None else self.order
        details = [f"{self.lanes} lanes of {self.format}", how]
        details += [f"depth {self.depth}"] * (self.depth != 1) + [f"interval {self.interval}"] * (self.interval != 1)
        return f"{self.name} ({', '.join(details)})"


NAMED_UNITS: dict[str, ProcessingUnit] = {}
"""The units that design files can name."""


def register_unit(unit: ProcessingUnit) -> ProcessingUnit:
    """Make a unit known by its name; the unit itself is returned.

    Raises `FormatError` if the name belongs to another unit.
    """
    if NAMED_UNITS.setdefault(unit.name, unit) != unit:
        raise FormatError(f'the name "{unit.name}" belongs to another processing unit; choose another name')
    return unit


def parse_unit(name: object) -> ProcessingUnit:
    """The registered unit of a name."""
    if not isinstance(name, str) or name not in NAMED_UNITS:
        known = did_you_mean(str(name), tuple(NAMED_UNITS)) if NAMED_UNITS else "none is registered"
        raise FormatError(f'processing unit "{name}" is unknown: {known}; register_unit(ProcessingUnit(...)) adds one')
    return NAMED_UNITS[name]
