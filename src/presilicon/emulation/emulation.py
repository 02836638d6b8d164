"""The state of an emulated model: which numerics are in force, at which step, in which layer."""

import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from presilicon.designs import Numerics, Override
from presilicon.emulation.operators.replacement import Replacements
from presilicon.emulation.site import Plan, Rounded, Site
from presilicon.emulation.training.probe import Probe
from presilicon.operators import Operator
from presilicon.records import Ends, Observer, PairObserver


class UncoveredWarning(UserWarning):
    """A model computes matrix products in a way that emulation does not reach."""


class Watcher(Protocol):
    """Is told what emulation does; coverage is one."""

    def region(self, layer: str, operator: str, forward: str, backward: str) -> AbstractContextManager[None]:
        """What runs inside, and its backward pass, is emulated in these formats."""
        ...

    def note_product(self, flops: int) -> None:
        """A MAC unit multiplied: no operator of torch shows it."""


def _has_logarithm(part: Numerics | Override) -> bool:
    fmt = None if part.activation is None else part.activation.format
    return fmt is not None and fmt.arithmetic is not None and fmt.arithmetic.log is not None


class Emulation:
    """What the hooks of an emulated model share. It is copied and saved with the model."""

    def __init__(
        self,
        numerics: Numerics,
        seed: int = 0,
        observers: Iterable[Observer] = (),
        ends: Ends = Ends(),
        operators: Iterable[Operator] = (),
    ) -> None:
        self.numerics = numerics
        self.seed = seed
        self.observers: tuple[Observer, ...] = tuple(observers)
        self.pair_observers = tuple(each for each in self.observers if isinstance(each, PairObserver))
        self.ends = ends
        self.step = 0
        """The number of the training step in progress, counted from 0.

        A step begins with each forward pass in training mode, and with one in evaluation mode that a backward pass
        follows; nothing under `torch.no_grad` counts.
        """
        self.watcher: Watcher | None = None
        self.probe: Probe | None = None
        """Sees tensors before and after rounding, at the steps that a diagnosis looks at."""
        self.rounded = Rounded()
        self.operators = Replacements([*numerics.make_operators(), *operators])
        """What takes the place of functions of torch."""
        self.is_idle = not self.observers and not self.operators and numerics.is_uniform and Plan(numerics).is_idle
        """Whether nothing is rounded or watched anywhere, so that the model can be left to torch."""
        parts: list[Numerics | Override] = [numerics, *numerics.overrides, *numerics.schedule]
        rounds = any(part.vector == "round-results" or _has_logarithm(part) for part in parts)
        self.touches_vectors = rounds or bool(self.operators)
        """Whether vector ops are rounded or replaced anywhere, or one is a format's own."""
        self._begun = 0
        self._awaits_backward = False
        self._layers: list[str] = []
        self._mode: AbstractContextManager[Any] | None = None
        self._calls: dict[str, int] = {}
        self._plans: dict[tuple[str, int], Plan] = {}
        self._warned: set[tuple[str, str]] = set()

    def __getstate__(self) -> dict[str, Any]:
        fresh: dict[str, Any] = {
            "_layers": [],
            "_mode": None,
            "_calls": {},
            "_plans": {},
            "rounded": Rounded(),
            "watcher": None,
            "probe": None,
        }
        return self.__dict__ | fresh

    @property
    def layer(self) -> str:
        """Qualified name of the innermost module that is running."""
        return self._layers[-1]

    @property
    def layers_seen(self) -> list[str]:
        """The layers that have computed something, in the order in which they first did."""
        return list(dict.fromkeys(layer for layer, _ in self._plans))

    def plan(self, layer: str) -> Plan:
        """What the numerics in force ask for in a layer, at this step."""
        key = (layer, self.numerics.stage(self.step)) if self.numerics.schedule else (layer, 0)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = Plan(self.numerics.in_force(layer, self.step, self.ends))
        return plan

    def enter(self, layer: str, training: bool, *, counts: bool = True) -> None:
        """A module's forward begins; the outermost one turns emulation on, and begins a step if it `counts`."""
        if not self._layers:
            # Inside a backward pass this is a recomputation (activation checkpointing) of the step in progress.
            self._awaits_backward = False
            if counts and torch.is_grad_enabled() and torch._C._current_graph_task_id() == -1:
                self.step = self._begun
                self._begun += int(training)
                self._awaits_backward = not training
            self._calls = {}
            if not self.is_idle:
                from presilicon.emulation.mode import EmulationMode

                self._mode = EmulationMode(self, training)
                self._mode.__enter__()
        self._layers.append(layer)

    def resume(self, steps: int) -> None:
        """Go on as if so many training steps had been done already."""
        self.step, self._begun = max(steps - 1, 0), steps

    def leave(self, layer: str, output: Any = None) -> None:
        """A module's forward ended, well or not; one that a user's hook stopped before it began is not ours to end."""
        if not self._layers or self._layers[-1] != layer:
            return
        self._layers.pop()
        if not self._layers:
            if self._awaits_backward:
                self._await_backward(output)
            self.rounded.clear()
            if self._mode is not None:
                self._mode.__exit__(None, None, None)
                self._mode = None

    def _await_backward(self, output: Any) -> None:
        """Count the step of a forward pass in evaluation mode when its backward pass comes."""
        step = self.step

        def begin(error: Tensor) -> None:
            self.step, self._begun = step, max(self._begun, step + 1)

        for leaf in pytree.tree_leaves(output):
            if isinstance(leaf, Tensor) and leaf.requires_grad:
                leaf.register_hook(begin)

    def warn(self, func: Callable[..., Any]) -> None:
        """Say once for each layer that a function's matrix products stay in float32: no silent gaps."""
        place = (self._layers[-1], func.__name__)
        if place not in self._warned:
            self._warned.add(place)
            message = f'layer "{place[0]}": the matrix products of {place[1]} are not emulated and stay in float32'
            warnings.warn(message, UncoveredWarning, stacklevel=4)

    def site(self, training: bool, kind: str = "") -> Site:
        """The place of the next op of the layer that is running: of its products, or of its vector ops."""
        layer = self._layers[-1]
        counter = layer + kind
        call = self._calls.get(counter, 0)
        self._calls[counter] = call + 1
        return Site(self, layer, f"{kind}{call}", training)
