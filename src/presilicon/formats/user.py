"""Formats that a user defines: a struct of bit fields and functions on its codes."""

import keyword
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from presilicon.formats.format import Format, require, require_integer


@dataclass(frozen=True, slots=True)
class UserFormat(Format):
    """A number format given by functions on integer codes.

    The functions take and return plain numbers and are compiled by Numba, so they may use arithmetic, `math` and
    numpy scalars, and their own helpers compiled with `numba.njit`. Two formats are equal when name, fields and
    functions are. `register` makes the name known to `parse`.

    >>> def as_float(code):
    ...     return (code & 7) * 0.5 * (-1.0 if code & 8 else 1.0)
    >>> half_steps = UserFormat("half_steps", fields=(("s", 1), ("m", 3)), as_float=as_float)
    >>> half_steps.unpack(0b1011), half_steps.pack(s=1, m=3)
    ({'s': 1, 'm': 3}, 11)
    """

    kind: ClassVar[str] = "user"

    name: str
    fields: tuple[tuple[str, int], ...]
    """Names and widths of the bit fields, from the top bit down; at most 32 bits in all."""
    as_float: Callable[[int], float]
    """The value of a code."""
    convert: Callable[[float], int] | None = None
    """The code of a number, with the user's own rounding. None: the nearest value, ties to the even code, up to 16
    bits. It is used when no rounding is asked for; an asked rounding chooses among the values of all codes."""
    add: Callable[[int, int], int] | None = None
    mul: Callable[[int, int], int] | None = None
    mad: Callable[[int, int, int], int] | None = None
    """`mad(a, b, c)` is the code of a * b + c."""
    log: Callable[[int], int] | None = None
    """`log(a)` is the code of the logarithm of `a`: what `torch.log` is in a model with activations in this format."""

    def __post_init__(self) -> None:
        label = f'user format "{self.name}"'
        usable = isinstance(self.name, str) and self.name.isidentifier() and not keyword.iskeyword(self.name)
        require(usable, label, f"name={self.name!r}", "a word such as new_fp")
        pairs = isinstance(self.fields, tuple | list) and all(
            isinstance(f, tuple | list) and len(f) == 2 for f in self.fields
        )
        require(pairs, label, f"fields={self.fields!r}", 'pairs of a name and a width, such as (("s", 1), ("m", 7))')
        object.__setattr__(self, "fields", tuple((str(n), w) for n, w in self.fields))
        for field, width in self.fields:
            require_integer(label, field, width, 1, 32)
        require(1 <= self.bits <= 32, label, f"{self.bits} bits", "1 to 32 bits in all")
        different = len({n for n, _ in self.fields}) == len(self.fields)
        require(different, label, f"fields {[n for n, _ in self.fields]}", "different names")
        require(callable(self.as_float), label, f"as_float={self.as_float!r}", "a function of a code")
        for name in ("convert", "add", "mul", "mad", "log"):
            function = getattr(self, name)
            require(function is None or callable(function), label, f"{name}={function!r}", "a function of codes")
        open_ended = self.convert is None and self.bits > 16
        require(not open_ended, label, "convert=None", "a function, above 16 bits")

    @property
    def bits(self) -> int:
        """Width of the code."""
        return sum(width for _, width in self.fields)

    @property
    def bits_per_element(self) -> float:
        """Stored bits per number."""
        return float(self.bits)

    @property
    def significand_bits(self) -> int:
        """The width of a field called `m` or `mantissa` with a hidden bit; else the whole code."""
        widths = dict(self.fields)
        mantissa = widths.get("m", widths.get("mantissa"))
        return self.bits if mantissa is None else mantissa + 1

    @property
    def exponent_bits(self) -> int:
        """The width of a field called `e` or `exponent`; else 0."""
        widths = dict(self.fields)
        return widths.get("e", widths.get("exponent", 0))

    def spelling(self) -> str:
        """The name."""
        return self.name

    def pack(self, **values: int) -> int:
        """The code with these fields; those not named are 0."""
        code = 0
        for name, width in self.fields:
            value = values.pop(name, 0)
            require_integer(self.name, name, value, 0, (1 << width) - 1)
            code = code << width | value
        require(not values, self.name, f"fields {sorted(values)}", ", ".join(n for n, _ in self.fields))
        return code

    def unpack(self, code: int) -> dict[str, int]:
        """The fields of a code, by name."""
        values = {}
        for name, width in reversed(self.fields):
            values[name] = code & ((1 << width) - 1)
            code >>= width
        return dict(reversed(values.items()))
