"""The functions of one number that an operator can replace, as plain Python: what its error is measured against."""

import math
from collections.abc import Callable

from presilicon.base import unknown
from presilicon.programs import divide, exponential, logarithm, square_root


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
