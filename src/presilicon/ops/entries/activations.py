"""Entries of activation functions and dropout."""

# ruff: noqa: D103 - a function without a docstring is the program of the torch function of its name

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from presilicon.base import torch
from presilicon.ops.entry import Captured, OpEntry, function, plain
from presilicon.ops.steps import Steps

if TYPE_CHECKING:
    from torch import Tensor


def relu(s: Steps, input: Tensor) -> Tensor:
    return s.maximum(0.0, s.enter(input))


def hardtanh(s: Steps, input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    return s.minimum(max_val, s.maximum(min_val, s.enter(input)))  # without a slope at its ends, unlike clamp


def relu6(s: Steps, input: Tensor) -> Tensor:
    return hardtanh(s, input, 0.0, 6.0)


def leaky_relu(s: Steps, input: Tensor, negative_slope: float = 0.01) -> Any:
    if not 0 <= negative_slope <= 1:
        return NotImplemented
    first, second = s.fork(s.enter(input))
    return s.maximum(s.mul(second, negative_slope), first)  # the slope at 0 is the negative one


def sigmoid(s: Steps, input: Tensor) -> Tensor:
    return s.div(1.0, s.add(1.0, s.exp(s.neg(s.enter(input)))))


def silu(s: Steps, input: Tensor) -> Tensor:
    first, second = s.fork(s.enter(input))
    return s.mul(first, s.inside("sigmoid", second))


def glu(s: Steps, input: Tensor, dim: int = -1) -> Tensor:
    first, second = s.enter(input).chunk(2, dim)
    return s.mul(first, s.inside("sigmoid", second))


def gelu(s: Steps, input: Tensor, approximate: str = "none") -> Any:
    """The form with tanh; the exact one is no sequence of steps."""
    if approximate != "tanh":
        return NotImplemented
    x = s.enter(input)
    inner = s.mul(s.add(x, s.mul(s.mul(x, s.square(x)), 0.044715)), math.sqrt(2 / math.pi))
    return s.mul(s.mul(x, 0.5), s.add(s.inside("tanh", inner), 1.0))


def mish(s: Steps, input: Tensor) -> Tensor:
    return s.mul(s.enter(input), s.inside("tanh", torch.nn.functional.softplus(input)))


def tanhshrink(s: Steps, input: Tensor) -> Tensor:
    return s.sub(s.enter(input), s.inside("tanh", input))


def dropout(s: Steps, input: Tensor, p: float = 0.5, training: bool = True) -> Any:
    """The input times the converted 1 / (1 - p), or 0, where torch's dropout would drop."""
    if not training or p == 0:
        return NotImplemented
    return s.mul(s.enter(input), s.enter(torch.nn.functional.dropout(torch.ones_like(input), p)))


# Formulas: one element of a result, as boards compute it; those of gradients take the error first


def rectified(x: float) -> float:
    return 0.0 if x < 0 else x


def above(error: float, x: float, limit: float) -> float:
    return 0.0 if x <= limit else error


def leaking(x: float, slope: float) -> float:
    return x if x > 0 else x * slope


def leaking_slope(error: float, x: float, slope: float, of_result: float) -> float:
    return error if x > 0 else error * slope


def hyperbolic(x: float) -> float:
    return math.tanh(x)


def hyperbolic_slope(error: float, y: float) -> float:
    return error * (1 - y * y)


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def logistic_slope(error: float, y: float) -> float:
    return error * y * (1 - y)


def swish(x: float) -> float:
    return x * (1 / (1 + math.exp(-x)))


def swish_slope(error: float, x: float) -> float:
    share = 1 / (1 + math.exp(-x))
    return error * (share * (1 + x * (1 - share)))


def gaussian(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x * 0.7071067811865476))


def gaussian_slope(error: float, x: float) -> float:
    share = 0.5 * (1 + math.erf(x * 0.7071067811865476))
    return error * (share + x * (0.3989422804014327 * math.exp(-0.5 * x * x)))


def gaussian_by_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def gaussian_slope_by_tanh(error: float, x: float) -> float:
    bend = math.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))
    inner = 0.7978845608028654 * (1 + 0.134145 * x * x)
    return error * (0.5 * (1 + bend) + 0.5 * x * (1 - bend * bend) * inner)


def bounded_sigmoid(x: float) -> float:
    """1 / (1 + e^-x), without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else (e := math.exp(x)) / (1 + e)


def bounded_softplus(x: float) -> float:
    """log(1 + e^x), without overflow."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _like_relu(name: str, **facts: Any) -> OpEntry:
    gradient = {"table_kind": "ReluGrad", **facts.pop("gradient", {})}
    return function(name, table_kind="Relu", gradient=gradient, **facts)


def _like_gelu(name: str, **facts: Any) -> OpEntry:
    gradient = {"table_kind": "GeluGrad", **facts.pop("gradient", {})}
    return function(name, table_kind="Gelu", gradient=gradient, **facts)


_IN_PLACE = "input inplace=False"
_SLOPE = "input negative_slope=0.01 inplace=False"

ENTRIES: list[OpEntry] = [
    OpEntry(
        name="relu",
        functions=("relu",),
        forward=Captured(names=("relu",), kind="elementwise", table_kind="Relu", formula=rectified),
        backward=Captured(
            names=("threshold_backward",), kind="elementwise", table_kind="ReluGrad", multiplies=False,
            reads_once=True, reads_signs=True, formula=above,
        ),
        program=relu,
        is_rectifier=True,
    ),
    function("relu6", backward="", is_rectifier=True, program=relu6, table_kind="Relu"),
    _like_relu("leaky_relu", program=leaky_relu, signature=_SLOPE, formula=leaking,
               gradient={"formula": leaking_slope}),
    _like_relu("prelu", aten="prelu_kernel prelu", backward="prelu_kernel_backward", width="narrow"),
    _like_gelu("gelu", exact=lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))), program=gelu, inside="tanh",
               signature="input approximate='none'",
               formula={"none": gaussian, "tanh": gaussian_by_tanh},
               gradient={"formula": {"none": gaussian_slope, "tanh": gaussian_slope_by_tanh}}),
    _like_gelu("tanh", exact=math.tanh, formula=hyperbolic, gradient={"formula": hyperbolic_slope}),
    _like_gelu("sigmoid", exact=bounded_sigmoid, program=sigmoid, formula=logistic,
               gradient={"formula": logistic_slope}),
    function("silu", exact=lambda x: x * bounded_sigmoid(x), signature=_IN_PLACE, program=silu, inside="sigmoid",
             inner="sigmoid", formula=swish,
             gradient={"formula": swish_slope}),
    function("glu", program=glu, inside="sigmoid", inner="sigmoid"),
    function("mish", signature=_IN_PLACE, program=mish, inside="tanh", inner="tanh"),
    function("tanhshrink", aten="", backward="", program=tanhshrink, inside="tanh"),
    _like_gelu("hardtanh", program=hardtanh),
    function("elu", signature="input alpha=1.0 inplace=False"),
    function("softplus", exact=bounded_softplus, width="float32"),
    _like_gelu("hardsigmoid"),
    _like_gelu("logsigmoid", aten="log_sigmoid_forward", backward="log_sigmoid_backward"),
    *(function(name) for name in ("hardswish", "softshrink", "hardshrink")),
    *(function(name, backward="") for name in ("selu", "celu", "threshold")),
    function("softsign", aten="", backward=""),
    OpEntry(
        name="rrelu",
        functions=("rrelu",),
        forward=Captured(names=("rrelu_with_noise",), kind="random", table_kind="Relu"),
        backward=Captured(names=("rrelu_with_noise_backward",), kind="other", multiplies=False, table_kind="ReluGrad"),
    ),
    *plain("other", "rrelu_with_noise_functional", multiplies=False, table_kind="Relu"),
    OpEntry(
        name="dropout",
        functions=("dropout",),
        forward=Captured(names=("native_dropout",), kind="random", computes=True),
        backward=Captured(
            names=("native_dropout_backward",), kind="elementwise", multiplies=False, reads_once=True,
        ),
        program=dropout,
    ),
    *(
        function(name, aten="", backward="")
        for name in ("dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "feature_dropout")
    ),
]  # fmt: skip
