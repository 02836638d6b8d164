"""Operators: approximations of scalar functions, with their derivative and their hardware."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from msgspec.structs import replace

from presilicon.base import ConfigError, did_you_mean
from presilicon.formats import Format, parse
from presilicon.operators.breakpoints import find_breakpoints
from presilicon.operators.derivative import differentiate
from presilicon.operators.language import compile_function
from presilicon.operators.pricing import price
from presilicon.operators.program import Builder, Program
from presilicon.operators.reference import evaluate, exact
from presilicon.operators.source import Source
from presilicon.records import OperatorCost

Backward = Literal["derived", "exact", "straight-through"]


class LargestError(NamedTuple):
    """The largest difference between an operator and the function that it replaces."""

    error: float
    at: float


@dataclass(frozen=True, eq=False)
class Operator:
    """A scalar function that replaces another one in a model.

    Called with a number, it computes as the reference does: in float64, or in `format`. `presilicon.emulation` applies
    it to tensors.
    """

    name: str
    replaces: str
    """The function that it replaces: a key of `presilicon.operators.EXACT`."""
    program: Program
    backward: Backward = "derived"
    """`derived`: the derivative of the approximation, piece by piece. `exact`: that of the function that it replaces.
    `straight-through`: 1."""
    format: Format | None = None
    """The format of the argument, of every constant and of every intermediate result; None: that of the tensor."""
    cycles: int | None = None
    """Cycles per result for both passes, instead of the counted ones."""
    pipelined: bool = False
    function: Callable[..., Any] | None = field(default=None, repr=False)
    """The Python function that it was compiled from."""
    source: Source | None = field(default=None, repr=False)
    domain: tuple[float, float] = (-8.0, 8.0)
    """The default range of `largest_error` and `breakpoints`."""

    def __call__(self, x: float) -> float:
        """The approximation at `x`."""
        return evaluate(self.program, x, self.format)[0]

    def __reduce__(self) -> Any:
        # Without the Python function: its name in its module is this operator, so it cannot be saved by name.
        parts = (self.name, self.replaces, self.program, self.backward, self.format, self.cycles, self.pipelined)
        return Operator, (*parts, None, None, self.domain)

    def __deepcopy__(self, memo: Any) -> "Operator":
        return self

    def derivative(self, x: float) -> float:
        """The derivative of the approximation at `x`, whatever `backward` is."""
        return evaluate(self.both, x, self.format)[1]

    @cached_property
    def both(self) -> Program:
        """The program of value and derivative."""
        return differentiate(self.program)

    @cached_property
    def cost(self) -> OperatorCost:
        """The hardware of the forward pass: counted, except for what the user states."""
        return self._stated(price(self.program, self.format))

    @cached_property
    def backward_cost(self) -> OperatorCost | None:
        """The hardware of the backward pass; None if torch's own derivative is used.

        The derivative is computed from the input again, and multiplied with the error.
        """
        if self.backward != "derived":
            return None
        builder = Builder()
        _, slope = self.both.splice(builder, builder.input())
        cost = price(builder.finish(slope), self.format)
        return self._stated(replace(cost, cycles=cost.cycles + 1, multipliers=cost.multipliers + 1))

    def largest_error(self, low: float | None = None, high: float | None = None, points: int = 4001) -> LargestError:
        """The largest difference from the exact function on a grid of points; NaN if either is NaN at a point.

        >>> from presilicon.operators import table
        >>> table("tanh", -4, 4, entries=9).largest_error(points=801)
        LargestError(error=0.46211715726000974, at=-0.5)
        """
        first, last = (asked if asked is not None else own for asked, own in zip((low, high), self.domain, strict=True))
        truth = exact(self.replaces)
        worst = LargestError(0.0, first)
        for step in range(points):
            x = first + (last - first) * step / (points - 1)
            difference = abs(self(x) - truth(x))
            if math.isnan(difference):
                return LargestError(difference, x)
            if difference > worst.error:
                worst = LargestError(difference, x)
        return worst

    def breakpoints(self, low: float | None = None, high: float | None = None) -> list[float]:
        """The inputs at which one piece ends and the next begins; see `find_breakpoints` for the search."""
        first, last = (asked if asked is not None else own for asked, own in zip((low, high), self.domain, strict=True))
        return find_breakpoints(self.program, first, last)

    def replacing(self, name: str) -> "Operator":
        """The same approximation as a replacement of another function, such as `softmax.exp` instead of `exp`."""
        exact(name)
        return replace_fields(self, replaces=name)

    def inline(self, builder: Builder, arguments: Sequence[int], named: Mapping[str, int]) -> int:
        """The register of its result on the arguments of a call, as a part of another program."""
        if self.source is None:
            if len(arguments) != 1 or named:
                raise TypeError(f"{self.name} takes one number")
            return self.program.splice(builder, arguments[0])[0]
        code = self.source.function.__code__
        names = code.co_varnames[: code.co_argcount]
        wrong = [name for name in named if name not in names[len(arguments) :]]
        if wrong or not 1 <= len(arguments) <= len(names):
            raise TypeError(f"{self.name} takes ({', '.join(names)})")
        defaults = dict(zip(reversed(names), reversed(self.source.function.__defaults__ or ()), strict=False))
        registers = list(arguments)
        for name in names[len(arguments) :]:
            registers.append(named[name] if name in named else builder.constant(float(defaults[name])))
        return compile_function(self.source, builder, registers)

    def describe(self) -> dict[str, Any]:
        """Everything that its results depend on, as plain data."""
        digest = sha256(repr((self.program.instructions, self.program.outputs)).encode()).hexdigest()[:16]
        fmt = None if self.format is None else str(self.format)
        return {"replaces": self.replaces, "program": digest, "backward": self.backward, "format": fmt}

    @property
    def reference(self) -> str:
        """The file and name that a design file refers to it by, as `my_ops.py:approximate_tanh`."""
        if self.source is None:
            raise ConfigError(f"{self.name} is not in a file; give its kind in the design, as kind = 'table'")
        return f"{Path(self.source.file)}:{self.name}"

    def _stated(self, cost: OperatorCost) -> OperatorCost:
        return replace(cost, cycles=cost.cycles if self.cycles is None else self.cycles, pipelined=self.pipelined)


def operator(
    replaces: str,
    *,
    backward: Backward = "derived",
    format: Format | str | None = None,
    cycles: int | None = None,
    pipelined: bool = False,
) -> Callable[[Callable[..., float]], Operator]:
    """A decorator that compiles a Python function of one number to an `Operator`.

    The function is not called: its source is compiled for CPU and GPU, differentiated, and priced. It may use
    arithmetic, comparisons, `if`, `match`, local variables, early returns, `abs`, `min`, `max`, `math.floor`,
    `math.sqrt`, `math.exp`, `math.log`, numbers of the enclosing scopes (as they are now) and other operators.

    Args:
        replaces: the function that it replaces: "tanh", "sigmoid", "gelu", "exp", "softmax.exp", "rsqrt", ...
        backward: "derived" from the same source, "exact" for the derivative of the function that it replaces, or
            "straight-through".
        format: the format that every intermediate result is rounded to.
        cycles: cycles per result, instead of the counted ones.
        pipelined: whether the unit takes a new number in every cycle.

    Raises:
        ConfigError: there is no such function to replace, or the function uses something that the language does not
            have; the message has the file, the line and its text.

    >>> @operator("tanh")
    ... def hard_tanh(x):
    ...     return max(-1.0, min(x, 1.0))
    >>> hard_tanh(0.25), hard_tanh.derivative(0.25), hard_tanh.derivative(3.0), hard_tanh.breakpoints()
    (0.25, 1.0, 0.0, [-1.0, 1.0])
    """
    if callable(replaces):
        raise ConfigError('write @operator("tanh"), with the function that it replaces')
    options = check_options(replaces, backward, format, cycles, pipelined)

    def decorate(function: Callable[..., float]) -> Operator:
        source = Source(function)
        builder = Builder()
        program = builder.finish(compile_function(source, builder, [builder.input()]))
        return Operator(name=function.__name__, program=program, function=function, source=source, **options)

    return decorate


def check_options(
    replaces: str, backward: str, format: Format | str | None, cycles: int | None, pipelined: bool
) -> dict[str, Any]:
    """The options that all kinds of operators share, checked."""
    exact(replaces)
    if backward not in get_args(Backward):
        raise ConfigError(f'backward="{backward}": {did_you_mean(str(backward), get_args(Backward))}')
    parsed = parse(format) if isinstance(format, str) else format
    if parsed is not None and (not isinstance(parsed, Format) or parsed.is_blocked):
        raise ConfigError(f"format must round each number alone, as float16 does, not {format}")
    if cycles is not None and (isinstance(cycles, bool) or not isinstance(cycles, int) or cycles < 1):
        raise ConfigError(f"cycles must be a whole number of at least 1, not {cycles!r}")
    return {
        "replaces": replaces,
        "backward": backward,
        "format": parsed,
        "cycles": cycles,
        "pipelined": bool(pipelined),
    }
