"""A training step as CUDA graphs: the same kernels in the same order, started without Python.

A small network does not keep a GPU busy, because Python starts its kernels one by one. After some eager steps, the
forward and backward pass are recorded as a CUDA graph, and so is the update, if it is the same in every step. Replayed,
they compute the same bits.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from presilicon.designs import Numerics
from presilicon.formats import key_bank
from presilicon.workloads import Schedule, Workload

EAGER_STEPS = 3
"""Steps before the capture, in which libraries choose their kernels and the optimizer creates its state."""


class Outcome(NamedTuple):
    """Result of a forward and backward pass."""

    loss: float
    is_finite: bool
    """Whether all gradients are."""


def can_capture(workload: Workload, numerics: Numerics) -> bool:
    """Whether each step runs the same kernels on the same data, but for the batch.

    Changing formats take other arguments in every step, and so does a loss scale that moves.
    """
    is_plain = numerics.loss_scale.kind == "none" and not numerics.schedule and numerics.operators is None
    return is_plain and workload.accumulate == 1


class CapturedStep:
    """Forward, backward and update of one model on batches of one shape."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        batch: tuple[Tensor, Tensor],
        compute_loss: Callable[[Tensor, Tensor], Tensor],
        update: Callable[[], None] | None,
    ) -> None:
        """`update` is None where updates differ from step to step, and the caller makes them."""
        self._inputs, self._targets = (tensor.clone() for tensor in batch)
        self._passes = torch.cuda.CUDAGraph()
        self._keys = key_bank(self._inputs.device)
        optimizer.zero_grad()
        with self._keys.recording(), torch.cuda.graph(self._passes):
            loss = compute_loss(self._inputs, self._targets)
            loss.backward()
            self._gradients = [(p, p.grad) for p in model.parameters() if p.grad is not None]
            is_finite = torch.stack([gradient.isfinite().all() for _, gradient in self._gradients]).all()
            self._outcome = torch.stack([loss.detach().double(), is_finite.double()])
        self._update: torch.cuda.CUDAGraph | None = None
        if update is not None:
            self._update = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._update):
                update()

    def fits(self, inputs: Tensor, targets: Tensor) -> bool:
        """Whether a batch has the shape of the captured one."""
        return inputs.shape == self._inputs.shape and targets.shape == self._targets.shape

    def launch(self, step: int, inputs: Tensor, targets: Tensor) -> None:
        """Start the forward and backward pass of a training step."""
        self._keys.write(step)
        self._inputs.copy_(inputs)
        self._targets.copy_(targets)
        self._passes.replay()

    def outcome(self) -> Outcome:
        """Wait for the passes."""
        loss, is_finite = self._outcome.tolist()
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        return Outcome(loss, bool(is_finite))

    def update(self) -> bool:
        """Start the update, if it was captured."""
        if self._update is not None:
            self._update.replay()
        return self._update is not None


def has_constant_update(workload: Workload, optimizer: Optimizer, numerics: Numerics) -> bool:
    """Whether updates take the same numbers in every step: SGD at a constant rate, not rounded at random."""
    schedule = workload.schedule
    is_constant = not isinstance(schedule, Schedule) or (schedule.kind == "constant" and not schedule.warmup)
    draws = any(part.format_of(role).is_stochastic for part in numerics.variants() for role in ("master", "state"))
    return type(optimizer) is SGD and is_constant and not draws
