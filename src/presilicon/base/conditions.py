"""Conditions on named numbers, such as `area_mm2 <= 50`."""

import operator
import re
from collections.abc import Iterable
from math import isnan, nan
from typing import NamedTuple

from presilicon.base.errors import ConfigError, unknown

_OPERATORS = {">=": "ge", "<=": "le", "!=": "ne", "==": "eq", ">": "gt", "<": "lt", "=": "eq"}


class Condition(NamedTuple):
    """A name, a comparison and a number."""

    name: str
    comparison: str
    limit: float

    def holds(self, value: float) -> bool:
        """Whether a value satisfies it; NaN, an unknown value, does not."""
        return not isnan(value) and bool(getattr(operator, _OPERATORS[self.comparison])(value, self.limit))

    def __str__(self) -> str:
        return f"{self.name} {self.comparison} {self.limit:g}"


def parse_condition(text: str, names: Iterable[str], where: str) -> Condition:
    """The condition that a user wrote in `where`, on one of `names`.

    Raises:
        ConfigError: it cannot be read, or there is no such name.

    >>> parse_condition("accuracy>=0.9", ["accuracy"], "--where")
    Condition(name='accuracy', comparison='>=', limit=0.9)
    """
    match = re.fullmatch(r"\s*(\w+)\s*([<>=!]=|[<>=])\s*([-+.\w]+)\s*", text)
    try:
        limit = float(match[3]) if match else nan
    except ValueError:
        limit = nan
    if match is None or isnan(limit):
        raise ConfigError(
            f"{where} {text[:80]!r} must be a metric, one of {' '.join(_OPERATORS)} and a number, as in "
            f"'accuracy>=0.9'; metrics: {', '.join(names)}"
        )
    if match[1] not in names:
        raise unknown(f"metric of {where}", match[1], names)
    return Condition(match[1], match[2], limit)
