"""The functions of `math` in the language, in one place: what each of them is in every execution, and its derivative.

An execution asks this table; nothing else knows the functions one by one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from presilicon.programs.program import Builder

Mathematics = Literal["exp", "exp2", "log", "log2", "tanh", "erf", "sin", "cos"]


@dataclass(frozen=True)
class MathFunction:
    """A function of one number."""

    reference: Callable[[float], float]
    """In Python, with the values of IEEE 754 where Python raises."""
    numba: str
    """In code for Numba, of the argument `{0}`."""
    triton: str
    """In a Triton kernel."""
    error: "Callable[[Builder, int, int, int], int]"
    """The error of the argument, from the error of the result, the argument and the result."""
    numba32: str | None = None
    """A function of float32 in `numba_functions`, where there is a faster one."""


def divide(a: float, b: float) -> float:
    """a / b as IEEE 754 has it."""
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


def logarithm(a: float) -> float:
    """The natural logarithm as IEEE 754 has it."""
    return math.log(a) if a > 0 else (-math.inf if a == 0 else math.nan)


def exponential(a: float) -> float:
    """e to the power of `a` as IEEE 754 has it."""
    try:
        return math.exp(a)
    except OverflowError:
        return math.inf


def square_root(a: float) -> float:
    """The square root as IEEE 754 has it; that of -0 is -0."""
    return math.nan if a < 0 else math.sqrt(a)


def _power_of_two(a: float) -> float:
    if not float(a).is_integer():
        return exponential(a * math.log(2))
    return math.ldexp(1.0, int(a)) if a < 1024 else math.inf


def _binary_logarithm(a: float) -> float:
    return math.log2(a) if a > 0 else (-math.inf if a == 0 else math.nan)


def _exponential_error(builder: "Builder", error: int, x: int, y: int) -> int:
    return builder.emit("mul", error, y)


def _power_error(builder: "Builder", error: int, x: int, y: int) -> int:
    return builder.emit("mul", builder.emit("mul", error, y), builder.constant(math.log(2)))


def _logarithm_error(builder: "Builder", error: int, x: int, y: int) -> int:
    return builder.emit("div", error, x)


def _binary_logarithm_error(builder: "Builder", error: int, x: int, y: int) -> int:
    return builder.emit("div", builder.emit("mul", error, builder.constant(1 / math.log(2))), x)


def _tanh_error(builder: "Builder", error: int, x: int, y: int) -> int:
    return builder.emit("mul", error, builder.emit("sub", builder.constant(1.0), builder.emit("mul", y, y)))


def _erf_error(builder: "Builder", error: int, x: int, y: int) -> int:
    bell = builder.emit("exp", builder.emit("neg", builder.emit("mul", x, x)))
    return builder.emit("mul", error, builder.emit("mul", builder.constant(2 / math.sqrt(math.pi)), bell))


def _sine_error(builder: "Builder", error: int, x: int, y: int) -> int:
    return builder.emit("mul", error, builder.emit("cos", x))


def _cosine_error(builder: "Builder", error: int, x: int, y: int) -> int:
    return builder.emit("neg", builder.emit("mul", error, builder.emit("sin", x)))


MATH_FUNCTIONS: dict[Mathematics, MathFunction] = {
    "exp": MathFunction(exponential, "math.exp({0})", "tl.exp({0})", _exponential_error, "exp32({0})"),
    "exp2": MathFunction(_power_of_two, "math.pow(2.0, {0})", "tl.exp2({0})", _power_error, "exp232({0})"),
    "log": MathFunction(logarithm, "np.log({0})", "tl.log({0})", _logarithm_error),
    "log2": MathFunction(_binary_logarithm, "math.log2({0})", "tl.log2({0})", _binary_logarithm_error),
    "tanh": MathFunction(math.tanh, "math.tanh({0})", "tanh({0})", _tanh_error, "tanh32({0})"),
    "erf": MathFunction(math.erf, "math.erf({0})", "tl.erf({0})", _erf_error, "erf32({0})"),
    "sin": MathFunction(
        lambda a: math.sin(a) if math.isfinite(a) else math.nan, "np.sin({0})", "tl.sin({0})", _sine_error
    ),
    "cos": MathFunction(
        lambda a: math.cos(a) if math.isfinite(a) else math.nan, "np.cos({0})", "tl.cos({0})", _cosine_error
    ),
}
"""By their names in `math`, under which torch has them too."""
MATHEMATICS: tuple[Mathematics, ...] = get_args(Mathematics)
