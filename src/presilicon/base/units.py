"""Units: the one place where numbers with a unit are scaled and written for people.

Inside the package every quantity is in its base unit (seconds, joules, bytes, mm2) and its name says so. A `Scale`
turns such a number into the one that people read, and several numbers can share one scale: the two ends of an interval,
the ticks of an axis. Texts are plain ASCII (`us`, `mm2`), fit for any terminal; a page may typeset them.
"""

from collections.abc import Sequence
from math import floor, isfinite, isnan, log10
from typing import NamedTuple

PICO, NANO, MICRO, MILLI = 1e-12, 1e-9, 1e-6, 1e-3
KILO, MEGA, GIGA, TERA = 1e3, 1e6, 1e9, 1e12
KIBI, MEBI, GIBI, TEBI = 1024, 1024**2, 1024**3, 1024**4
MINUTE, HOUR, DAY = 60, 3600, 86400


class Scale(NamedTuple):
    """A unit that people read, and how many base units it holds."""

    factor: float
    unit: str

    def apply(self, value: float) -> float:
        """The value in this unit.

        >>> Scale(1e-3, "ms").apply(0.0087)
        8.7
        """
        return float(f"{value / self.factor:.12g}")

    def format(self, value: float, *, digits: int = 3) -> str:
        """The value in this unit, with the unit.

        >>> Scale(1e-3, "ms").format(0.0087)
        '8.7 ms'
        """
        return f"{format_number(self.apply(value), digits=digits)} {self.unit}".rstrip()


SECONDS: tuple[Scale, ...] = (
    Scale(PICO, "ps"),
    Scale(NANO, "ns"),
    Scale(MICRO, "us"),
    Scale(MILLI, "ms"),
    Scale(1.0, "s"),
    Scale(MINUTE, "min"),
    Scale(HOUR, "h"),
    Scale(DAY, "d"),
)
JOULES: tuple[Scale, ...] = (
    Scale(1e-15, "fJ"),
    Scale(PICO, "pJ"),
    Scale(NANO, "nJ"),
    Scale(MICRO, "uJ"),
    Scale(MILLI, "mJ"),
    Scale(1.0, "J"),
    Scale(KILO, "kJ"),
    Scale(MEGA, "MJ"),
    Scale(GIGA, "GJ"),
)
BYTES: tuple[Scale, ...] = (
    Scale(1, "B"),
    Scale(KIBI, "KiB"),
    Scale(MEBI, "MiB"),
    Scale(GIBI, "GiB"),
    Scale(TEBI, "TiB"),
)
AREAS: tuple[Scale, ...] = (Scale(1e-6, "um2"), Scale(1.0, "mm2"))
COUNTS: tuple[Scale, ...] = (Scale(1, ""), Scale(KILO, "k"), Scale(MEGA, "M"), Scale(GIGA, "G"), Scale(TERA, "T"))


def _largest_below(value: float, scales: Sequence[Scale], *, base: str) -> Scale:
    """The largest scale in which three digits of the value still start at 1 or above; the base unit for zero."""
    size = abs(value)
    if size == 0 or not isfinite(size):
        return next(scale for scale in scales if scale.unit == base)
    fitting = [scale for scale in scales if float(f"{size / scale.factor:.3g}") >= 1]
    return fitting[-1] if fitting else scales[0]


def seconds_scale(value_s: float) -> Scale:
    """The unit in which a duration is best read.

    >>> seconds_scale(0.0087).unit, seconds_scale(90).unit
    ('ms', 'min')
    """
    return _largest_below(value_s, SECONDS, base="s")


def joules_scale(value_j: float) -> Scale:
    """The unit in which an energy is best read."""
    return _largest_below(value_j, JOULES, base="J")


def bytes_scale(value: float) -> Scale:
    """The binary unit in which an amount of memory is best read."""
    return _largest_below(value, BYTES, base="B")


def area_scale(value_mm2: float) -> Scale:
    """The unit in which an area is best read; um2 below a thousandth of a mm2, where mm2 would be all zeros."""
    return AREAS[0] if 0 < abs(value_mm2) < 1e-3 else AREAS[1]


def count_scale(value: float) -> Scale:
    """One up to 9999, then k, M, G, T: small counts are read exactly."""
    return COUNTS[0] if abs(value) < 10_000 else _largest_below(value, COUNTS, base="")


def format_number(value: float, *, digits: int = 3) -> str:
    """A number with some significant digits, no exponent where it can be avoided and no idle zeros.

    Digits before the point are never dropped; NaN and infinity are spelt out.

    >>> format_number(8.70), format_number(21.34), format_number(1234.5), format_number(0.00123)
    ('8.7', '21.3', '1234', '0.00123')
    """
    if isnan(value):
        return "nan"
    if not isfinite(value):
        return "inf" if value > 0 else "-inf"
    if value == 0:
        return "0"
    exponent = floor(log10(abs(float(f"{value:.{digits - 1}e}"))))
    if not -6 <= exponent < 15:
        return f"{value:.{digits}g}"
    text = f"{value:.{max(digits - 1 - exponent, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_seconds(value_s: float, *, digits: int = 3) -> str:
    """A duration.

    >>> format_seconds(0.0087), format_seconds(2.13e-5), format_seconds(5400), format_seconds(0)
    ('8.7 ms', '21.3 us', '1.5 h', '0 s')
    """
    return seconds_scale(value_s).format(value_s, digits=digits)


def format_joules(value_j: float, *, digits: int = 3) -> str:
    """An energy.

    >>> format_joules(0.0019), format_joules(3.7e-12), format_joules(4200)
    ('1.9 mJ', '3.7 pJ', '4.2 kJ')
    """
    return joules_scale(value_j).format(value_j, digits=digits)


def format_bytes(value: float, *, digits: int = 3) -> str:
    """An amount of memory, in binary units.

    >>> format_bytes(512), format_bytes(1536), format_bytes(3 * 1024**2)
    ('512 B', '1.5 KiB', '3 MiB')
    """
    return bytes_scale(value).format(value, digits=digits)


def format_area(value_mm2: float, *, digits: int = 3) -> str:
    """An area of silicon, given in mm2.

    >>> format_area(11.2), format_area(0.00045)
    ('11.2 mm2', '450 um2')
    """
    return area_scale(value_mm2).format(value_mm2, digits=digits)


def format_count(value: float, *, digits: int = 3) -> str:
    """A count: exact up to 9999, then with k, M, G or T.

    >>> format_count(410), format_count(12_345), format_count(8.18e9)
    ('410', '12.3 k', '8.18 G')
    """
    return count_scale(value).format(value, digits=digits)


def format_percent(fraction: float, *, decimals: int = 1) -> str:
    """A fraction as a percentage, without an idle `.0`.

    >>> format_percent(0.974), format_percent(0.97), format_percent(1.0)
    ('97.4%', '97%', '100%')
    """
    text = f"{100 * fraction:.{decimals}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}%"
