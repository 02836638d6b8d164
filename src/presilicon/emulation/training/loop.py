"""The training loop: one seed of one workload with a design's numerics, recorded as a trace."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import takewhile
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from presilicon.base import ConfigError, derive_seed, extensions_named_in, to_plain
from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation.attach import emulate_, emulation_of
from presilicon.emulation.emulation import Emulation
from presilicon.emulation.losses import emulated
from presilicon.emulation.optimizers import emulate_optimizer_
from presilicon.emulation.training.batches import check_batch_size, evaluate_split, move_splits, shuffled_batches
from presilicon.emulation.training.checkpoint import (
    Checkpoint,
    Generators,
    ModelState,
    Progress,
    read_progress,
    read_trace,
    write_progress,
    write_trace,
)
from presilicon.emulation.training.diagnosis import Diagnosis, OnFinding
from presilicon.emulation.training.probe import Probe
from presilicon.emulation.training.scaling import LossScaler
from presilicon.operators import Operator
from presilicon.records import (
    AttachedHook,
    Ending,
    Evaluation,
    FactsRun,
    LayerFact,
    Observer,
    PassiveHook,
    Role,
    Stateful,
    StepFacts,
    Trace,
    TrainingHook,
)
from presilicon.runs import versions
from presilicon.workloads import Workload

OnEvaluation = Callable[[Evaluation], None]


def train(
    workload: Workload,
    numerics: Numerics,
    *,
    seed: int = 0,
    device: str = "cpu",
    observers: Iterable[Observer] = (),
    operators: Iterable[Operator] = (),
    hooks: Sequence[TrainingHook] = (),
    on_evaluation: OnEvaluation | None = None,
    on_finding: OnFinding | None = None,
    checkpoint: Checkpoint | None = None,
) -> Trace:
    """Train until the workload's target is held, the budget is spent or training fails; return the trace.

    The target is held when `workload.sustain` consecutive evaluations of the validation split reach it. The test split
    is evaluated once, at the end. Weights, data order, stochastic rounding and randomness in the forward pass each have
    a random stream of their own derived from `seed`, so two designs with the same seed start from the same weights and
    see the same batches. `operators` replace functions, in addition to those of the numerics.

    A diagnosis inspects a step now and then, and every step that fails: its findings are in the trace, and `on_finding`
    is called with each of them at once. A run that cannot recover is ended, with the reason.

    With a `checkpoint` the run is saved to its file at intervals. Called again, an interrupted run continues from there
    to the same bits, and a finished run returns its trace at once. State must belong to the model, the optimizer, or a
    hook that has `state_dict` and `load_state_dict`.

    Raises:
        ConfigError: the workload has no data, its batch is larger than the training split, or the checkpoint belongs to
            another run.
    """
    cuda = [torch.device(device).index or 0] if device.startswith("cuda") else []
    with torch.random.fork_rng(devices=cuda), _deterministic_convolutions():
        workload.require_data()
        numerics.check()
        replaced = tuple(operators)
        run_identity = identity(workload, numerics, seed, device, replaced, hooks) if checkpoint else {}
        if checkpoint is not None and (finished := read_trace(checkpoint.path, run_identity)) is not None:
            return finished
        training = Training(
            workload, numerics, seed=seed, device=device, observers=tuple(observers), operators=replaced,
            hooks=hooks, on_evaluation=on_evaluation, on_finding=on_finding,
        )  # fmt: skip
        return training.run(checkpoint, run_identity)


@contextmanager
def _deterministic_convolutions() -> Iterator[None]:
    """Make convolutions on a GPU repeatable to the bit, and compute float32 ones in float32."""
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.allow_tf32
    # By default torch lets convolutions of float32 round their operands to TF32.
    cudnn.deterministic, cudnn.allow_tf32 = True, False
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.allow_tf32 = before


def identity(
    workload: Workload,
    numerics: Numerics,
    seed: int,
    device: str,
    operators: Sequence[Operator] = (),
    hooks: Sequence[TrainingHook] = (),
) -> dict[str, Any]:
    """Everything that determines the bits of a run; a checkpoint must agree with it."""
    plain: dict[str, Any] = {"workload": workload.describe(), "numerics": to_plain(numerics)}
    if operators:
        plain["operators"] = [operator.describe() for operator in operators]
    active = [_describe_hook(hook) for hook in hooks if not isinstance(hook, PassiveHook)]
    if active:
        plain["hooks"] = active
    extensions = extensions_named_in(json.dumps(plain, default=str))
    if extensions:
        plain["extensions"] = extensions
    return plain | {"seed": seed, "device": device, "versions": versions()}


def _describe_hook(hook: TrainingHook) -> Any:
    """A hook's own `describe()`, which should contain its parameters, or else the name of its type."""
    name = f"{type(hook).__module__}.{type(hook).__qualname__}"
    describe = getattr(hook, "describe", None)
    return name if describe is None else {name: to_plain(describe())}


class Training:
    """One training run in memory: the model, and everything that is carried from step to step."""

    def __init__(
        self,
        workload: Workload,
        numerics: Numerics,
        *,
        seed: int,
        device: str,
        observers: tuple[Observer, ...] = (),
        operators: tuple[Operator, ...] = (),
        hooks: Sequence[TrainingHook] = (),
        on_evaluation: OnEvaluation | None = None,
        on_finding: OnFinding | None = None,
    ) -> None:
        load_data, self._target = workload.require_data()
        self._workload, self._numerics, self._seed = workload, numerics, seed
        self._hooks, self._on_evaluation = hooks, on_evaluation
        torch.manual_seed(derive_seed(seed, "weights"))
        self.model = workload.model().to(device)
        self._data = move_splits(load_data(), device)
        check_batch_size(workload, self._data)
        # Dropout and the like have a random stream of their own, whatever building the model has drawn.
        torch.manual_seed(derive_seed(seed, "forward"))
        rounding_seed = derive_seed(seed, "rounding")
        emulate_(self.model, numerics, seed=rounding_seed, observers=observers, operators=operators)
        emulation = emulation_of(self.model)
        assert emulation is not None
        self._emulation = emulation
        self.optimizer = workload.optimizer(self.model.parameters())
        emulate_optimizer_(self.optimizer, numerics, model=self.model, seed=rounding_seed)
        self._loss = emulated(workload.loss, self.model) if numerics.vector == "round-results" else workload.loss
        self._scaler = LossScaler(numerics.loss_scale)
        self._diagnosis = Diagnosis(numerics, on_finding)
        self._formats = FormatFacts(emulation)
        self._generators = Generators(device)
        self._progress = Progress([], [], [])

    def run(self, checkpoint: Checkpoint | None, run_identity: dict[str, Any]) -> Trace:
        """Train from the checkpoint, or from the start, to the end."""
        states = self._states()
        if checkpoint is not None:
            self._progress = read_progress(checkpoint.path, run_identity, states)
        first = len(self._progress.losses)
        self._emulation.resume(first)
        for hook in self._hooks:
            if isinstance(hook, AttachedHook):
                hook.attach(self.model, self.optimizer, first)
        self._diagnosis.check_data(self._data, self._numerics)
        batches = shuffled_batches(self._data, self._workload.batch_size, derive_seed(self._seed, "data"), skip=first)
        ending: Ending = "budget"
        failure: str | None = None
        for step in range(first, self._workload.max_steps):
            failure = self._step(step, batches)
            if failure is not None:
                ending = "diverged"
                break
            if (step + 1) % self._workload.evaluate_every == 0:
                self._evaluate(step + 1)
                if self._target_is_held():
                    ending = "target"
                    break
                if checkpoint is not None and len(self._progress.evaluations) % checkpoint.every == 0:
                    write_progress(checkpoint.path, run_identity, self._progress, states)
        trace = self._finish(ending, failure)
        if checkpoint is not None:
            write_trace(checkpoint.path, run_identity, trace)
        return trace

    def _states(self) -> dict[str, Stateful]:
        """All state carried from step to step that is not in the trace; the data order follows from the step number."""
        states: dict[str, Stateful] = {
            "model": ModelState(self.model),
            "optimizer": self.optimizer,
            "generators": self._generators,
        }
        if self._scaler.is_active:
            states["loss_scale"] = self._scaler
        states["diagnosis"] = self._diagnosis
        # Passive hooks may come and go between the parts of a run, so they are numbered separately.
        active = [hook for hook in self._hooks if not isinstance(hook, PassiveHook)]
        passive = [hook for hook in self._hooks if isinstance(hook, PassiveHook) and isinstance(hook, Stateful)]
        states |= {f"hook{number}": hook for number, hook in enumerate(active) if isinstance(hook, Stateful)}
        return states | {f"passive{number}": hook for number, hook in enumerate(passive)}

    def _step(self, step: int, batches: Iterator[tuple[Tensor, Tensor]]) -> str | None:
        """Run one training step; return the reason if training cannot go on."""
        for hook in self._hooks:
            hook.before_step(step)
        batch = next(batches)
        loss, probe = self._forward_and_backward(batch, step)
        self._progress.losses.append(loss)
        if not math.isfinite(loss):
            return self._fail(step, batch, probe, backward=False)
        is_finite = self._scaler.unscale_(self.model.parameters())
        if not is_finite and not self._scaler.is_active:
            # The update would make weights that are not finite, and nothing brings those back.
            return self._fail(step, batch, probe, backward=True)
        if is_finite:
            self._update(probe)
        self._scaler.update(is_finite)
        failure = self._diagnosis.after_update(step, is_finite, self._scaler.scale)
        facts = self._formats.at(step) if is_finite else replace(self._formats.at(step), update_skipped=True)
        for hook in self._hooks:
            facts = hook.after_step(step, facts)
        self._append(facts)
        if failure is None:
            return None
        seen = self._probe_again(batch, step, backward=True)
        return f"{failure}; {self._diagnosis.fail(seen, self.model, batch[0]).message}"

    def _forward_and_backward(self, batch: tuple[Tensor, Tensor], step: int) -> tuple[float, Probe | None]:
        """Loss of the batch; its gradients are computed if it is finite. The probe is None at most steps."""
        is_due = self._diagnosis.is_due(step)
        probing = self._diagnosis.probing(self.model, self._emulation, step) if is_due else nullcontext()
        with probing as probe:
            with nullcontext() if probe is None else self._diagnosis.watching_relus(self.model, step):
                loss = self._forward(batch)
            value = float(loss.detach())
            if math.isfinite(value):
                self._scaler.scaled(loss).backward()
        return value, probe

    def _forward(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = batch
        self.model.train()
        self.optimizer.zero_grad()
        output = self.model(inputs)
        try:
            return self._loss(output, targets)
        except (IndexError, ValueError, RuntimeError) as error:
            raise _unusable_loss(self._workload, output, targets, error) from error

    def _update(self, probe: Probe | None) -> None:
        if probe is not None:
            self._diagnosis.inspect(probe, self.model)
        if self._workload.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self._workload.clip_norm)
        self.optimizer.step()

    def _fail(self, step: int, batch: tuple[Tensor, Tensor], probe: Probe | None, *, backward: bool) -> str:
        """Record a step without an update and return the diagnosis of why it failed."""
        self._append(replace(self._formats.at(step), update_skipped=True))
        seen = probe or self._probe_again(batch, step, backward=backward)
        return self._diagnosis.fail(seen, self.model, batch[0]).message

    def _probe_again(self, batch: tuple[Tensor, Tensor], step: int, *, backward: bool) -> Probe:
        """Repeat a failed step with a probe; the run ends here, so this disturbs nothing."""
        self._emulation.resume(step)
        with self._diagnosis.probing(self.model, self._emulation, step) as probe:
            loss = self._forward(batch)
            if backward:
                self._scaler.scaled(loss).backward()
        return probe

    def _append(self, facts: StepFacts) -> None:
        runs = self._progress.runs
        if runs and runs[-1].facts == facts:
            runs[-1] = FactsRun(facts, runs[-1].count + 1)
        else:
            runs.append(FactsRun(facts, 1))

    def _evaluate(self, step: int) -> None:
        accuracy, loss = evaluate_split(self.model, self._workload, *self._data.validation)
        point = Evaluation(
            step=step, samples=step * self._workload.batch_size, updates=step, accuracy=accuracy, loss=loss
        )
        self._progress.evaluations.append(point)
        if self._on_evaluation is not None:
            self._on_evaluation(point)

    def _target_is_held(self) -> bool:
        latest = reversed(self._progress.evaluations)
        reaches = self._workload.measure.reaches
        held = list(takewhile(lambda point: reaches(point.accuracy, self._target), latest))
        return len(held) >= self._workload.sustain

    def _finish(self, ending: Ending, failure: str | None) -> Trace:
        losses, runs, evaluations = self._progress
        self._diagnosis.judge_skips(self._scaler.skipped, len(losses))
        return Trace(
            seed=self._seed,
            losses=tuple(losses),
            runs=tuple(runs),
            evaluations=tuple(evaluations),
            test_accuracy=evaluate_split(self.model, self._workload, *self._data.test)[0],
            ending=ending,
            findings=tuple(self._diagnosis.findings),
            shares=tuple(self._diagnosis.shares),
            skipped=tuple(self._scaler.skipped),
            reason=failure or "",
        )


def _unusable_loss(workload: Workload, output: Any, targets: Tensor, error: Exception) -> ConfigError:
    """The error for a loss that cannot be computed: labels out of range, shapes that do not match."""
    target = f"targets of shape {tuple(targets.shape)}"
    if not targets.is_floating_point() and targets.numel():
        target += f" from {int(targets.min())} to {int(targets.max())}"
    shown = f"outputs of shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
    return ConfigError(f'workload "{workload.name}": the loss cannot take {shown} and {target} ({error})')


class FormatFacts:
    """The facts of each step: every layer and role whose format is no longer the one that training began with.

    Static overrides are part of the design and need no facts: the simulator reads them there, by the same
    `Numerics.in_force`.
    """

    def __init__(self, emulation: Emulation) -> None:
        self._emulation = emulation
        self._numerics = emulation.numerics
        self._by_stage: dict[int, StepFacts] = {}

    def at(self, step: int) -> StepFacts:
        """The formats of a step that has run."""
        stage = self._numerics.stage(step)
        if stage not in self._by_stage:
            self._by_stage[stage] = StepFacts(
                layers=tuple(
                    LayerFact(layer=layer, role=role, format=str(changed.format), stored_bits=changed.stored_bits)
                    for layer in self._emulation.layers_seen
                    for role, changed in self._changed(layer, step)
                )
            )
        return self._by_stage[stage]

    def _changed(self, layer: str, step: int) -> list[tuple[Role, RoleFormat]]:
        if not self._numerics.schedule:
            return []
        now, static = (self._numerics.in_force(layer, at, self._emulation.ends) for at in (step, 0))
        return list(now.formats_differing(static).items())
