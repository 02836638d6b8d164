"""Formats that a user defines: a struct of bit fields and functions on its codes."""

import keyword
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from presilicon.formats.format import MOST_LISTED_BITS, Format, require, require_integer
from presilicon.formats.kernels.passes import deliver

if TYPE_CHECKING:
    from torch import Tensor

    from presilicon.formats.rounding import Key, Mode

CONVERT = "convert"
"""The rounding mode of a user's own `convert`."""

ARITIES = {"as_float": 1, "convert": 1, "add": 2, "sub": 2, "mul": 2, "div": 2, "mad": 3} | {
    "neg": 1, "log": 1, "exp": 1, "sqrt": 1, "compare": 2
}  # fmt: skip
"""Arguments of each function, without the state."""
VECTOR_FUNCTIONS = ("add", "sub", "neg", "mul", "div", "log", "exp", "sqrt", "compare")


def argument_count(function: Callable[..., Any] | None) -> int | None:
    """The number of a function's positional arguments; None where it has no plain signature."""
    code = getattr(getattr(function, "py_func", function), "__code__", None)
    return None if code is None or code.co_flags & 0x0C else code.co_argcount


@dataclass(frozen=True, slots=True)
class UserFormat(Format):
    """A number format given by functions on integer codes.

    The functions take and return plain numbers. They are compiled for the CPU by Numba and for the GPU by Triton, with
    the helpers and the constant tables that they use; what cannot be compiled runs slowly, with a warning. Products,
    element-wise ops, reductions, norms, losses and optimizers use those that are there; an operation without one is
    computed in float32 and converted. Two formats are equal when name, fields and functions are. `register` makes the
    name known to `parse`.

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
    add: Callable[..., Any] | None = None
    """`add(a, b)` is the code of a + b."""
    mul: Callable[..., Any] | None = None
    """`mul(a, b)`; without one, `mad(a, b, 0)` if there is a `mad`."""
    mad: Callable[..., Any] | None = None
    """`mad(a, b, c)` is the code of a * b + c."""
    log: Callable[..., Any] | None = None
    """`log(a)` is the code of the natural logarithm of `a`."""
    sub: Callable[..., Any] | None = None
    """`sub(a, b)`; without one, `add(a, neg(b))` if there is an `add`."""
    neg: Callable[..., Any] | None = None
    """`neg(a)`; without one, the code of the negated value."""
    div: Callable[..., Any] | None = None
    exp: Callable[..., Any] | None = None
    sqrt: Callable[..., Any] | None = None
    compare: Callable[..., Any] | None = None
    """`compare(a, b)` is negative, zero or positive where a is less than, equal to or greater than b; it decides ReLUs,
    maxima and minima."""
    on: Literal["codes", "values"] = "codes"
    """Whether `add` and the other functions take and return codes, or values (floats), which `convert` then rounds."""
    state: int | float | Literal["random"] | None = None
    """The state with which each lane starts, a lane being the position of an output element. A function with one more
    argument takes the state last and returns a pair of its result and the next state. `random`: a word of 24 bits, not
    0, from the run's seed, the step, the op and the position. The state lasts for one op: along the sum of a product's
    output, or for the one call of an element-wise step, so that a resumed or repeated step has the same bits."""

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
        require(self.on in ("codes", "values"), label, f'on must be "codes" or "values", not {self.on!r}')
        is_number = isinstance(self.state, int | float) and not isinstance(self.state, bool)
        usable = self.state in (None, "random") or is_number
        require(usable, label, f'state must be a number or "random", not {self.state!r}')
        for name, arity in ARITIES.items():
            self._check_function(label, name, arity)
        is_listed = self.bits <= MOST_LISTED_BITS
        require(is_listed or self.convert is not None, label, "convert must be given above 16 bits")

    def _check_function(self, label: str, name: str, arity: int) -> None:
        function = getattr(self, name)
        if function is None:
            return
        require(callable(function), label, f"{name} must be a function, not {function!r}")
        count = argument_count(function)
        with_state = arity + (self.state is not None and name not in ("as_float", "compare"))
        allowed = f"{arity}" if with_state == arity else f"{arity}, or {with_state} with the state"
        require(count in (None, arity, with_state), label, f"{name} must take {allowed} arguments, not {count}")

    def has_state(self, name: str) -> bool:
        """Whether a function of this name takes and returns the state of a lane."""
        return self.state is not None and argument_count(getattr(self, name)) == ARITIES[name] + 1

    @property
    def has_vector_arithmetic(self) -> bool:
        """Whether any function but `convert` and `mad` is there, which then holds outside of products too."""
        return any(getattr(self, name) is not None for name in VECTOR_FUNCTIONS)

    @property
    def draws(self) -> bool:
        """Whether lanes start with random states."""
        return self.state == "random"

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

    def round_tensor(self, x: "Tensor", mode: "Mode", key: "Key", out: "Tensor | None") -> "Tensor":
        """By `convert` and `as_float`, or among the values of all codes if a rounding is asked for."""
        if mode != CONVERT:
            return Format.round_tensor(self, x, mode, key, out)
        from presilicon.formats.kernels.user_functions import user_codes, user_values

        return deliver(user_values(user_codes(x, self, key), self).to(x.dtype), out)

    def encode_tensor(self, x: "Tensor", mode: "Mode", key: "Key") -> "Tensor":
        """By `convert`, or among the values of all codes if a rounding is asked for."""
        from presilicon.formats.kernels.user_functions import user_codes
        from presilicon.formats.kernels.value_lists import encode_listed

        return user_codes(x, self, key) if mode == CONVERT else encode_listed(x, self, mode, key)

    def decode_tensor(self, codes: "Tensor") -> "Tensor":
        """By `as_float`."""
        from presilicon.formats.kernels.user_functions import user_values

        return user_values(codes, self).double()
