"""The base class of number formats."""

from abc import ABC
from collections.abc import Sequence
from dataclasses import MISSING, fields
from functools import lru_cache
from math import frexp, isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Self

from presilicon.base import FormatError, did_you_mean
from presilicon.formats.kernels.reference import float32, round_listed_value

if TYPE_CHECKING:
    from torch import Tensor

    from presilicon.formats.codes import BlockCodes
    from presilicon.formats.families.user import UserFormat
    from presilicon.formats.kernels.grid import Grid
    from presilicon.formats.kernels.value_lists import ValueList
    from presilicon.formats.rounding import Key, Mode

MOST_LISTED_BITS = 16
"""Width up to which all values of a format are listed."""


class Format(ABC):
    """How a number, or a block of numbers, is stored and rounded.

    A format is a value: frozen, hashable, comparable, picklable. `str(fmt)` is its canonical spelling, and
    `parse(str(fmt)) == fmt`. Use `quantize`, `encode`, `decode` and `describe` to apply it.

    A family of formats is a subclass: a frozen dataclass whose fields are the arguments in the spelling. A family needs
    `kind`, `bits` and `code_values`; all other methods have defaults that follow from these. Families whose values have
    more structure override what they can do better. Installed packages add families as entry points of the group
    `presilicon.formats`, under their `kind`.

    >>> from presilicon.formats import Float
    >>> Float(exponent=5, mantissa=2)
    Float(exponent=5, mantissa=2, bias=15, subnormals=True, specials='ieee', overflow='infinity', nan='zero')
    >>> str(Float(5, 2)), str(Float(6, 9)), Float(6, 9).bits_per_element
    ('e5m2', 'float(exponent=6, mantissa=9)', 16.0)
    """

    __slots__ = ()

    kind: ClassVar[str]
    """The word before the parenthesis in the format's spelling."""
    is_float: ClassVar[bool] = False
    """Whether this is a floating-point format with a sign, an exponent and a mantissa field."""
    is_blocked: ClassVar[bool] = False
    """Whether neighbours share an exponent or a scale, so that results depend on the neighbours."""
    has_exact_steps: ClassVar[bool] = True
    """Whether rounding up or down from just beside a value gives its neighbour."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """The base has no values."""
        if cls is Format:
            raise FormatError('Format is the base of number formats: make one with presilicon.parse("e4m3")')
        return super().__new__(cls)

    if TYPE_CHECKING:  # a real property would become the default value of a dataclass field with its name

        @property
        def bits(self) -> int:
            """Width of the code of one number: a field or a property of each family."""

    @property
    def bits_per_element(self) -> float:
        """Stored bits per number, including its share of a common exponent or scale."""
        return float(self.bits)

    @property
    def significand_bits(self) -> int:
        """Width of a multiplier's operand, hidden bit included; by default the longest significand of a value."""
        return max(_significant_bits(value) for value in _finite(self))

    @property
    def value_bits(self) -> int:
        """Longest significand of a value, which a floating-point unit needs to hold it."""
        return self.significand_bits

    @property
    def exponent_bits(self) -> int:
        """Width of each number's own exponent; 0 if it has none."""
        exponents = [frexp(value)[1] for value in _finite(self) if value]
        return (max(exponents, default=0) - min(exponents, default=0)).bit_length()

    @property
    def exponent_bias(self) -> int:
        """Bias of the exponent field of a floating-point format, else 0."""
        return 0

    @property
    def fraction_bits(self) -> int:
        """Bits after the point of a fixed-point format, else 0."""
        return 0

    @property
    def is_ieee(self) -> bool:
        """Whether the codes are those of an IEEE 754 format, with subnormals, infinities and NaN."""
        return False

    @property
    def is_twos_complement(self) -> bool:
        """Whether the codes are signed two's complement numbers of a constant step, and values saturate."""
        return False

    @property
    def is_oriented(self) -> bool:
        """Whether blocks lie along one axis, so that a transposed tensor has other blocks; square tiles do not."""
        return self.is_blocked

    @property
    def has_shared_scales(self) -> bool:
        """Whether codes come with scales that depend on the data, as `BlockCodes`."""
        return self.is_blocked

    @property
    def wraps(self) -> bool:
        """Whether numbers beyond the range wrap around, which a grid alone does not describe."""
        return False

    @property
    def unclipped(self) -> "Format | None":
        """The same format with scales that hold all numbers, if those of this one clip the largest; random rounding is
        biased where they do.
        """
        return None

    @property
    def saturates(self) -> bool:
        """Whether nothing that is rounded becomes infinite, in a format that is listed by its values."""
        return False

    @property
    def own_rounding(self) -> str:
        """The rounding mode where none is asked for."""
        return "nearest-even"

    @property
    def arithmetic(self) -> "UserFormat | None":
        """The format itself if it brings its own functions that add and multiply codes."""
        return None

    @property
    def draws(self) -> bool:
        """Whether a rounding of the format's own draws random numbers."""
        return False

    @classmethod
    def names(cls) -> "dict[str, Format]":
        """Formats of the family that have a name of their own."""
        return {}

    def along(self, axis: int) -> "Format":
        """The same format with blocks along another axis; a format without blocks is returned as it is."""
        return self

    def as_row(self) -> "Format":
        """The same format for a tensor of one dimension."""
        return self.along(-1)

    def is_finer_than(self, other: "Format") -> bool:
        """Whether a number rounded to `other` may differ from the number rounded to this format.

        True if the formats cannot be compared without the numbers.
        """
        return self != other

    # Spelling

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
        """The arguments that construct this format, without those that are defaults or follow from others."""
        arguments = {argument.name: getattr(self, argument.name) for argument in _fields(self)}
        for argument in _fields(self):
            if argument.default is MISSING:
                continue
            shorter = {name: value for name, value in arguments.items() if name != argument.name}
            if self._is_spelt_by(shorter):
                arguments = shorter
        return arguments

    def _is_spelt_by(self, arguments: dict[str, Any]) -> bool:
        try:
            return bool(type(self)(**arguments) == self)
        except FormatError:
            return False

    # Values and codes

    def code_values(self) -> Sequence[float]:
        """The value of every code, in the order of the codes; rounded to float32 if they are not float32 numbers.

        Infinities and NaN are allowed. There may be fewer than 2^bits: the codes above are NaN.
        """
        raise FormatError(f"{self}: the values of this format cannot be listed")

    def value_list(self) -> "ValueList":
        """The values in ascending order and the bounds of nearest rounding; cached by `value_lists.value_list`."""
        from presilicon.formats.kernels.value_lists import list_values

        return list_values(self)

    def encode_tensor(self, x: "Tensor", mode: "Mode", key: "Key") -> "Tensor | BlockCodes":
        """The codes of a float32 or float64 tensor, as int64."""
        from presilicon.formats.kernels.value_lists import encode_listed

        return encode_listed(x, self, mode, key)

    def decode_tensor(self, codes: Any) -> "Tensor":
        """The values of codes (int64), as float64. Formats with shared scales take a `BlockCodes`."""
        from presilicon.formats.kernels.value_lists import value_table

        return value_table(self).to(codes.device)[codes]

    def code_fields(self, code: int) -> Sequence[tuple[str, int]]:
        """Names and widths of the bit fields of a code, from the top bit down."""
        return [("code", self.bits)]

    def shared_scale(self, codes: "BlockCodes", index: int) -> float:
        """The scale of element `index` of a row; only for formats with shared scales."""
        raise FormatError(f"{self}: this format has no shared scales")

    def scaled_groups(self, x: "Tensor") -> "tuple[Tensor, Tensor, float] | None":
        """For scales that depend on the data: the numbers of each group (..., groups, members), the groups' scales, and
        the largest magnitude under the scale 1. Short groups are padded by zeros."""
        return None

    def values_at_scale(self, scale: float) -> list[float] | None:
        """All values under a shared scale in ascending order; None if they are too many to list."""
        return None

    # Rounding

    def round_tensor(self, x: "Tensor", mode: "Mode", key: "Key", out: "Tensor | None") -> "Tensor":
        """`x` (float32 or float64, without gradient) in this format, written to `out` or a new tensor."""
        from presilicon.formats.kernels.passes import round_to_values

        return round_to_values(x, self, mode, key, out)

    def round_plain(self, x: "Tensor", mode: "Mode", words: "Tensor | None") -> "Tensor":
        """`x` (float64) in this format by torch operations on any device: exact, not fast."""
        from presilicon.formats.kernels.value_lists import round_listed

        return round_listed(x, self, mode, words)

    def round_value(self, x: float, mode: "Mode", word: int) -> float:
        """One number in this format by slow, obvious arithmetic: the reference for all kernels.

        `word` holds the 32 random bits of stochastic rounding.
        """
        return round_listed_value(x, _code_values(self), mode, word, saturates=self.saturates)

    def grid(self) -> "Grid | None":
        """The grid that a rounding circuit sees, or None if the values are not evenly spaced in each binade.

        Cached by `kernels.grid.grid_of`.
        """
        return None


def _fields(fmt: Format) -> tuple[Any, ...]:
    return fields(fmt)  # type: ignore[arg-type]


@lru_cache(maxsize=8)
def _code_values(fmt: Format) -> tuple[float, ...]:
    from presilicon.formats.grammar import FAMILIES

    with FAMILIES.errors_of(fmt.kind):
        return tuple(float32(float(value)) for value in fmt.code_values())


def _finite(fmt: Format) -> list[float]:
    return [value for value in _code_values(fmt) if isfinite(value)]


def _significant_bits(value: float) -> int:
    numerator, _ = abs(value).as_integer_ratio()
    return max(1, numerator.bit_length() - (numerator & -numerator).bit_length() + 1) if numerator else 1


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


def require(condition: bool, fmt: str, rule: str) -> None:
    """Raise a `FormatError` with the rule that a format breaks, unless `condition` holds."""
    if not condition:
        raise FormatError(f"{fmt}: {rule}")


def require_integer(fmt: str, name: str, value: object, low: int, high: int, hint: str = "") -> None:
    """Raise a `FormatError` unless `value` is an integer in [low, high]."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    inside = is_integer and low <= int(str(value)) <= high
    advice = f"; {hint}" if hint else ""
    require(inside, fmt, f"{name} must be an integer from {low} to {high}, not {value!r}{advice}")


def require_bool(fmt: str, name: str, value: object) -> None:
    """Raise a `FormatError` unless `value` is true or false."""
    require(isinstance(value, bool), fmt, f"{name} must be true or false, not {value!r}")


def require_word(fmt: str, name: str, value: object, words: tuple[str, ...]) -> None:
    """Raise a `FormatError` unless `value` is one of `words`."""
    if value not in words:
        raise FormatError(f'{fmt}: {name}="{value}" is unknown: {did_you_mean(str(value), words)}')
