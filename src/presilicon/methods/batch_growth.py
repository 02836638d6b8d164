"""Batch growth (Smith et al., "Don't Decay the Learning Rate, Increase the Batch Size", arXiv 1711.00489).

The noise of an update is proportional to rate x N / (batch x (1 - momentum)), so a larger batch anneals training as a
lower rate does, with fewer updates. The source grows the batch at fixed epochs; growing it when the loss stalls, and
all defaults, are ours.
"""

from statistics import fmean
from typing import Annotated, Any

from msgspec import Meta, Struct

from presilicon.base import ConfigError
from presilicon.designs import AttachedMethod, Design, Method, Proceed, TrainingRun, TrainingStep


class BatchGrowth(
    Method, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name", tag="batch-growth"
):
    """Multiplies the batch whenever the training loss stalls, instead of lowering the learning rate."""

    in_training = "larger batches once the loss stalls, so fewer updates"
    in_hardware = "each step is priced at its own batch size"

    factor: Annotated[int, Meta(ge=2, le=64)] = 2
    """The batch is multiplied by this much."""
    window: Annotated[int, Meta(ge=1, le=1_000_000)] = 50
    """Steps over which losses are averaged; two such windows are compared."""
    improvement: Annotated[float, Meta(ge=0, lt=1)] = 0.1
    """The loss stalls when a window's mean is lower than that of the window before it by less than this fraction."""
    limit: Annotated[int, Meta(ge=2, le=1 << 20)] = 8
    """The largest multiple of the workload's own batch."""

    def check(self) -> None:
        """One growth must be allowed."""
        if self.limit < self.factor:
            raise ConfigError(f"limit must be at least factor = {self.factor}, not {self.limit}: the batch cannot grow")

    def check_design(self, design: Design) -> None:
        """An update must use a batch."""
        if design.machine.update_rule.per_sample:
            raise ConfigError(
                "methods: batch-growth changes the samples of an update, but this machine updates after every sample; "
                "choose another machine or schedule"
            )

    def attach(self, training: TrainingRun) -> AttachedMethod:
        """See `_Growing`."""
        return _Growing(self, training.train_samples)


class _Growing(AttachedMethod):
    """The multiple of the batch in force, and the step since which it is."""

    def __init__(self, parameters: BatchGrowth, train_samples: int | None) -> None:
        self._parameters, self._train_samples = parameters, train_samples
        self._multiple, self._since = 1, 0

    def step(self, step: TrainingStep, proceed: Proceed) -> None:
        """Grow the batch before it is fetched."""
        if self._is_stalled(step) and self._can_grow(step.batch_size):
            self._multiple *= self._parameters.factor
            self._since = step.number
        step.batch_size *= self._multiple
        proceed()

    def _is_stalled(self, step: TrainingStep) -> bool:
        window = self._parameters.window
        if step.number - self._since < 2 * window:
            return False
        latest, before = fmean(step.losses[-window:]), fmean(step.losses[-2 * window : -window])
        return latest > (1 - self._parameters.improvement) * before

    def _can_grow(self, batch_size: int) -> bool:
        """Whether the grown batch is within the limit, and within an epoch."""
        multiple = self._multiple * self._parameters.factor
        fits = self._train_samples is None or multiple * batch_size <= self._train_samples
        return multiple <= self._parameters.limit and fits

    def state_dict(self) -> dict[str, Any]:
        """The multiple, and the step since which it holds."""
        return {"multiple": self._multiple, "since": self._since}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        self._multiple, self._since = int(state["multiple"]), int(state["since"])
