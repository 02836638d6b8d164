"""The count of training steps: a step ends when an optimizer has updated the model."""

import sys
import warnings
from collections.abc import Set
from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

_PATIENCE = 256
"""Backward passes without an update after which numerics that change with the step are called out."""


class StepWarning(UserWarning):
    """The numerics depend on the training step, but no step ends or the steps of two runs do not fit."""


class UnscaledWarning(UserWarning):
    """The numerics have a loss scale that the training loop does not apply."""


class StepCount:
    """Training steps of a model and the forward passes of each.

    The passes between two updates belong to one step: micro-batches, several calls of the model, the closure of LBFGS.
    Several updates between two passes (one optimizer per group of parameters) end one step. Updates are those of torch
    optimizers that have a parameter of the model; `next_step` tells of others.
    """

    def __init__(self) -> None:
        self.step = 0
        """Index of the step in progress."""
        self.passes = 0
        """Forward passes that the step has begun."""
        self.updates = 0
        """Updates since the last forward pass."""
        self.is_pinned = False
        """Whether a training loop numbers the steps itself."""
        self.ends_with_update = True
        """Whether the next update is the last of its step; only a loop that numbers the steps may make several."""
        self.follows_all = False
        """Whether the steps of every optimizer count, for a loss that has no parameters."""
        self.seen_update = False
        self.expects_scale = False
        """Whether the first update must be one of a scaled loss."""
        self._backwards = 0
        self._backward = -1
        self._register()

    def _register(self) -> None:
        self._models: WeakSet[nn.Module] = WeakSet()
        self._optimizers: WeakSet[Optimizer] = WeakSet()
        _counts.add(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_models", "_optimizers")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._register()

    @property
    def upcoming(self) -> tuple[int, int]:
        """Step and number of the next forward pass."""
        is_over = self.updates > 0 and self.passes > 0 and not self.is_pinned
        return (self.step + 1, 0) if is_over else (self.step, self.passes)

    @property
    def last_pass(self) -> int:
        """Number of the last forward pass of this step; 0 if none has begun."""
        return max(self.passes - 1, 0)

    def begin(self, step: int, pass_number: int) -> None:
        """Count a forward pass; one that is older than the last is ignored."""
        if (step, pass_number) >= self.upcoming:
            self.step, self.passes, self.updates = step, pass_number + 1, 0

    def pin(self, step: int, passes: int) -> None:
        """Count all forward passes from now on as passes of `step`, of which `passes` are done."""
        self.step, self.passes, self.updates, self.is_pinned = step, passes, 0, True

    def restart(self, step: int) -> None:
        """Begin `step` with the next forward pass."""
        self.step, self.passes, self.updates = step, 0, 0

    def note_update(self) -> None:
        """Count an update of the model."""
        self.updates += 1
        self.seen_update = True

    def note_backward(self) -> None:
        """Warn once if many backward passes, but no update, were seen."""
        backward = torch._C._current_graph_task_id()
        if backward == self._backward or self.seen_update:
            return
        self._backward = backward
        self._backwards += 1
        if self._backwards == _PATIENCE:
            message = (
                f"{_PATIENCE} backward passes and no step of a torch optimizer: the schedule of the numerics stays at "
                "its first step; call presilicon.next_step(model) after each update of your own"
            )
            warnings.warn(message, StepWarning, stacklevel=2)

    def state_dict(self) -> dict[str, Any]:
        """The count so far."""
        return {"step": self.step, "passes": self.passes, "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue an earlier count."""
        self.step, self.passes, self.updates = int(state["step"]), int(state["passes"]), int(state["updates"])

    def watch(self, trained: nn.Module | Optimizer) -> None:
        """Count the updates of this module's parameters, or those of this optimizer."""
        if isinstance(trained, nn.Module):
            self._models.add(trained)
        else:
            self._optimizers.add(trained)

    def is_updated_by(self, optimizer: Optimizer, parameters: Set[int]) -> bool:
        """Whether an optimizer has a parameter of the model, as far as the model has run or was emulated here.

        `parameters` are the ids of the optimizer's. A loop that numbers its steps has no use for other optimizers than
        those that are emulated.
        """
        if self.follows_all or optimizer in self._optimizers:
            return True
        mine = (parameter for model in self._models for parameter in model.parameters())
        return not self.is_pinned and any(id(parameter) in parameters for parameter in mine)


_counts: WeakSet[StepCount] = WeakSet()


scaled_optimizers: WeakSet[Optimizer] = WeakSet()
"""The optimizers that a `LossScaler` steps."""


def _after_update(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    parameters = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for count in list(_counts):
        if count.is_updated_by(optimizer, parameters):
            count.note_update()
            if count.expects_scale and not count.is_pinned and not _is_scaled(optimizer):
                message = (
                    "the numerics have a loss scale, and nothing applies it: use presilicon.LossScaler(model), as "
                    "torch's GradScaler is used, or numerics without loss_scale"
                )
                warnings.warn(message, UnscaledWarning, stacklevel=2)
            count.expects_scale = False


def _is_scaled(optimizer: Optimizer) -> bool:
    """Whether a scaler steps this optimizer: ours, or a GradScaler that is running."""
    frame = sys._getframe(1)
    while optimizer not in scaled_optimizers and frame is not None:
        if isinstance(frame.f_locals.get("self"), torch.amp.GradScaler):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


register_optimizer_step_post_hook(_after_update)
