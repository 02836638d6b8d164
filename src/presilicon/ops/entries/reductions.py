"""Entries of sums, means, extremes and other reductions."""

# ruff: noqa: D103 - a function without a docstring is the program of the torch function of its name

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from presilicon.base import torch
from presilicon.ops.entries.elementwise import square
from presilicon.ops.entry import OpEntry, function, plain
from presilicon.ops.steps import Steps, axes, listed, shaped

if TYPE_CHECKING:
    from torch import Tensor

Dims = int | Sequence[int] | None


def total(s: Steps, input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return NotImplemented if dtype is not None else shaped(s.total(s.enter(input), listed(dim)), input, dim, keepdim)


def mean(s: Steps, input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return NotImplemented if dtype is not None else shaped(s.mean(s.enter(input), listed(dim)), input, dim, keepdim)


def amax(s: Steps, input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    return shaped(s.extreme("maximum", s.enter(input), listed(dim), shared=True)[0], input, dim, keepdim)


def amin(s: Steps, input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    return shaped(s.extreme("minimum", s.enter(input), listed(dim), shared=True)[0], input, dim, keepdim)


def largest(s: Steps, input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    return _extreme(s, "maximum", input, dim, keepdim)


def smallest(s: Steps, input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    return _extreme(s, "minimum", input, dim, keepdim)


def _extreme(s: Steps, name: str, input: Tensor, dim: Any, keepdim: bool) -> Any:
    if isinstance(dim, torch.Tensor):
        larger = s.maximum if name == "maximum" else s.minimum
        return larger(s.enter(input), s.enter(dim), halves=True)
    values, indices = s.extreme(name, s.enter(input), listed(dim), shared=dim is None)
    if dim is None:
        return values.reshape(())
    kind = torch.return_types.max if name == "maximum" else torch.return_types.min
    return kind((shaped(values, input, dim, keepdim), shaped(indices, input, dim, keepdim)))


def variance(
    s: Steps, input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None
) -> Tensor:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    correction = (1 if unbiased is None else int(unbiased)) if correction is None else correction
    chosen = axes(input, dim)
    count = math.prod(input.shape[axis] for axis in chosen)
    first, second = s.fork(s.enter(input))
    squares = s.square(s.sub(first, s.mean(second, chosen)))
    return shaped(s.mul(s.total(squares, chosen), 1 / max(count - correction, 1)), input, dim, keepdim)


def deviation(s: Steps, *args: Any, **kwargs: Any) -> Tensor:
    return _root(s, variance(s, *args, **kwargs))


def _root(s: Steps, squares: Tensor) -> Tensor:
    """The root of a sum of squares, with the slope 0 where that is 0, and not 0 / 0."""
    is_zero = squares == 0
    return s.sqrt(squares.masked_fill(is_zero, 1.0)).masked_fill(is_zero, 0.0)


def norm(s: Steps, input: Tensor, p: Any = "fro", dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if p not in ("fro", 2) or dtype is not None:
        return NotImplemented
    return shaped(_root(s, s.total(square(s, input), listed(dim))), input, dim, keepdim)


def _reduction(name: str, **facts: Any) -> OpEntry:
    return function(name, "reduction", backward="", **facts)


_RETURNS_WIDE: dict[str, Any] = {"width": "float32-result"}

ENTRIES: list[OpEntry] = [
    _reduction("sum", program=total, **_RETURNS_WIDE),
    _reduction("mean", program=mean, table_kind="Mean"),
    _reduction("amax", program=amax),
    _reduction("amin", program=amin),
    _reduction("max", program=largest),
    _reduction("min", program=smallest),
    _reduction("var", program=variance),
    _reduction("std", program=deviation),
    _reduction("norm", program=norm, **_RETURNS_WIDE),
    *(_reduction(name, **_RETURNS_WIDE) for name in ("prod", "cumprod", "cumsum")),
    *(_reduction(name, table_kind="Mean") for name in ("var_mean", "std_mean")),
    *map(_reduction, ("nansum", "logcumsumexp", "trace")),
    _reduction("vector_norm", aten="linalg_vector_norm", **_RETURNS_WIDE),
    *plain("reduction", "aminmax argmax argmin any all count_nonzero"),
    *plain("reduction", "topk sort median kthvalue", is_library=True),
    *(function(name, aten="", backward="") for name in (
        "nanmean", "cosine_similarity", "pairwise_distance", "normalize", "diff", "trapezoid", "trapz")),
    function("dist", "other", backward="", multiplies=False, width="float32"),
]  # fmt: skip
