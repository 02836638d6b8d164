"""The rounding of every step of a program, which the executions are handed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class StepRounding:
    """How the argument, every constant and every result of a program are rounded."""

    value: Callable[[float], float]
    """One number, rounded."""
    tensor: "Callable[[Tensor], Tensor]"
    """Every number of a tensor, rounded."""
    is_narrow: bool
    """Whether rounding a result of float32 arithmetic again is harmless; otherwise a step is computed in float64."""
