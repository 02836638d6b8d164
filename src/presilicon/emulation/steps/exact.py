"""The steps of a program in plain torch, around a function that a custom operator replaces."""

# ruff: noqa: D102 - a method without a docstring is the step of its name

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from presilicon.ops import axes

Number = Tensor | float


class ExactSteps:
    """Steps that torch computes and differentiates; functions inside are those of `replaced`, by name."""

    def __init__(self, replaced: Mapping[str, Callable[[Tensor], Tensor]], like: Tensor) -> None:
        """`like` is a tensor with the type and the device of the numbers."""
        self._replaced, self._like = replaced, like

    def enter(self, x: Number) -> Tensor:
        if isinstance(x, Tensor):
            return x
        return torch.tensor(float(x), dtype=self._like.dtype, device=self._like.device)

    def add(self, a: Number, b: Number) -> Tensor:
        return self.enter(a) + b

    def sub(self, a: Number, b: Number) -> Tensor:
        return self.enter(a) - b

    def mul(self, a: Number, b: Number) -> Tensor:
        return self.enter(a) * b

    def div(self, a: Number, b: Number) -> Tensor:
        return self.enter(a) / b

    def neg(self, a: Number) -> Tensor:
        return -self.enter(a)

    def exp(self, a: Number) -> Tensor:
        return self.enter(a).exp()

    def log(self, a: Number) -> Tensor:
        return self.enter(a).log()

    def sqrt(self, a: Number) -> Tensor:
        return self.enter(a).sqrt()

    def square(self, a: Tensor) -> Tensor:
        return a.square()

    def maximum(self, a: Number, b: Number, *, halves: bool = False) -> Tensor:
        return torch.maximum(self.enter(a), self.enter(b))

    def minimum(self, a: Number, b: Number, *, halves: bool = False) -> Tensor:
        return torch.minimum(self.enter(a), self.enter(b))

    def root(self, squares: Tensor) -> Tensor:
        return self._replaced.get("rsqrt", torch.rsqrt)(squares)

    def over(self, a: Tensor, root: Tensor) -> Tensor:
        return a * root

    def inside(self, name: str, x: Tensor) -> Tensor:
        own = self._replaced.get(name)
        result: Tensor = getattr(torch, name.rpartition(".")[2])(x) if own is None else own(x)
        if name == "softmax.exp":  # a score may be finite and overflow as it is shifted, as masks in float16 do
            result = result.masked_fill(x == -math.inf, 0.0)
        return result

    def fork(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x

    def total(self, x: Tensor, dims: Sequence[int] | None = None) -> Tensor:
        return x.sum(axes(x, dims), keepdim=True)

    def mean(self, x: Tensor, dims: Sequence[int] | None = None) -> Tensor:
        return x.mean(axes(x, dims), keepdim=True)

    def extreme(
        self, name: str, x: Tensor, dims: Sequence[int] | None = None, *, shared: bool = False
    ) -> tuple[Tensor, Tensor]:
        assert dims is not None
        assert len(dims) == 1
        found = x.max(dims[0], keepdim=True) if name == "maximum" else x.min(dims[0], keepdim=True)
        return found.values, found.indices
