"""What every number format has in common."""

from abc import ABC, abstractmethod
from dataclasses import MISSING, fields
from typing import Any, ClassVar

from presilicon.base.errors import FormatError


class Format(ABC):
    """How a number, or a block of numbers, is stored and rounded.

    A format is a value: frozen, hashable, comparable, picklable. `str(fmt)` is its canonical spelling, and
    `parse(str(fmt)) == fmt`. The work is done by functions: `quantize`, `encode`, `decode`.

    >>> from presilicon.formats import Float
    >>> Float(exponent=5, mantissa=2)
    Float(exponent=5, mantissa=2, bias=15, subnormals=True, specials='ieee', overflow='infinity', nan='zero')
    >>> str(Float(5, 2)), str(Float(6, 9)), Float(6, 9).bits_per_element
    ('e5m2', 'float(exponent=6, mantissa=9)', 16.0)
    """

    __slots__ = ()

    kind: ClassVar[str]
    """The word before the parenthesis in the format's spelling."""

    @property
    @abstractmethod
    def bits_per_element(self) -> float:
        """Stored bits per number, with its part of shared exponents and scales."""

    @property
    @abstractmethod
    def significand_bits(self) -> int:
        """Width of the multiplier operand, hidden bit included."""

    @property
    @abstractmethod
    def exponent_bits(self) -> int:
        """Width of each number's own exponent field; 0 where it has none."""

    @property
    def is_blocked(self) -> bool:
        """Whether neighbours share an exponent or a scale, so that it matters which numbers are neighbours."""
        return False

    @property
    def turns(self) -> bool:
        """Whether its blocks lie along one axis; square tiles lie the same way for both."""
        return self.is_blocked

    def along(self, axis: int) -> "Format":
        """The same format with its blocks along another axis; a format without blocks is what it was."""
        return self

    def __str__(self) -> str:
        from presilicon.formats.grammar import name_of

        return name_of(self) or self.spelling()

    def spelling(self) -> str:
        """The format written as a call, with the arguments that are not at their default.

        >>> from presilicon.formats import Float
        >>> Float(5, 2, overflow="saturate").spelling()
        'float(exponent=5, mantissa=2, overflow=saturate)'
        """
        inside = ", ".join(f"{name}={spell_value(value)}" for name, value in self.arguments().items())
        return f"{self.kind}({inside})"

    def arguments(self) -> dict[str, Any]:
        """The arguments that make this format, those at their default left out (also what follows from others)."""
        arguments = {field.name: getattr(self, field.name) for field in _fields(self)}
        for field in _fields(self):
            if field.default is MISSING:
                continue
            shorter = {name: value for name, value in arguments.items() if name != field.name}
            if self._is_spelt_by(shorter):
                arguments = shorter
        return arguments

    def _is_spelt_by(self, arguments: dict[str, Any]) -> bool:
        try:
            return bool(type(self)(**arguments) == self)
        except FormatError:
            return False


def _fields(fmt: Format) -> tuple[Any, ...]:
    return fields(fmt)  # type: ignore[arg-type]


def spell_value(value: object) -> str:
    """An argument as the grammar writes it: `true`, `8`, `saturate`, `[1, 2]`, or a nested format."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return repr(value)
        case tuple():
            return "[" + ", ".join(spell_value(item) for item in value) + "]"
        case _:
            return str(value)


def require(condition: bool, fmt: str, given: str, allowed: str, hint: str = "") -> None:
    """Raise the `FormatError` of a format that cannot exist, unless `condition` holds."""
    if not condition:
        advice = f"; {hint}" if hint else ""
        raise FormatError(f"{fmt}: {given} cannot be; allowed: {allowed}{advice}")


def require_integer(fmt: str, name: str, value: object, low: int, high: int, hint: str = "") -> None:
    """Raise a `FormatError` unless `value` is an integer in [low, high]."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    inside = is_integer and low <= int(str(value)) <= high
    require(inside, fmt, f"{name}={value!r}", f"an integer from {low} to {high}", hint)


def require_word(fmt: str, name: str, value: object, words: tuple[str, ...]) -> None:
    """Raise a `FormatError` unless `value` is one of `words`."""
    from presilicon.base.errors import did_you_mean

    if value not in words:
        raise FormatError(f'{fmt}: {name}="{value}" is unknown: {did_you_mean(str(value), words)}')
