"""The loss scale of a training run, and the steps that it skipped."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from presilicon.designs import LossScale

_LARGEST = torch.finfo(torch.float32).max
"""Growth stops here, because a larger scale would make every loss infinite."""


class LossScaler:
    """Scales losses, unscales gradients, and adapts the scale by the rules of a `LossScale`.

    The arithmetic is that of torch's GradScaler: gradients are multiplied by the reciprocal of the scale, and a
    gradient that is not finite skips the whole update.

    >>> scaler = LossScaler(LossScale(kind="dynamic", initial=8.0, interval=2))
    >>> [scaler.update(finite) for finite in (True, True, False, True)]
    [8.0, 16.0, 8.0, 8.0]
    """

    def __init__(self, rule: LossScale) -> None:
        self.rule = rule
        self.scale = rule.initial if rule.kind != "none" else 1.0
        self.step = 0
        """Number of steps so far, including skipped ones."""
        self.skipped: list[int] = []
        self._good = 0

    @property
    def is_active(self) -> bool:
        """Whether losses are scaled."""
        return self.rule.kind != "none"

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss times the scale, for the backward pass."""
        return loss * self.scale if self.is_active else loss

    @torch.no_grad()
    def unscale_(self, parameters: Iterable[nn.Parameter]) -> bool:
        """Divide the gradients by the scale, in place; returns whether all of them are finite."""
        finite = True
        for parameter in parameters:
            if parameter.grad is None:
                continue
            if parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()
            values = parameter.grad._values() if parameter.grad.is_sparse else parameter.grad
            if self.is_active:
                values.mul_(1.0 / self.scale)
            finite = finite and bool(values.isfinite().all())
        return finite

    def update(self, finite: bool, step: int | None = None) -> float:
        """The scale of the next update, after one whose gradients were finite or not.

        `step` is the training step, where a step has several updates; by default every update is a step.
        """
        rule = self.rule
        self.step = self.step if step is None else step
        if not finite and self.step not in self.skipped[-1:]:
            self.skipped.append(self.step)
        self.step += 1
        if rule.kind in ("dynamic", "enhanced"):
            if finite:
                self._good += 1
                if self._good == rule.interval:
                    larger, self._good = self.scale * rule.growth, 0
                    self.scale = larger if larger <= _LARGEST else self.scale
            else:
                self.scale, self._good = self.scale * rule.backoff, 0
            self.scale = max(self.scale, rule.minimum_at(self.step))
        return self.scale

    def state_dict(self) -> dict[str, Any]:
        """Scale, counters and skipped steps."""
        return {"scale": self.scale, "good": self._good, "step": self.step, "skipped": list(self.skipped)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        self.scale, self._good, self.step = float(state["scale"]), int(state["good"]), int(state["step"])
        self.skipped = [int(step) for step in state["skipped"]]
