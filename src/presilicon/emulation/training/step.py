"""One training step: forward and backward passes and updates as the machine makes them, with methods around them."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from presilicon.base import ConfigError
from presilicon.designs import MINIBATCH, TrainingStep, UpdateRule
from presilicon.emulation.emulation import Emulation
from presilicon.emulation.scaling import AdaptiveScale
from presilicon.emulation.training.batches import compute_loss, run_model
from presilicon.emulation.training.captured import EAGER_STEPS, CapturedStep, can_capture, has_constant_update
from presilicon.emulation.training.diagnosis import EVERY, Diagnosis
from presilicon.emulation.training.facts import StepWork
from presilicon.emulation.training.methods import AttachedMethods
from presilicon.emulation.training.pipeline import StaleWeights
from presilicon.emulation.training.probe import Probe
from presilicon.workloads import Workload, capture, fingerprint_of_generators


class StepTrainer:
    """Trains a model step by step."""

    def __init__(
        self,
        workload: Workload,
        model: nn.Module,
        optimizer: Optimizer,
        loss: Callable[[Any, Any], Tensor],
        *,
        emulation: Emulation,
        update_rule: UpdateRule,
        scaler: AdaptiveScale,
        diagnosis: Diagnosis,
        methods: AttachedMethods,
        may_capture: bool,
    ) -> None:
        """`may_capture` says that nothing but the step itself looks at its tensors."""
        update_rule.batch_per_chip(workload.name, workload.batch_size, workload.accumulate)
        self._workload, self._model, self._optimizer, self._loss = workload, model, optimizer, loss
        self._emulation, self._rule, self._scaler, self._diagnosis = emulation, update_rule, scaler, diagnosis
        self._methods = methods
        self.stale: StaleWeights | None = self._make_stale_weights() if update_rule.pipelined else None
        self._may_capture = may_capture and update_rule == MINIBATCH and can_capture(workload, emulation.numerics)
        self._captured: dict[bool, CapturedStep] = {}
        """The step as CUDA graphs: without a probe, and with one."""
        self._probes: list[Probe] = []
        """Of replayed steps, not read yet."""
        self._eager_steps = self._eager_probes = 0
        self._failed = -1
        """The last step that failed when it was replayed."""

    def _make_stale_weights(self) -> StaleWeights:
        workload = self._workload
        if workload.clip_norm is not None or self._scaler.is_active:
            raise ConfigError(
                f'workload "{workload.name}": layers that update at once know neither the norm of all gradients nor '
                "whether a later layer overflowed: continuous propagation needs clip_norm = None and no loss scale"
            )
        inputs, targets = workload.batch(1)
        graph = capture(self._model, inputs, targets=targets, loss=workload.loss, optimizer=workload.optimizer)
        self._emulation.stale_weights = True
        return StaleWeights(self._model, self._rule.delays(graph))

    def may_replay(self, step: int) -> bool:
        """Whether a step will be replayed, unless its recording fails."""
        is_ready = self._may_capture and self._eager_steps >= EAGER_STEPS and step > self._failed
        return is_ready and (self._eager_probes > 0 or not self._diagnosis.is_due(step))

    def read_losses(self) -> dict[int, float]:
        """The losses of steps that were replayed since the last call; NaN where one failed.

        The next steps, up to the one that failed, will not be replayed. If none has failed, their probes are inspected.
        """
        losses = {step: loss for captured in self._captured.values() for step, loss in captured.read_losses().items()}
        failed = [step for step, loss in losses.items() if not math.isfinite(loss)]
        probes, self._probes = self._probes, []
        if failed:
            self._failed, self._captured = min(failed), {}
            return losses
        for probe in probes:
            self._diagnosis.note(probe)
            self._diagnosis.inspect(probe)
        return losses

    def train(self, step: TrainingStep, inputs: Tensor, targets: Tensor, work: StepWork) -> None:
        """Train a batch as the machine's update rule says; the loss of a replayed step is NaN until it is read.

        Raises:
            DivergedError: training cannot go on.
        """
        self._emulation.begin_step(step.number)
        self._set_learning_rate(step)
        workload = self._workload
        self._rule.batch_per_chip(workload.name, step.batch_size, workload.accumulate)  # a method may have changed it
        parts = len(inputs) if self._rule.per_sample else self._rule.chips * workload.accumulate
        pieces = list(zip(inputs.tensor_split(parts), targets.tensor_split(parts), strict=True))
        updates = [[piece] for piece in pieces] if self._rule.per_sample else [pieces]
        for number, update in enumerate(updates, 1):
            self._emulation.count.ends_with_update = number == len(updates)
            if self.may_replay(step.number) and self._capture(step.number, *update[0]):
                self._replay(step, update[0], work)
            else:
                self._train_eagerly(step, update, work)

    def _train_eagerly(self, step: TrainingStep, pieces: Sequence[tuple[Tensor, Tensor]], work: StepWork) -> None:
        """A step that is not captured; one that draws random numbers is never captured."""
        if not self._may_capture:
            return self._train_update(step, pieces, work)
        device = str(pieces[0][0].device)
        before = fingerprint_of_generators(device)
        self._train_update(step, pieces, work)
        self._may_capture = before == fingerprint_of_generators(device)
        self._eager_steps += 1
        self._eager_probes += self._diagnosis.is_due(step.number)

    def _capture(self, step: int, inputs: Tensor, targets: Tensor) -> bool:
        """Whether the step is captured, or can be."""
        is_due = self._diagnosis.is_due(step)
        if is_due not in self._captured:
            update = self._apply_gradients
            has_constant = has_constant_update(self._workload, self._optimizer, self._emulation.numerics)
            try:
                with self._diagnosis.probing(self._emulation, step) if is_due else nullcontext() as probe:
                    self._captured[is_due] = CapturedStep(
                        self._model,
                        self._optimizer,
                        (inputs, targets),
                        self._compute_loss,
                        update if has_constant else None,
                        is_scaled=self._scaler.is_active,
                        most=EVERY,
                        probe=probe,
                        other=self._captured.get(not is_due),
                    )
            except RuntimeError:  # an op that waits for the GPU, or that allocates memory, cannot be captured
                torch.cuda.synchronize()
                self._may_capture = False
            self._emulation.begin_step(step)  # recording is no pass of the step
        return is_due in self._captured and self._captured[is_due].fits(inputs, targets)

    def _compute_loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        self._model.train()
        return self._loss(self._model(inputs), targets)

    def _replay(self, step: TrainingStep, batch: tuple[Tensor, Tensor], work: StepWork) -> None:
        """Start a captured step, as if it did not fail."""
        captured = self._captured[self._diagnosis.is_due(step.number)]
        self._emulation.note_replay()
        captured.launch(step.number, self._scaler.factor, *batch)
        if captured.probe is not None:
            self._probes.append(captured.probe.at(step.number))
        work.add_loss(math.nan, len(batch[0]))
        work.backward_passes += 1
        if not captured.update():
            self._apply_gradients()
        work.updates += 1
        self._scaler.update(True, step.number)
        self._diagnosis.after_update(step.number, True, self._scaler.factor)

    def _set_learning_rate(self, step: TrainingStep) -> None:
        """The rate of the schedule, in place of the optimizer's own; a rate that was set since becomes the new base."""
        if self._workload.schedule is None:
            return
        # The samples that the machine makes of the workload's own batch: a method that grows the batch lowers the noise
        # of updates, which a rate in proportion would raise again.
        samples = self._rule.samples_per_update(self._workload.batch_size)
        factor = self._workload.rate_factor(step.samples_seen, samples)
        for group in self._optimizer.param_groups:
            base, before = group.get("initial_lr", group["lr"]), group.get("rate_factor", 1.0)
            if before and group["lr"] != base * before:
                base = group["lr"] / before
            group["initial_lr"], group["rate_factor"], group["lr"] = base, factor, base * factor

    def _train_update(self, step: TrainingStep, pieces: Sequence[tuple[Tensor, Tensor]], work: StepWork) -> None:
        """Forward and backward passes of all pieces, whose gradients are added up, and the update."""
        self._optimizer.zero_grad()
        samples = sum(len(inputs) for inputs, _ in pieces)
        probe: Probe | None = None
        for step.inputs, step.targets in pieces:
            step.loss = None
            is_due = self._diagnosis.is_due(step.number) and not work.samples
            step.share, step.loss_scale = len(step.inputs) / samples, self._scaler.factor
            seen = self._forward_and_backward(step, work, is_due)
            probe = seen or probe
        is_finite = self._scaler.unscale_(self._model.parameters())
        if not is_finite and not self._scaler.is_active:
            # The update would make weights that are not finite, and nothing brings those back.
            self._fail(step, work, probe, backward=True)
        if is_finite:
            self._run_update(step, probe, work)
        self._scaler.update(is_finite, step.number)
        failure = self._diagnosis.after_update(step.number, is_finite, self._scaler.factor)
        if failure is not None:
            seen = self._probe_again(step, work, backward=True)
            raise DivergedError(f"{failure}; {self._diagnosis.fail(seen, self._model, step.inputs).message}")

    def _forward_and_backward(self, step: TrainingStep, work: StepWork, is_probed: bool) -> Probe | None:
        """Add the gradients of a piece of the batch, weighted by its share; the probe is None at most steps."""
        probing = self._diagnosis.probing(self._emulation, step.number) if is_probed else nullcontext()
        with probing as probe:
            with nullcontext() if self.stale is None else self.stale.swapped_in():
                self._methods.run("forward", step, lambda: self._forward(step))
            if not isinstance(step.loss, Tensor) or step.loss.numel() != 1:
                raise ConfigError(
                    f"step {step.number}: a method that replaces the forward pass must set step.loss to a tensor of "
                    f"one number, not {step.loss!r}"
                )
            value = float(step.loss.detach())
            work.add_loss(value, len(step.inputs))
            if math.isfinite(value):
                self._run_backward(step, work)
        if probe is not None:
            self._diagnosis.note(probe)
        if not math.isfinite(value):
            self._fail(step, work, probe, backward=False)
        return probe

    def _forward(self, step: TrainingStep) -> None:
        self._model.train()
        try:
            output = run_model(self._model, self._workload, step.inputs)
        except ValueError as error:
            if len(step.inputs) == 1 and "more than 1 value per channel" in str(error):
                raise ConfigError(
                    f'workload "{self._workload.name}": batch normalization needs more than one sample, but a pass '
                    "trains a single one; choose a model without it, another schedule of the machine, or fewer "
                    "micro-batches"
                ) from error
            raise
        step.loss = compute_loss(self._loss, self._workload, output, step.targets)

    def _run_backward(self, step: TrainingStep, work: StepWork) -> None:
        """The backward pass with methods around it; gradients of a method's own must have the scale of the others."""
        before, step.scale_is_known = work.backward_passes, False
        self._methods.run("backward", step, lambda: self._backward(step, work))
        is_replaced = work.backward_passes == before
        if is_replaced and not step.scale_is_known and (self._scaler.is_active or step.share != 1.0):
            raise ConfigError(
                f"step {step.number}: a method replaces the backward pass, whose gradients are scaled by the loss "
                "scale and by the share of the pass: multiply its gradients by step.gradient_scale"
            )

    def _backward(self, step: TrainingStep, work: StepWork) -> None:
        assert step.loss is not None
        if not step.loss.requires_grad:
            raise ConfigError(f'workload "{self._workload.name}": the loss does not depend on any trainable parameter')
        work.backward_passes += 1
        self._scaler.scaled(step.loss if step.share == 1.0 else step.loss * step.share).backward()

    def _run_update(self, step: TrainingStep, probe: Probe | None, work: StepWork) -> None:
        """The update with methods around it; one that a method makes in its place counts as well."""
        before, versions = work.updates, self._versions()
        if self.stale is not None:
            self.stale.push()
        self._methods.run("update", step, lambda: self._update(probe, work))
        if work.updates == before and self._versions() != versions:
            work.updates += 1

    def _versions(self) -> list[int]:
        """The version counter of each parameter; empty without methods, since nothing else writes between updates."""
        return [parameter._version for parameter in self._model.parameters()] if self._methods else []

    def _update(self, probe: Probe | None, work: StepWork) -> None:
        if probe is not None:
            probe.see_gradients(self._model)
            self._diagnosis.inspect(probe)
        self._apply_gradients()
        work.updates += 1

    def _apply_gradients(self) -> None:
        if self._workload.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._model.parameters(), self._workload.clip_norm)
        self._optimizer.step()

    def _fail(self, step: TrainingStep, work: StepWork, probe: Probe | None, *, backward: bool) -> NoReturn:
        """End training at a step without an update, with the diagnosis of why it failed."""
        seen = probe or self._probe_again(step, work, backward=backward)
        raise DivergedError(self._diagnosis.fail(seen, self._model, step.inputs).message)

    def _probe_again(self, step: TrainingStep, work: StepWork, *, backward: bool) -> Probe:
        """Repeat a failed pass with a probe; the run ends here, so this disturbs nothing."""
        self._emulation.begin_step(step.number, work.passes - 1)
        self._optimizer.zero_grad()
        with self._diagnosis.probing(self._emulation, step.number) as probe:
            with nullcontext() if self.stale is None else self.stale.swapped_in():
                self._forward(step)
            if backward:
                assert step.loss is not None
                self._scaler.scaled(step.loss).backward()
        self._diagnosis.note(probe)
        return probe


class DivergedError(Exception):
    """Training cannot go on; the text is the reason."""
