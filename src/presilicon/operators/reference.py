"""The meaning of each instruction, one number at a time: the slow, obvious reference for the fast executions.

Numbers follow IEEE 754 where Python would raise: 1 / 0 is infinite, the root of -1 is NaN, exp(1000) is infinite.
`min`, `max` and comparisons treat NaN as Python does; `floor` is never -0, as Python's integers never are.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence

from presilicon.base import unknown
from presilicon.formats import Format, quantize_value
from presilicon.operators.program import CONDITIONS, Program, ProgramInstruction


def evaluate(program: Program, x: float, fmt: Format | None = None) -> list[float]:
    """The results of a program for one number.

    Arithmetic is that of float64. With a format, the argument, every constant and every result are rounded to it: for
    float32 that is float32 arithmetic, since a float64 result holds enough bits for the second rounding to be harmless.
    """
    values: list[float] = []
    for instruction in program.instructions:
        if instruction.operation == "input":
            result = float(x)
        elif instruction.operation in ("constant", "truth"):
            result = instruction.value
        else:
            result = apply(instruction, [values[argument] for argument in instruction.arguments])
        if fmt is not None and instruction.operation not in CONDITIONS and instruction.operation != "locate":
            result = quantize_value(result, fmt)
        values.append(result)
    return [values[output] for output in program.outputs]


def apply(instruction: ProgramInstruction, arguments: Sequence[float]) -> float:
    """One operation on numbers; conditions are 1 and 0."""
    if instruction.operation == "lookup":
        return instruction.table[table_index(arguments[0], len(instruction.table))]
    if instruction.operation == "locate":
        return 0.0 if math.isnan(arguments[0]) else float(bisect_right(instruction.table, arguments[0]))
    return float(_RULES[instruction.operation](*arguments))


def table_index(position: float, length: int) -> int:
    """The index of the entry at a position: cut off to a whole number and clamped; the first for a NaN."""
    if not position > 0:
        return 0
    return length - 1 if position >= length - 1 else int(position)


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


def floor(a: float) -> float:
    """The largest whole number that is not above `a`; 0 and never -0."""
    return float(math.floor(a)) if math.isfinite(a) else a


_RULES: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": divide,
    "neg": lambda a: -a,
    "abs": math.fabs,
    "min": lambda a, b: b if b < a else a,
    "max": lambda a, b: b if b > a else a,
    "floor": floor,
    "sqrt": square_root,
    "exp": exponential,
    "log": logarithm,
    "select": lambda condition, a, b: a if condition else b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": lambda a: not a,
}


def sigmoid(x: float) -> float:
    """1 / (1 + e^-x), without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else (e := math.exp(x)) / (1 + e)


def gelu(x: float) -> float:
    """x times the normal distribution's integral up to x."""
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def softplus(x: float) -> float:
    """log(1 + e^x), without overflow."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


EXACT: dict[str, Callable[[float], float]] = {
    "tanh": math.tanh,
    "sigmoid": sigmoid,
    "gelu": gelu,
    "silu": lambda x: x * sigmoid(x),
    "softplus": softplus,
    "erf": math.erf,
    "exp": exponential,
    "softmax.exp": exponential,
    "log": logarithm,
    "sqrt": square_root,
    "rsqrt": lambda x: divide(1.0, square_root(x)),
    "reciprocal": lambda x: divide(1.0, x),
    "sin": math.sin,
    "cos": math.cos,
}
"""`softmax.exp` is the exponential inside softmax; `rsqrt` is also the one inside normalizations."""


def exact(name: str) -> Callable[[float], float]:
    """The function of that name.

    Raises:
        ConfigError: there is no such function to replace.
    """
    if name not in EXACT:
        raise unknown("function to replace", name, EXACT)
    return EXACT[name]
