"""Execution of a formula in rounded steps: each addition, product and function in it is a step, with its gradient."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from presilicon.emulation.steps.primitives import Number, RoundedSteps, has_steps
from presilicon.ops import OpEntry, compile_formula, formula_of, operands
from presilicon.programs import Program, ProgramInstruction

_STEPS = frozenset(["add", "sub", "mul", "div", "neg", "exp", "log", "sqrt"])
_CONDITIONS: dict[str, Callable[..., Tensor]] = {
    "lt": torch.lt, "le": torch.le, "eq": torch.eq, "ne": torch.ne, "and": torch.logical_and, "or": torch.logical_or,
    "not": torch.logical_not,
}  # fmt: skip
_OTHERS = frozenset(["read", "constant", "integer", "truth", "size", "axis", "number", "select", "abs", "min", "max"])


def steps_of(entry: OpEntry) -> Callable[..., Any] | None:
    """The computation of an entry in steps, by its program or else its formula; None if neither has steps alone."""
    if entry.program is not None:
        return entry.program if has_steps(entry) else None
    formula = None if entry.forward is None else formula_of(entry.forward)
    if formula is None or not is_stepwise(program := compile_formula(formula)):
        return None
    names = operands(formula)

    def compute(steps: RoundedSteps, *args: Any, **kwargs: Any) -> Tensor:
        # Operands have names of torch's, which the formula need not have: the first is `input` in all of its functions.
        named = {names[0] if key == "input" and key not in names else key: value for key, value in kwargs.items()}
        given = dict(zip(names, args, strict=False)) | named
        if len(args) > len(names) or given.keys() != set(names):
            raise TypeError(f"{entry.name} takes {names}")
        return run_formula(steps, program, given)

    return compute


def is_stepwise(program: Program) -> bool:
    """Whether every instruction of a program is a step, a comparison or a choice."""
    known = _STEPS | _CONDITIONS.keys() | _OTHERS
    return not program.has_reductions and all(step.operation in known for step in program.instructions)


def run_formula(steps: RoundedSteps, program: Program, given: Mapping[str, Number]) -> Tensor:
    """The result of a program of numbers, element by element.

    A value that is used several times is forked, so that its gradients are added by steps. A choice passes the error to
    the side that was chosen, and none to the other, whatever its derivative is; conditions are exact and have no
    gradient.
    """
    run = _Run(steps, program, given)
    for instruction in program.instructions:
        run.values.append(run.compute(instruction))
    out = run.tensor(program.outputs[0])
    shape = torch.broadcast_shapes(*(value.shape for value in given.values() if isinstance(value, Tensor)))
    return out if out.shape == shape else out.expand(shape).clone()  # a result that no operand is in


class _Run:
    def __init__(self, steps: RoundedSteps, program: Program, given: Mapping[str, Number]) -> None:
        self.steps, self.given = steps, given
        self.device = next(value.device for value in given.values() if isinstance(value, Tensor))
        self.values: list[Number] = []
        self.uses = Counter(argument for step in program.instructions for argument in step.arguments)
        self.uses.update(program.outputs)

    def use(self, register: int) -> Number:
        """A value for one of its uses."""
        value = self.values[register]
        self.uses[register] -= 1
        if not isinstance(value, Tensor) or not self.uses[register] or not value.requires_grad:
            return value
        first, self.values[register] = self.steps.fork(value)
        return first

    def tensor(self, register: int) -> Tensor:
        """A value for a use, as a tensor."""
        value = self.use(register)
        return value if isinstance(value, Tensor) else self.steps.enter(value)

    def plain(self, register: int) -> Tensor:
        """A value for a condition: it has no gradient, and a constant is not rounded."""
        value = self.values[register]
        self.uses[register] -= 1
        return (
            value.detach()
            if isinstance(value, Tensor)
            else torch.tensor(float(value), dtype=torch.float64, device=self.device)
        )

    def compute(self, step: ProgramInstruction) -> Number:
        operation, arguments = step.operation, step.arguments
        if operation in _STEPS:
            # The side of a choice that was not chosen has no error, and must not get one from a pole there.
            return self.steps.step(operation, *(self.use(argument) for argument in arguments), keeps_zeros=True)
        if operation in _CONDITIONS:
            return _CONDITIONS[operation](*(self.plain(argument) for argument in arguments))
        match operation:
            case "read":
                value = self.given[step.name]
                return self.steps.enter(value) if isinstance(value, Tensor) else value
            case "constant" | "integer" | "truth":
                return step.value
            case "number":
                return self.use(arguments[0])
            case "abs":
                first, second = self.steps.fork(self.tensor(arguments[0]))
                return self.steps.maximum(first, self.steps.neg(second), halves=True)
            case "min" | "max":
                name = "minimum" if operation == "min" else "maximum"
                return self.steps.step(name, *(self.use(argument) for argument in arguments))
            case "select":
                return torch.where(self.plain(arguments[0]) != 0, self.tensor(arguments[1]), self.tensor(arguments[2]))
            case _:  # sizes and index variables
                return 0.0
