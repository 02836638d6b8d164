"""Entries of softmax and its relatives."""

# ruff: noqa: D103 - a function without a docstring is the program of the torch function of its name

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from presilicon.base import torch
from presilicon.ops.entry import OpEntry, function, plain
from presilicon.ops.steps import Steps, listed, shaped
from presilicon.programs import exponential

if TYPE_CHECKING:
    from torch import Tensor


def softmax_axis(x: Tensor, dim: int | None) -> int:
    """The axis of a softmax: `dim`, or torch's default for it."""
    return dim if dim is not None else (0 if x.dim() in (0, 1, 3) else 1)


def _entered(input: Tensor, dim: int | None, _stacklevel: Any, dtype: Any) -> tuple[Tensor, int]:
    """The input in the wanted type, and the axis; `torch.softmax` has the type in the place of `_stacklevel`."""
    dtype = _stacklevel if isinstance(_stacklevel, torch.dtype) else dtype
    return input if dtype is None else input.to(dtype), softmax_axis(input, dim)


def _shifted(s: Steps, input: Tensor, dim: int) -> Tensor:
    x = s.enter(input)
    return s.sub(x, s.extreme("maximum", x.detach(), [dim])[0])


def softmax(s: Steps, input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """exp(x - max) divided by its sum; the maximum is a constant for the gradient. A masked score (-inf) gives 0."""
    input, axis = _entered(input, dim, _stacklevel, dtype)
    powers, again = s.fork(s.inside("softmax.exp", _shifted(s, input, axis)).masked_fill(input == -math.inf, 0.0))
    return s.div(powers, s.total(again, [axis]))


def softmin(s: Steps, input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    return softmax(s, -input, dim, _stacklevel, dtype)


def log_softmax(s: Steps, input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """x - max minus the logarithm of the sum of exp(x - max)."""
    input, axis = _entered(input, dim, _stacklevel, dtype)
    shifted, again = s.fork(_shifted(s, input, axis))
    powers = s.inside("softmax.exp", again).masked_fill(input == -math.inf, 0.0)
    return s.sub(shifted, s.log(s.total(powers, [axis])))


def logsumexp(s: Steps, input: Tensor, dim: int | Sequence[int] | None, keepdim: bool = False) -> Tensor:
    x = s.enter(input)
    top = s.extreme("maximum", x.detach(), listed(dim))[0]
    return shaped(s.add(s.log(s.total(s.exp(s.sub(x, top)), listed(dim))), top), input, dim, keepdim)


_SIGNATURE = "input dim=-1 _stacklevel=3 dtype=None"
# compare, subtract, exponentiate, add, divide; multiply by the output, add, subtract, multiply
_ROWS: dict[str, Any] = {"results": 5, "inner": "softmax.exp", "gradient": {"results": 4}}

ENTRIES: list[OpEntry] = [
    function(
        "softmax", "softmax", aten="softmax", backward="softmax_backward_data", program=softmax, inside="softmax.exp",
        signature=_SIGNATURE, width="float32", last_axis=True,
        **{**_ROWS, "gradient": {**_ROWS["gradient"], "attention": "scores"}},
    ),
    function(
        "log_softmax", "softmax", backward="log_softmax_backward_data", program=log_softmax, inside="softmax.exp",
        signature=_SIGNATURE, ends_model=True, width="float32", last_axis=True, **_ROWS,
    ),
    function("softmin", aten="", backward="", program=softmin, inside="softmax.exp", signature=_SIGNATURE),
    *plain("softmax", "safe_softmax", results=5, inner="softmax.exp", attention="scores"),
    OpEntry(name="softmax.exp", exact=exponential),
    function("gumbel_softmax", aten="", backward=""),
    function("logsumexp", "reduction", backward="", program=logsumexp, width="float32"),
]  # fmt: skip
