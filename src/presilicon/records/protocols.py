"""The protocols by which rooms meet without importing each other."""

from typing import Any, Protocol, runtime_checkable

from presilicon.records.cost import Cost
from presilicon.records.graph import Role, StepGraph
from presilicon.records.trace import StepFacts


@runtime_checkable
class Observer(Protocol):
    """Sees every tensor that emulation rounds: an instrument, a statistic, a test."""

    def __call__(self, step: int, layer: str, role: Role, tensor: Any) -> None:
        """Look at a rounded torch tensor; it must not be changed or kept."""


@runtime_checkable
class PairObserver(Observer, Protocol):
    """An observer that also sees what tensors were before they were rounded."""

    @property
    def wants_pairs(self) -> bool:
        """Whether it would look at any now; asked often, so that looking at none costs nothing."""
        ...

    def pair(self, step: int, layer: str, role: Role, before: Any, after: Any) -> None:
        """Look at a torch tensor before and after rounding; neither must be changed or kept."""


@runtime_checkable
class TrainingHook(Protocol):
    """What a training method does to training."""

    def before_step(self, step: int) -> None:
        """Called before the forward pass of a training step."""

    def after_step(self, step: int, facts: StepFacts) -> StepFacts:
        """Called after the update; returns the facts of the step with the method's own added."""
        ...


@runtime_checkable
class AttachedHook(TrainingHook, Protocol):
    """A training hook that wants to know what is trained: an instrument that checks names and sets a learning rate."""

    def attach(self, model: Any, optimizer: Any, step: int) -> None:
        """Called once, with the torch model and optimizer, before the first step, whose number it is."""


@runtime_checkable
class CostRule(Protocol):
    """What a training method does to the cost of a step."""

    def __call__(self, graph: StepGraph, facts: StepFacts, cost: Cost) -> Cost:
        """The cost of the step with the method in force."""
        ...
