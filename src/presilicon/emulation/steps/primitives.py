"""The primitive steps of vector ops, with gradients whose own steps are computed in the arithmetic of errors.

The gradient of a step is the textbook one of the exact operation, evaluated at the values that the step had: a user's
`mul` has the gradients `mul(error, b)` and `mul(error, a)`. A tensor that two steps of an op use receives the sum of
their gradients by `add`.
"""

# ruff: noqa: D102 - a method without a docstring is the step of its name

from collections.abc import Sequence
from functools import partialmethod
from math import copysign
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from presilicon.emulation.ops.autograd import first_derivative
from presilicon.emulation.steps.lines import Line
from presilicon.ops import OpEntry, axes, entry_named

Number = Tensor | float


STEPS = frozenset(["add", "sub", "mul", "div", "neg", "exp", "log", "sqrt", "maximum", "minimum"])


def has_steps(entry: OpEntry) -> bool:
    """Whether an entry has a program of steps, and so has the function inside it."""
    if entry.program is None or not entry.inner:
        return entry.program is not None
    short = entry.inner.rpartition(".")[2]
    inner = entry_named(short)
    return short in STEPS or (inner is not None and has_steps(inner))


class RoundedSteps:
    """Add, multiply and the other steps, on tensors and numbers."""

    def __init__(self, forward: Line, backward: Line, like: Tensor) -> None:
        """`like` is a tensor with the type and the device of the numbers."""
        self.forward, self.backward = forward, backward
        self._like = like
        self._numbers: dict[tuple[float, float], Tensor] = {}
        """By the number and its sign, as 0.0 equals -0.0."""

    def enter(self, x: Number) -> Tensor:
        """A tensor or number in the format of activations; its gradient passes unchanged."""
        if isinstance(x, Tensor):
            x = x if x.is_floating_point() else x.to(self._like.dtype)
            if not torch.is_grad_enabled():
                return self.forward.enter(x)
            entered: Tensor = _Enter.apply(x, self.forward)
            return entered
        key = x, copysign(1.0, x)
        if key not in self._numbers:
            self._numbers[key] = self.forward.enter(
                torch.tensor(float(x), dtype=self._like.dtype).to(self._like.device)
            )
        return self._numbers[key]

    def step(self, name: str, *operands: Number, halves: bool = False, keeps_zeros: bool = False) -> Tensor:
        """One step; the larger or smaller of two that are equal may pass on half of its gradient to each.

        With `keeps_zeros` an error of 0 gives gradients of 0, even where the derivative is infinite.
        """
        tensors = [x if isinstance(x, Tensor) else self.enter(x) for x in operands]
        if not torch.is_grad_enabled():
            return self.forward.compute(name, *tensors)
        out: Tensor = _Step.apply(self, name, halves, keeps_zeros, *tensors)
        return out

    add = partialmethod(step, "add")
    sub = partialmethod(step, "sub")
    mul = partialmethod(step, "mul")
    div = partialmethod(step, "div")
    neg = partialmethod(step, "neg")
    exp = partialmethod(step, "exp")
    log = partialmethod(step, "log")
    sqrt = partialmethod(step, "sqrt")
    maximum, minimum = partialmethod(step, "maximum"), partialmethod(step, "minimum")
    """The larger and the smaller of two; of equal ones the first, which gets the gradient unless `halves` is set."""

    def square(self, a: Tensor) -> Tensor:
        return self.mul(*self.fork(a))

    def root(self, squares: Tensor) -> Tensor:
        return self.sqrt(squares)

    def over(self, a: Tensor, root: Tensor) -> Tensor:
        return self.div(a, root)

    def inside(self, name: str, x: Tensor) -> Tensor:
        """A function inside another one: a step of its own, or as its own program says."""
        short = name.rpartition(".")[2]
        if short in STEPS:
            return self.step(short, x)
        entry = entry_named(short)
        assert entry is not None
        assert entry.program is not None
        out: Tensor = entry.program(self, x)
        return out

    def fork(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`x` for two uses, whose gradients are added by a step."""
        if not torch.is_grad_enabled():
            return x, x
        first, second = _Fork.apply(x, self.backward)
        return first, second

    def total(self, x: Tensor, dims: Sequence[int] | None = None) -> Tensor:
        """The sum over some axes, or all, which stay with length 1."""
        out: Tensor = _Total.apply(x, self.forward, axes(x, dims))
        return out

    def mean(self, x: Tensor, dims: Sequence[int] | None = None) -> Tensor:
        """The sum, times the converted reciprocal of the number of terms."""
        chosen = axes(x, dims)
        count = 1
        for axis in chosen:
            count *= x.shape[axis]
        return self.mul(self.total(x, chosen), 1 / count if count else float("nan"))

    def extreme(
        self, name: str, x: Tensor, dims: Sequence[int] | None = None, *, shared: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The maximum or minimum over some axes, or all, and its index among them; the axes stay with length 1.

        The gradient goes to the first of equal elements, or is `shared` by all of them.
        """
        values, indices = _Extreme.apply(x, self, name, axes(x, dims), shared)
        return values, indices


def _whole(out: Tensor) -> Tensor:
    """A result that may be changed in place, which autograd refuses for views; `.data` is the same memory."""
    return out.data if out._is_view() else out


class _Enter(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, line: Line) -> Tensor:
        entered = line.enter(x)
        return x.view_as(x) if entered is x else _whole(entered)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, error: Tensor) -> tuple[Tensor, None]:
        return error, None


class _Step(Function):
    @staticmethod
    def forward(
        ctx: Any, steps: "RoundedSteps", name: str, halves: bool, keeps_zeros: bool, *operands: Tensor
    ) -> Tensor:
        out = steps.forward.compute(name, *operands)
        ctx.steps, ctx.name, ctx.shapes = steps, name, [operand.shape for operand in operands]
        ctx.keeps_zeros = keeps_zeros
        # Only what the gradients read, so that a later op may change the result in place where torch's own may.
        saved: tuple[Tensor, ...] = ()
        if name in ("maximum", "minimum"):
            saved = (out == operands[0], operands[0] == operands[1]) if halves else (out == operands[0],)
        elif name in ("exp", "sqrt"):
            saved = (out,)
        elif name == "div":
            saved = (operands[1], out.clone())
        elif name in ("mul", "log"):
            saved = operands
        ctx.save_for_backward(*saved)
        return _whole(out)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, error: Tensor) -> tuple[Any, ...]:
        line: Line = ctx.steps.backward
        saved = ctx.saved_tensors  # read once, because activation checkpointing recomputes at every read
        gradients: list[Tensor | None] = []
        for position, (shape, needed) in enumerate(zip(ctx.shapes, ctx.needs_input_grad[4:], strict=True)):
            gradient = _gradient(line, ctx.name, position, error, saved) if needed else None
            if gradient is not None and ctx.keeps_zeros:
                gradient = gradient.masked_fill(error == 0, 0.0)
            gradients.append(None if gradient is None else _fit(line, gradient, shape))
        return None, None, None, None, *gradients


def _gradient(line: Line, name: str, position: int, error: Tensor, saved: tuple[Tensor, ...]) -> Tensor:
    """The gradient of one operand of a step, from what the step has saved."""
    do = line.compute
    match name, position:
        case ("add", _) | ("sub", 0):
            return error
        case ("sub", 1) | ("neg", 0):
            return do("neg", error)
        case ("mul", _):
            return do("mul", error, saved[1 - position])
        case ("div", 0):
            return do("div", error, saved[0])
        case ("div", 1):
            return do("neg", do("div", do("mul", error, saved[1]), saved[0]))
        case ("exp", _):  # no error stays none where the power has overflowed, as in 1 / (1 + exp(-x))
            return do("mul", error, saved[0]).masked_fill(error == 0, 0.0)
        case ("log", _):
            return do("div", error, saved[0])
        case ("sqrt", _):
            return do("div", error, do("add", saved[0], saved[0]))
        case _:  # maximum and minimum
            chosen = torch.where(saved[0] if position == 0 else ~saved[0], error, 0.0)
            return chosen if len(saved) == 1 else torch.where(saved[1], line.share(error, 2), chosen)


def _fit(line: Line, gradient: Tensor, shape: torch.Size) -> Tensor:
    """A gradient summed over the axes that broadcasting added to an operand."""
    if gradient.shape == shape:
        return gradient
    added = gradient.dim() - len(shape)
    spread = tuple(
        axis for axis, size in enumerate(gradient.shape) if axis < added or (shape[axis - added] == 1 and size != 1)
    )
    return line.total(gradient, spread).reshape(shape)


class _Fork(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, line: Line) -> tuple[Tensor, Tensor]:
        ctx.line = line
        return x.view_as(x), x.view_as(x)

    @staticmethod
    def backward(ctx: Any, first: Tensor, second: Tensor) -> tuple[Tensor, None]:
        return ctx.line.compute("add", first, second), None


class _Total(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, line: Line, dims: tuple[int, ...]) -> Tensor:
        ctx.shape = x.shape
        out = line.total(x, dims)
        return out.clone() if out is x else _whole(out)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, error: Tensor) -> tuple[Tensor, None, None]:
        return error.expand(ctx.shape), None, None


class _Extreme(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, steps: "RoundedSteps", name: str, dims: tuple[int, ...], shared: bool
    ) -> tuple[Tensor, Tensor]:
        values, indices = steps.forward.extreme(name, x, dims)
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(x == values if shared else indices)
        ctx.shape, ctx.dims, ctx.line, ctx.shared = x.shape, dims, steps.backward, shared
        return _whole(values), indices

    @staticmethod
    def backward(ctx: Any, error: Tensor, _: Tensor) -> tuple[Tensor, None, None, None, None]:
        (indices,) = ctx.saved_tensors
        if ctx.shared:
            count = indices.sum(ctx.dims, keepdim=True) if ctx.dims else indices.long()
            part = torch.where(count > 1, ctx.line.share(error, count), error)
            return torch.where(indices, part, 0.0), None, None, None, None
        sizes = [ctx.shape[axis] for axis in ctx.dims]
        number = torch.arange(torch.Size(sizes).numel(), device=error.device).reshape(
            [size if axis in ctx.dims else 1 for axis, size in enumerate(ctx.shape)]
        )
        return torch.where(number == indices, error, 0.0), None, None, None, None
