"""Range rows, which the filter compares elements with."""

import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from msgspec import Struct

from presilicon.base import ConfigError, did_you_mean
from presilicon.designs import Hardware
from presilicon.instrument.model.words import CLASSES, bias_of, infinity_code


class RangeRow(Struct, frozen=True):
    """One row of ranges: boundaries, or sets of classes.

    >>> RangeRow.of_boundaries([-1, 0, "inf"]).boundaries
    (-1.0, 0.0, inf)
    >>> RangeRow.of_classes(["nan", ["+inf", "-inf"]]).classes
    (('nan',), ('+inf', '-inf'))
    """

    boundaries: tuple[float, ...] = ()
    """M + 1 numbers that never decrease: x is in range m when b[m] < x <= b[m+1]."""
    classes: tuple[tuple[str, ...], ...] | None = None
    """The classes of each range; None for a row of boundaries. Ranges that are left out are empty."""

    @staticmethod
    def of_boundaries(boundaries: Sequence[Any]) -> "RangeRow":
        """A row of numbers; "-inf" and "inf" may be written out.

        Raises:
            ConfigError: something is not a number.
        """
        return RangeRow(boundaries=tuple(_number(value) for value in _listed(boundaries, "boundaries")))

    @staticmethod
    def of_classes(ranges: Sequence[str | Sequence[str]]) -> "RangeRow":
        """A row of classes, one or several names for each range.

        Raises:
            ConfigError: a class is unknown.
        """
        listed = _listed(ranges, "classes")
        sets = tuple((item,) if isinstance(item, str) else tuple(_listed(item, "a range's classes")) for item in listed)
        for name in (name for names in sets for name in names):
            if name not in CLASSES:
                raise ConfigError(f"unknown class {name!r}: {did_you_mean(str(name), CLASSES)}")
        return RangeRow(classes=sets)

    def check(self, hardware: Hardware) -> None:
        """Raise unless the row fits a hardware.

        Raises:
            ConfigError: the number of boundaries or classes is wrong, boundaries decrease or are NaN, or fixed point
                does not have a class.
        """
        if self.classes is not None:
            if len(self.classes) > hardware.ranges:
                raise ConfigError(f"{len(self.classes)} sets of classes, but there are {hardware.ranges} ranges")
            known = CLASSES if hardware.is_float else ("zero", "normal")
            for name in (name for names in self.classes for name in names):
                if name not in known:
                    raise ConfigError(f"{hardware.element} has no {name}. Allowed: {', '.join(known)}")
            return
        wanted = hardware.ranges + 1
        if len(self.boundaries) != wanted:
            raise ConfigError(f"{len(self.boundaries)} boundaries, expected {wanted}: one more than the ranges")
        for index, value in enumerate(self.boundaries):
            if math.isnan(value):
                raise ConfigError(f"boundary {index + 1} is NaN, expected a number, -inf or inf")
            if index and value < self.boundaries[index - 1]:
                previous = self.boundaries[index - 1]
                raise ConfigError(f"boundary {index + 1} is {value:g}, below {previous:g}: they must not decrease")

    def keys(self, hardware: Hardware) -> tuple[int, ...]:
        """The M + 1 numbers that the chip stores: keys of the boundaries, or class masks and a 0."""
        if self.classes is None:
            return tuple(boundary_key(hardware, value) for value in self.boundaries)
        masks = [sum({1 << CLASSES.index(name) for name in names}) for names in self.classes]
        return tuple(masks + [0] * (hardware.ranges + 1 - len(masks)))


def boundary_key(hardware: Hardware, value: float) -> int:
    """The largest key whose value is not above `value`, so that storing it changes no comparison.

    >>> from presilicon.formats import parse
    >>> byte = Hardware(element=parse("int8"))
    >>> [boundary_key(byte, value) for value in (float("-inf"), -0.5, 3.0, 3.9, 1e9)]
    [-129, -1, 3, 3, 127]
    """
    if not hardware.is_float:
        largest = (1 << hardware.word_bits - 1) - 1
        if math.isinf(value):
            return largest if value > 0 else -largest - 2
        return min(max(math.floor(Fraction(value) * (1 << hardware.fraction_bits)), -largest - 2), largest)
    infinity = infinity_code(hardware)
    if math.isinf(value):
        return infinity if value > 0 else -infinity
    if value >= 0:
        return min(_code(hardware, Fraction(value), up=False), infinity - 1)
    return -min(_code(hardware, Fraction(-value), up=True), infinity)


def _code(hardware: Hardware, value: Fraction, up: bool) -> int:
    """The float code next to a value of at least 0, from above or from below, however large the value."""
    if value == 0:
        return 0
    lowest = 1 - bias_of(hardware)
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    exponent = max(exponent - (value < Fraction(2) ** exponent), lowest)
    significand = value / Fraction(2) ** (exponent - hardware.word_mantissa)
    whole = math.ceil(significand) if up else math.floor(significand)
    return whole + (exponent - lowest << hardware.word_mantissa)


def _listed(values: Any, what: str) -> Sequence[Any]:
    if isinstance(values, str) or not hasattr(values, "__len__") or not hasattr(values, "__getitem__"):
        raise ConfigError(f"{what} are {values!r}, expected a list")
    return values  # type: ignore[no-any-return]


def _number(value: Any) -> float:
    if isinstance(value, str):
        if value in ("-inf", "inf", "+inf"):
            return float(value)
        raise ConfigError(f'a boundary is "{value}", expected a number, "-inf" or "inf"')
    if isinstance(value, bool):
        raise ConfigError(f"a boundary is {value}, expected a number")
    try:
        return float(value)
    except OverflowError:
        return sys.float_info.max if value > 0 else -sys.float_info.max
    except (TypeError, ValueError):
        raise ConfigError(f'a boundary is {value!r}, expected a number, "-inf" or "inf"') from None
