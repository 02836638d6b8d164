"""Entries of element-wise arithmetic, functions and comparisons."""

# ruff: noqa: D103 - a function without a docstring is the program of the torch function of its name

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from presilicon import programs as ieee
from presilicon.ops.entry import OpEntry, function, plain
from presilicon.ops.steps import Steps

if TYPE_CHECKING:
    from torch import Tensor

    from presilicon.ops.steps import Number

_BINARY = "input other alpha=1 rounding_mode=None"


def add(s: Steps, input: Number, other: Number, *, alpha: float = 1) -> Tensor:
    return s.add(s.enter(input), s.enter(other) if alpha == 1 else s.mul(s.enter(other), alpha))


def sub(s: Steps, input: Number, other: Number, *, alpha: float = 1) -> Tensor:
    return s.sub(s.enter(input), s.enter(other) if alpha == 1 else s.mul(s.enter(other), alpha))


def rsub(s: Steps, input: Number, other: Number, *, alpha: float = 1) -> Tensor:
    return s.sub(s.enter(other), s.enter(input) if alpha == 1 else s.mul(s.enter(input), alpha))


def mul(s: Steps, input: Number, other: Number) -> Tensor:
    return s.mul(s.enter(input), s.enter(other))


def div(s: Steps, input: Number, other: Number, *, rounding_mode: str | None = None) -> Any:
    return NotImplemented if rounding_mode is not None else s.div(s.enter(input), s.enter(other))


def rdiv(s: Steps, input: Number, other: Number) -> Tensor:
    return s.div(s.enter(other), s.enter(input))


def neg(s: Steps, input: Tensor) -> Tensor:
    return s.neg(s.enter(input))


def exp(s: Steps, input: Tensor) -> Tensor:
    return s.exp(s.enter(input))


def log(s: Steps, input: Tensor) -> Tensor:
    return s.log(s.enter(input))


def sqrt(s: Steps, input: Tensor) -> Tensor:
    return s.sqrt(s.enter(input))


def rsqrt(s: Steps, input: Tensor) -> Tensor:
    return s.div(1.0, s.sqrt(s.enter(input)))


def reciprocal(s: Steps, input: Tensor) -> Tensor:
    return s.div(1.0, s.enter(input))


def square(s: Steps, input: Tensor) -> Tensor:
    return s.square(s.enter(input))


def absolute(s: Steps, input: Tensor) -> Tensor:
    first, second = s.fork(s.enter(input))
    return s.maximum(first, s.neg(second), halves=True)


def power(s: Steps, input: Any, exponent: Any) -> Any:
    roots: dict[float, Callable[[Steps, Tensor], Tensor]] = {2: square, 0.5: sqrt, -0.5: rsqrt, -1: reciprocal}
    chosen = roots.get(exponent) if isinstance(exponent, int | float) else None
    return NotImplemented if chosen is None or isinstance(input, int | float) else chosen(s, input)


def maximum(s: Steps, input: Tensor, other: Tensor) -> Tensor:
    return s.maximum(s.enter(input), s.enter(other), halves=True)


def minimum(s: Steps, input: Tensor, other: Tensor) -> Tensor:
    return s.minimum(s.enter(input), s.enter(other), halves=True)


def fmax(s: Steps, input: Tensor, other: Tensor) -> Tensor:
    return s.maximum(s.enter(input), s.enter(other))


def fmin(s: Steps, input: Tensor, other: Tensor) -> Tensor:
    return s.minimum(s.enter(input), s.enter(other))


def clamp(s: Steps, input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    out = s.enter(input)
    out = out if min is None else s.maximum(out, s.enter(min))
    return out if max is None else s.minimum(out, s.enter(max))


def clamp_min(s: Steps, input: Tensor, min: Any) -> Tensor:
    return clamp(s, input, min)


def clamp_max(s: Steps, input: Tensor, max: Any) -> Tensor:
    return clamp(s, input, None, max)


def addcmul(s: Steps, input: Tensor, tensor1: Number, tensor2: Number, *, value: float = 1) -> Tensor:
    product = mul(s, tensor1, tensor2)
    return s.add(s.enter(input), product if value == 1 else s.mul(product, value))


def addcdiv(s: Steps, input: Tensor, tensor1: Number, tensor2: Number, *, value: float = 1) -> Tensor:
    quotient = div(s, tensor1, tensor2)
    return s.add(s.enter(input), quotient if value == 1 else s.mul(quotient, value))


def lerp(s: Steps, input: Tensor, end: Tensor, weight: Number) -> Tensor:
    first, second = s.fork(s.enter(input))
    return s.add(first, s.mul(s.enter(weight), s.sub(s.enter(end), second)))


# Formulas: one element of a result, as boards compute it


def negated(x: float) -> float:
    return -x


def magnitude(x: float) -> float:
    return -x if x < 0 else x


def inverse(x: float) -> float:
    return 1 / x


def squared(x: float) -> float:
    return x * x


def root(x: float) -> float:
    return math.sqrt(x)


def inverse_root(x: float) -> float:
    return 1 / math.sqrt(x)


def exponential(x: float) -> float:
    return math.exp(x)


def logarithm(x: float) -> float:
    return math.log(x)


def error_function(x: float) -> float:
    return math.erf(x)


def l1_loss(s: Steps, input: Tensor, target: Tensor, *args: Any, reduction: str = "mean", **_: Any) -> Any:
    if args:
        return NotImplemented
    return reduced(s, absolute(s, sub(s, input, target)), reduction)


def reduced(s: Steps, losses: Tensor, reduction: str) -> Tensor:
    """The losses themselves, their mean or their sum."""
    if reduction == "none":
        return losses
    return (s.mean(losses) if reduction == "mean" else s.total(losses)).reshape(())


def _function(name: str, aten: str | None = None, **facts: Any) -> OpEntry:
    """A function without an operator of ATen for its gradient."""
    return function(name, aten=aten, backward="", **facts)


def _named(names: str, **facts: Any) -> list[OpEntry]:
    return [_function(name, **facts) for name in names.split()]


_WIDE: dict[str, Any] = {"width": "float32"}

ENTRIES: list[OpEntry] = [
    _function("add", program=add, signature=_BINARY, updates=True, table_kind="Add", adds_bias=True),
    _function("sub", also="subtract", aten="sub subtract", program=sub, signature=_BINARY, updates=True,
              table_kind="Sub"),
    _function("mul", also="multiply", aten="mul multiply", program=mul, signature=_BINARY, updates=True,
              attention="move", scales=True),
    _function("div", also="divide true_divide", aten="div divide true_divide", program=div, signature=_BINARY,
              updates=True, table_kind="Div", attention="move"),
    _function("rsub", also="__rsub__", aten="rsub", program=rsub, swaps="sub", multiplies=False),
    *(
        OpEntry(name=name, functions=(name,), program=program, swaps=swaps)
        for name, program, swaps in (("__radd__", add, "add"), ("__rmul__", mul, "mul"), ("__rdiv__", rdiv, "div"),
                                     ("__rtruediv__", rdiv, "div"), ("__rpow__", None, ""))
    ),
    _function("pow", also="__pow__", aten="pow", program=power, signature=_BINARY, **_WIDE),
    _function("neg", also="negative", aten="neg negative", program=neg, formula=negated, updates=True),
    _function("abs", aten="abs", program=absolute, formula=magnitude),
    _function("exp", program=exp, formula=exponential, exact=ieee.exponential, updates=True, **_WIDE),
    _function("log", program=log, formula=logarithm, exact=ieee.logarithm, updates=True, **_WIDE),
    _function("sqrt", program=sqrt, formula=root, exact=ieee.square_root, updates=True, table_kind="Sqrt"),
    _function("rsqrt", program=rsqrt, formula=inverse_root,
              exact=lambda x: ieee.divide(1.0, ieee.square_root(x)), updates=True, **_WIDE),
    _function("reciprocal", program=reciprocal, formula=inverse, exact=lambda x: ieee.divide(1.0, x),
              updates=True, **_WIDE),
    _function("square", program=square, formula=squared),
    _function("maximum", program=maximum, signature=_BINARY, updates=True),
    _function("minimum", program=minimum, signature=_BINARY),
    _function("fmax", program=fmax),
    _function("fmin", program=fmin),
    _function("clamp", also="clip", aten="clamp clip", program=clamp),
    _function("clamp_min", program=clamp_min),
    _function("clamp_max", program=clamp_max),
    _function("addcmul", program=addcmul, updates=True),
    _function("addcdiv", program=addcdiv, updates=True, table_kind="Div"),
    _function("lerp", program=lerp, updates=True, table_kind="Lerp"),
    _function("l1_loss", aten="", program=l1_loss),
    *_named("erfinv cosh sinh log10 log2 log1p expm1 tan acos asin", **_WIDE),
    *_named("exp2 atan asinh acosh atanh erfc sinc ceil floor round trunc frac sign nan_to_num float_power "
            "atan2 hypot remainder fmod xlogy logaddexp logaddexp2 ldexp lgamma digamma i0 deg2rad rad2deg"),
    _function("erf", formula=error_function, exact=math.erf),
    _function("sin", exact=math.sin),
    _function("cos", exact=math.cos),
    *_named("arcsin arccos arctan arcsinh arccosh arctanh arctan2"),
    *_named("outer ger kron cross", kind="other"),
    *_named("xlog1py expit ndtr log_ndtr entr", aten=""),
    function("logit", aten="logit"),
    *plain("elementwise", """
        angle bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor conj_physical eq
        equal frexp gcd ge gt igamma igammac ilshift irshift isfinite isinf isnan isneginf isposinf ixor lcm le
        logical_and logical_or logical_xor lshift lt mvlgamma ne nextafter polygamma positive rshift sgn
        signbit xor"""),
    *plain("elementwise", "logical_not", attention="mask"),
    *plain("elementwise", "where", attention="mask", computes=False),
    *plain("elementwise", "masked_fill copysign heaviside", computes=False),
]  # fmt: skip
