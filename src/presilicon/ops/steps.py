"""The primitive steps in which programs of entries are written.

Whoever executes a program brings the steps: emulation rounds each one and computes gradients in the arithmetic of
errors; plain torch computes them exactly around a custom operator.
"""

# ruff: noqa: D102 - a method without a docstring is the step of its name

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    Number = Tensor | float


class Steps(Protocol):
    """Add, multiply and the other steps, on tensors and numbers."""

    def enter(self, x: "Number") -> "Tensor":
        """A tensor or number in the format of activations; its gradient passes unchanged."""

    def add(self, a: "Number", b: "Number") -> "Tensor": ...
    def sub(self, a: "Number", b: "Number") -> "Tensor": ...
    def mul(self, a: "Number", b: "Number") -> "Tensor": ...
    def div(self, a: "Number", b: "Number") -> "Tensor": ...
    def neg(self, a: "Number") -> "Tensor": ...
    def exp(self, a: "Number") -> "Tensor": ...
    def log(self, a: "Number") -> "Tensor": ...
    def sqrt(self, a: "Number") -> "Tensor": ...
    def square(self, a: "Tensor") -> "Tensor": ...

    def maximum(self, a: "Number", b: "Number", *, halves: bool = False) -> "Tensor":
        """The larger of two; of equal ones the first, which gets the gradient unless each gets `halves` of it."""

    def minimum(self, a: "Number", b: "Number", *, halves: bool = False) -> "Tensor":
        """The smaller of two, as for `maximum`."""

    def root(self, squares: "Tensor") -> "Tensor":
        """The square root that a tensor is divided by, or the reciprocal of it."""

    def over(self, a: "Tensor", root: "Tensor") -> "Tensor":
        """A tensor divided by what `root` has returned."""

    def inside(self, name: str, x: "Tensor") -> "Tensor":
        """A function inside another one, which a custom operator can replace: `sigmoid`, `softmax.exp`."""

    def fork(self, x: "Tensor") -> "tuple[Tensor, Tensor]":
        """`x` for two uses, whose gradients are added by a step."""

    def total(self, x: "Tensor", dims: Sequence[int] | None = None) -> "Tensor":
        """The sum over some axes, or all, which stay with length 1."""

    def mean(self, x: "Tensor", dims: Sequence[int] | None = None) -> "Tensor":
        """The sum, times the reciprocal of the number of terms."""

    def extreme(
        self, name: str, x: "Tensor", dims: Sequence[int] | None = None, *, shared: bool = False
    ) -> "tuple[Tensor, Tensor]":
        """The maximum or minimum over some axes, or all, and its index among them; the axes stay with length 1.

        The gradient goes to the first of equal elements, or is `shared` by all of them.
        """


def axes(x: "Tensor", dims: Sequence[int] | int | None) -> tuple[int, ...]:
    """Axes as numbers from 0, in their order; None and no axes mean all."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(x.dim()))
    listed = [dims] if isinstance(dims, int) else dims
    return tuple(sorted(axis % max(x.dim(), 1) for axis in listed)) if x.dim() else ()


def listed(dim: int | Sequence[int] | None) -> Sequence[int] | None:
    """One axis as a list of one."""
    return [dim] if isinstance(dim, int) else dim


def shaped(out: "Tensor", input: "Tensor", dim: int | Sequence[int] | None, keepdim: bool) -> "Tensor":
    """A result without the reduced axes, unless they are kept."""
    return out if keepdim else out.reshape([size for k, size in enumerate(input.shape) if k not in axes(input, dim)])


def affine(s: Steps, x: "Tensor", weight: "Tensor | None", bias: "Tensor | None") -> "Tensor":
    """A tensor times its gain and plus its bias, where it has them."""
    x = x if weight is None else s.mul(x, s.enter(weight))
    return x if bias is None else s.add(x, s.enter(bias))


def column(part: "Tensor | None", like: "Tensor") -> "Tensor | None":
    """A number per channel as a tensor that broadcasts along a sample's channels."""
    return None if part is None else part.view(1, -1, *(1,) * (like.dim() - 2))
