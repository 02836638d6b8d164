"""Loss scaling: the rule that adapts the scale, and a scaler for any training loop."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from presilicon.base import ConfigError
from presilicon.designs import LossScale, Numerics
from presilicon.emulation.attach import emulation_of
from presilicon.emulation.emulation import Emulation
from presilicon.emulation.state.steps import scaled_optimizers

LossT = TypeVar("LossT")

_LARGEST = torch.finfo(torch.float32).max
"""Growth stops here, because a larger scale would make every loss infinite."""


def all_finite(tensors: Sequence[Tensor]) -> Tensor:
    """Whether all numbers are finite, as a tensor; many tensors of one GPU take one launch."""
    first = tensors[0]
    filled = [tensor for tensor in tensors if tensor.numel()]
    norms = torch._foreach_norm(filled, torch.inf) if filled else (first.new_zeros(()),)
    if all(tensor.device == first.device and tensor.dtype == first.dtype for tensor in tensors):
        return torch.stack(norms).isfinite().all()
    return torch.stack([norm.isfinite().to(first.device) for norm in norms]).all()


class AdaptiveScale:
    """Scales losses, unscales gradients, and adapts the scale by the rules of a `LossScale`.

    The arithmetic is that of torch's GradScaler: gradients are multiplied by the reciprocal of the scale, and a
    gradient that is not finite skips the whole update.

    >>> scale = AdaptiveScale(LossScale(kind="dynamic", initial=8.0, interval=2))
    >>> [scale.update(finite) for finite in (True, True, False, True)]
    [8.0, 16.0, 8.0, 8.0]
    """

    def __init__(self, rule: LossScale) -> None:
        self.rule = rule
        self.factor = rule.initial if rule.kind != "none" else 1.0
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
        return loss * self.factor if self.is_active else loss

    @torch.no_grad()
    def unscale_(self, parameters: Iterable[nn.Parameter]) -> bool:
        """Divide the gradients by the scale, in place; returns whether all of them are finite."""
        gradients: list[Tensor] = []
        for parameter in parameters:
            if parameter.grad is None:
                continue
            if parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()
            values = parameter.grad._values() if parameter.grad.is_sparse else parameter.grad
            if self.is_active:
                values.mul_(1.0 / self.factor)
            # FSDP2's gradients are distributed tensors, of which each process checks its own part.
            gradients.append(getattr(values, "_local_tensor", values))
        return not gradients or bool(all_finite(gradients))

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
                    larger, self._good = self.factor * rule.growth, 0
                    self.factor = larger if larger <= _LARGEST else self.factor
            else:
                self.factor, self._good = self.factor * rule.backoff, 0
            self.factor = max(self.factor, rule.minimum_at(self.step))
        return self.factor

    def state_dict(self) -> dict[str, Any]:
        """Scale, counters and skipped steps."""
        return {"scale": self.factor, "good": self._good, "step": self.step, "skipped": list(self.skipped)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        self.factor, self._good, self.step = float(state["scale"]), int(state["good"]), int(state["step"])
        self.skipped = [int(step) for step in state["skipped"]]


class LossScaler:
    """Applies the loss scale of numerics in any training loop, on any device, as torch's GradScaler does.

        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # only where gradients are clipped or read
        scaler.step(optimizer)
        scaler.update()

    `step` leaves an update out if a gradient is not finite. Several optimizers, and several losses of one update, work
    as with GradScaler. Numerics without a loss scale change nothing. The scaler of a model is saved and loaded with the
    model's `state_dict`; one made from numerics has only its own.

    Raises:
        ConfigError: made from something that is neither an emulated model nor numerics.

    >>> from presilicon.designs import load_numerics
    >>> scaler = LossScaler(load_numerics("fp16-mixed"))
    >>> weight = nn.Parameter(torch.ones(2))
    >>> optimizer = torch.optim.SGD([weight], lr=0.5)
    >>> scaler.scale(weight.sum()).backward()
    >>> scaler.get_scale(), weight.grad
    (65536.0, tensor([65536., 65536.]))
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> weight.data
    tensor([0.5000, 0.5000])
    """

    def __init__(self, source: nn.Module | Numerics | LossScale) -> None:
        self._emulation: Emulation | None = emulation_of(source) if isinstance(source, nn.Module) else None
        self._scale = AdaptiveScale(_rule_of(source, self._emulation))
        self._finite: dict[int, bool] = {}
        """Whether the gradients of each optimizer that was unscaled since the last update are finite."""
        self._stepped: set[int] = set()
        """Optimizers that have stepped since the last update."""
        self._is_pending = False
        """Whether a loss was scaled since the last update."""
        if self._emulation is not None and self.is_enabled():
            self._emulation.count.expects_scale = False
            self._emulation.add_state("loss_scale", self._scale)

    @property
    def skipped(self) -> tuple[int, ...]:
        """The updates that were left out, counted from 0."""
        return tuple(self._scale.skipped)

    def get_scale(self) -> float:
        """The factor of the next loss."""
        return self._scale.factor

    def is_enabled(self) -> bool:
        """Whether losses are scaled."""
        return self._scale.is_active

    def scale(self, losses: LossT) -> LossT:
        """A loss, or losses in lists, tuples and dicts, times the scale."""
        self._is_pending = True
        scaled: LossT = pytree.tree_map_only(Tensor, self._scale.scaled, losses)
        return scaled

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, in place."""
        if id(optimizer) in self._finite:
            raise ConfigError("the gradients of this optimizer are unscaled already; call unscale_ once per update")
        if self.is_enabled():
            if not self._is_pending:
                raise ConfigError("no loss was scaled since the last update: call scaler.scale(loss).backward() first")
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            self._finite[id(optimizer)] = _in_all_processes(self._scale.unscale_(parameters), parameters)

    def step(self, optimizer: Optimizer) -> Any:
        """Unscale the gradients, unless that was done, and call `optimizer.step()` if all of them are finite.

        Returns what the optimizer's step returns, or None if it is left out.

        Raises:
            ConfigError: it has stepped since the last update, so that its new gradients would stay scaled.
        """
        if not self.is_enabled():
            return optimizer.step()
        if id(optimizer) in self._stepped:
            raise ConfigError("this optimizer has stepped since the last update: call scaler.update() after each step")
        self._stepped.add(id(optimizer))
        if id(optimizer) not in self._finite:
            self.unscale_(optimizer)
        if self._finite[id(optimizer)]:
            scaled_optimizers.add(optimizer)
            return optimizer.step()
        if self._emulation is not None:
            self._emulation.count.note_update()  # the step is over, although it has no update
        return None

    def update(self) -> None:
        """Adapt the scale, after the steps of all optimizers."""
        if self.is_enabled():
            if not self._finite:
                raise ConfigError("no gradients were unscaled since the last update: call scaler.step(optimizer) first")
            self._scale.update(all(self._finite.values()))
        self._finite, self._stepped, self._is_pending = {}, set(), False

    def state_dict(self) -> dict[str, Any]:
        """Scale, counters and skipped updates."""
        return self._scale.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        self._scale.load_state_dict(state)


def _in_all_processes(is_finite: bool, parameters: Sequence[nn.Parameter]) -> bool:
    """Whether gradients are finite in every process: with FSDP each has only a part, and all must skip together."""
    if not distributed.is_available() or not distributed.is_initialized() or not parameters:
        return is_finite
    flag = torch.tensor(float(is_finite), device=parameters[0].device)
    distributed.all_reduce(flag, distributed.ReduceOp.MIN)
    return bool(flag)


def _rule_of(source: Any, emulation: Emulation | None) -> LossScale:
    numerics = source if emulation is None else emulation.numerics
    if isinstance(numerics, Numerics):
        return numerics.loss_scale
    if isinstance(source, LossScale):
        return source
    hint = "; call emulate_ first" if isinstance(source, nn.Module) else ""
    raise ConfigError(f"LossScaler takes an emulated model or numerics, not this {type(source).__name__}{hint}")
