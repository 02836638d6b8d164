"""A training step as CUDA graphs: the same kernels in the same order, started without Python.

A small network does not keep a GPU busy, because Python starts its kernels one by one. After some eager steps, the
forward and backward pass are recorded as a CUDA graph, and so is the update, if it is the same in every step. Replayed,
they compute the same bits. Nothing waits for a replayed step: the losses of a stretch of steps are read together.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from presilicon.designs import Numerics
from presilicon.emulation.scaling import all_finite
from presilicon.emulation.training.probe import Probe
from presilicon.formats import key_bank
from presilicon.workloads import LearningRateSchedule, Workload

EAGER_STEPS = 3
"""Steps before the capture, in which libraries choose their kernels and the optimizer creates its state."""


def can_capture(workload: Workload, numerics: Numerics) -> bool:
    """Whether each step runs the same kernels on the same data, but for the batch.

    Formats that change take other arguments in every step, and those of a user may compute on the CPU.
    """
    is_fixed = not numerics.schedule and numerics.operators is None and workload.accumulate == 1
    return is_fixed and not any(part.has_user_arithmetic for part in numerics.variants())


class CapturedStep:
    """Forward, backward and update of one model on batches of one shape."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        batch: tuple[Tensor, Tensor],
        compute_loss: Callable[[Tensor, Tensor], Tensor],
        update: Callable[[], None] | None,
        *,
        is_scaled: bool,
        most: int,
        probe: Probe | None = None,
        other: "CapturedStep | None" = None,
    ) -> None:
        """`update` is None where updates differ from step to step, and the caller makes them.

        `is_scaled` says that the loss has a scale, and `most` how many losses are read together. `probe` sees the
        gradients too, and must be read before the `other` step is launched, which has its memory.
        """
        self.probe = probe
        self._inputs, self._targets = (tensor.clone() for tensor in batch)
        self._passes = torch.cuda.CUDAGraph()
        pool = None if other is None else other._passes.pool()
        self._keys = key_bank(self._inputs.device)
        self._scale = torch.ones(2, device=self._inputs.device)
        self._factor = 1.0
        self._losses = torch.zeros(most, dtype=torch.float64, device=self._inputs.device)
        self._next = torch.zeros(1, dtype=torch.int64, device=self._inputs.device)
        self._launched: list[int] = []
        optimizer.zero_grad()
        with self._keys.recording(), torch.cuda.graph(self._passes, pool=pool):
            loss = compute_loss(self._inputs, self._targets)
            (loss * self._scale[0] if is_scaled else loss).backward()
            self._gradients = [(p, p.grad) for p in model.parameters() if p.grad is not None]
            if is_scaled:
                for _, gradient in self._gradients:
                    gradient.mul_(self._scale[1])
            if probe is not None:
                probe.see_gradients(model)
            is_finite = all_finite([gradient for _, gradient in self._gradients])
            loss = torch.where(is_finite, loss.detach().double(), torch.nan)
            self._losses.index_copy_(0, self._next, loss.reshape(1))
            self._next.add_(1)
        self._update: torch.cuda.CUDAGraph | None = None
        if update is not None:
            self._update = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._update):
                update()

    def fits(self, inputs: Tensor, targets: Tensor) -> bool:
        """Whether a batch has the shape of the captured one."""
        return inputs.shape == self._inputs.shape and targets.shape == self._targets.shape

    def launch(self, step: int, factor: float, inputs: Tensor, targets: Tensor) -> None:
        """Start the forward and backward pass of a training step, whose loss is scaled by `factor`."""
        if factor != self._factor:
            self._scale[0].fill_(factor)
            self._scale[1].fill_(1.0 / factor)
            self._factor = factor
        self._keys.write(step)
        self._launched.append(step)
        self._inputs.copy_(inputs)
        self._targets.copy_(targets)
        self._passes.replay()

        for parameter, gradient in self._gradients:
            parameter.grad = gradient

    def update(self) -> bool:
        """Start the update, if it was captured."""
        if self._update is not None:
            self._update.replay()
        return self._update is not None

    def read_losses(self) -> dict[int, float]:
        """Losses of the steps that were launched since the last call, when they have ended.

        A loss is NaN where it or a gradient was not finite.
        """
        losses = dict(zip(self._launched, self._losses.tolist(), strict=False))
        self._next.zero_()
        self._launched.clear()
        return losses


def has_constant_update(workload: Workload, optimizer: Optimizer, numerics: Numerics) -> bool:
    """Whether updates take the same numbers in every step: SGD at a constant rate, not rounded at random."""
    schedule = workload.schedule
    is_constant = not isinstance(schedule, LearningRateSchedule) or (
        schedule.kind == "constant" and not schedule.warmup
    )
    draws = any(part.format_of(role).is_stochastic for part in numerics.variants() for role in ("master", "state"))
    return type(optimizer) is SGD and is_constant and not draws
