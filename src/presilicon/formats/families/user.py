"""Formats that a user defines: a struct of bit fields and functions on its codes."""

import keyword
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from presilicon.formats.format import MOST_LISTED_BITS, Format, require, require_integer
from presilicon.formats.kernels.passes import deliver

if TYPE_CHECKING:
    from torch import Tensor

    from presilicon.formats.rounding import Key, Stochastic

CONVERT = "convert"
"""The rounding mode of a user's own `convert`."""


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
    has_exact_steps: ClassVar[bool] = False  # above 16 bits only `convert` rounds

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
        require(usable, label, f"name must be a word such as new_fp, not {self.name!r}")
        pairs = isinstance(self.fields, tuple | list) and all(
            isinstance(f, tuple | list) and len(f) == 2 for f in self.fields
        )
        example = '(("s", 1), ("m", 7))'
        require(pairs, label, f"fields must be pairs of a name and a width, such as {example}, not {self.fields!r}")
        object.__setattr__(self, "fields", tuple((str(n), w) for n, w in self.fields))
        for field, width in self.fields:
            require_integer(label, field, width, 1, 32)
        require(1 <= self.bits <= 32, label, f"the fields must have 1 to 32 bits in all, not {self.bits}")
        names = [n for n, _ in self.fields]
        require(len(set(names)) == len(names), label, f"fields must have different names, not {names}")
        require(callable(self.as_float), label, f"as_float must be a function of a code, not {self.as_float!r}")
        for name in ("convert", "add", "mul", "mad", "log"):
            function = getattr(self, name)
            require(function is None or callable(function), label, f"{name} must be a function, not {function!r}")
        is_listed = self.bits <= MOST_LISTED_BITS
        require(is_listed or self.convert is not None, label, "convert must be given above 16 bits")

    @property
    def bits(self) -> int:
        """Sum of the widths of the fields."""
        return sum(width for _, width in self.fields)

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

    @property
    def own_rounding(self) -> str:
        """`convert`, if there is one."""
        return "nearest-even" if self.convert is None else CONVERT

    @property
    def arithmetic(self) -> "UserFormat":
        """The format itself."""
        return self

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
        allowed = ", ".join(n for n, _ in self.fields)
        require(not values, self.name, f"there are no fields {', '.join(sorted(values))}; the fields are {allowed}")
        return code

    def unpack(self, code: int) -> dict[str, int]:
        """The fields of a code, by name."""
        values = {}
        for name, width in reversed(self.fields):
            values[name] = code & ((1 << width) - 1)
            code >>= width
        return dict(reversed(values.items()))

    def code_fields(self, code: int) -> Sequence[tuple[str, int]]:
        """The user's fields."""
        return self.fields

    def code_values(self) -> Sequence[float]:
        """`as_float` of every code."""
        from presilicon.formats.kernels.user_functions import all_values

        values: Sequence[float] = all_values(self)
        return values

    def round_tensor(self, x: "Tensor", mode: "str | Stochastic", key: "Key", out: "Tensor | None") -> "Tensor":
        """By `convert` and `as_float`, or among the values of all codes if a rounding is asked for."""
        if mode != CONVERT:
            return Format.round_tensor(self, x, mode, key, out)
        from presilicon.formats.kernels.user_functions import user_codes, user_values

        return deliver(user_values(user_codes(x.double(), self), self).to(x.dtype), out)

    def encode_tensor(self, x: "Tensor", mode: "str | Stochastic", key: "Key") -> "Tensor":
        """By `convert`, or among the values of all codes if a rounding is asked for."""
        from presilicon.formats.kernels.user_functions import user_codes
        from presilicon.formats.kernels.value_lists import encode_listed

        return user_codes(x.double(), self) if mode == CONVERT else encode_listed(x, self, mode, key)

    def decode_tensor(self, codes: "Tensor") -> "Tensor":
        """By `as_float`."""
        from presilicon.formats.kernels.user_functions import user_values

        return user_values(codes, self)

    def logarithm(self, x: "Tensor") -> "Tensor":
        """The logarithm as the user's `log` computes it on codes, as float32.

        Raises `FormatError` without a `log`, or if it gives a code that does not fit the fields.
        """
        from presilicon.formats.kernels.user_functions import user_log

        return user_log(x, self)
