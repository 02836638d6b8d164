"""Protocols through which rooms work together without importing each other."""

from typing import Any, Literal, Protocol, runtime_checkable

from presilicon.records.graph import Role
from presilicon.records.trace import StepFacts


@runtime_checkable
class Observer(Protocol):
    """Sees every tensor that emulation rounds: an instrument, a statistic, a test."""

    def __call__(self, step: int, layer: str, role: Role, tensor: Any) -> None:
        """Receive a rounded torch tensor, which must not be modified or kept."""


@runtime_checkable
class PairObserver(Observer, Protocol):
    """An observer that also sees each tensor before it was rounded."""

    @property
    def wants_pairs(self) -> bool:
        """Whether it wants pairs at this step. Asked often, so that a step without pairs costs nothing."""
        ...

    def pair(self, step: int, layer: str, role: Role, before: Any, after: Any) -> None:
        """Receive a torch tensor before and after rounding; neither may be modified or kept."""


@runtime_checkable
class TrainingHook(Protocol):
    """Code that runs before and after each training step."""

    def before_step(self, step: int) -> None:
        """Called before the forward pass of a training step."""

    def after_step(self, step: int, facts: StepFacts) -> StepFacts:
        """Called after the update; returns the facts of the step with the method's own added."""
        ...


@runtime_checkable
class AttachedHook(TrainingHook, Protocol):
    """A training hook that needs the model and the optimizer, such as an instrument that sets the learning rate."""

    def attach(self, model: Any, optimizer: Any, step: int) -> None:
        """Called once before the first step, with the torch model, the optimizer and the number of that step."""


@runtime_checkable
class Stateful(Protocol):
    """An object that carries state from one training step to the next: an optimizer, a loss scaler, a hook.

    The state consists of dicts, lists, tuples, tensors, numbers, strings and None.
    """

    def state_dict(self) -> dict[str, Any]:
        """The current state."""
        ...

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        """Restore a state."""
        ...


@runtime_checkable
class PassiveHook(Protocol):
    """A hook that does not affect training: a run checkpointed without it can continue with it, and the reverse."""

    is_passive: Literal[True]
