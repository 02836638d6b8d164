"""The training loop: one seed of one workload with a design's numerics, recorded as a trace."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from itertools import takewhile
from math import isfinite
from typing import Any

import torch
from msgspec.structs import replace
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from presilicon.base import ConfigError, Content, check_built, derive_seed, describe_processor, processor, unknown
from presilicon.designs import MINIBATCH, Method, Numerics, RoleFormat, TrainingStep, UpdateRule
from presilicon.emulation.attach import emulate_, emulation_of
from presilicon.emulation.losses import loss_of_training
from presilicon.emulation.optimizers import emulate_optimizer_
from presilicon.emulation.scaling import AdaptiveScale
from presilicon.emulation.training.batches import EvaluationData, TrainingData, evaluate_split
from presilicon.emulation.training.checkpoint import Checkpoint, ModelState, Pace, Progress, SavedRun, Snapshot
from presilicon.emulation.training.diagnosis import Diagnosis, OnFinding
from presilicon.emulation.training.facts import Counts, FormatFacts, StepWork
from presilicon.emulation.training.hopeless import hopeless_reason
from presilicon.emulation.training.isolation import isolated
from presilicon.emulation.training.methods import AttachedMethods, SetFormats, checked_facts, transform_model
from presilicon.emulation.training.record import TrainingRecord
from presilicon.emulation.training.step import DivergedError, StepTrainer
from presilicon.ops import Operator
from presilicon.records import (
    AttachedHook,
    Ending,
    Evaluation,
    FactsRun,
    Observer,
    PassiveHook,
    Role,
    Stateful,
    StepFacts,
    Trace,
    TrainingHook,
)
from presilicon.workloads import Generators, PrivateRandom, Splits, Workload, seed_generators, splits_digest

OnEvaluation = Callable[[Evaluation], None]


def train(
    workload: Workload,
    numerics: Numerics,
    *,
    seed: int = 0,
    device: str = "cpu",
    observers: Iterable[Observer] = (),
    operators: Iterable[Operator] = (),
    update_rule: UpdateRule = MINIBATCH,
    methods: Sequence[Method] = (),
    hooks: Sequence[TrainingHook] = (),
    on_evaluation: OnEvaluation | None = None,
    on_finding: OnFinding | None = None,
    on_wait: Callable[[], None] = lambda: None,
    checkpoint: Checkpoint | None = None,
    splits: Splits | None = None,
) -> Trace:
    """Train until the workload's target is held, the budget is spent or training fails; return the trace.

    The target is held when `workload.sustain` consecutive evaluations of the validation split reach it. The test split
    is evaluated once, at the end. Weights, data order, stochastic rounding and randomness in the forward pass each have
    a random stream of their own derived from `seed`, so two designs with the same seed start from the same weights and
    see the same batches. `operators` replace functions, in addition to those of the numerics.

    A step trains `workload.batch_size` samples, on all chips together, with as many updates as the machine's
    `update_rule` makes of them; budget and evaluation interval count samples. `methods` take part in every step, the
    first outermost.

    `on_wait` is called when the run waits for the GPU, so that another run can start its own. `splits` are the
    workload's data, if they are loaded already.

    A diagnosis inspects a step now and then, and every step that fails: its findings are in the trace, and `on_finding`
    is called with each of them at once. A run that cannot recover is ended, with the reason.

    With a `checkpoint` the run is saved to its file at intervals. Called again, an interrupted run continues from there
    to the same bits, and a finished run returns its trace at once. State must belong to the model, the optimizer, or a
    hook that has `state_dict` and `load_state_dict`.

    Raises:
        ConfigError: the workload has no data, its batch is larger than the training split, or the checkpoint belongs to
            another run.
    """
    hooks = tuple(hooks)
    record = TrainingRecord(workload, numerics, seed, device, update_rule, tuple(methods), tuple(operators), hooks)
    return train_record(
        record, observers=tuple(observers), on_evaluation=on_evaluation, on_finding=on_finding, on_wait=on_wait,
        checkpoint=checkpoint, splits=splits,
    )  # fmt: skip


def train_record(
    record: TrainingRecord,
    *,
    observers: tuple[Observer, ...] = (),
    on_evaluation: OnEvaluation | None = None,
    on_finding: OnFinding | None = None,
    on_wait: Callable[[], None] = lambda: None,
    checkpoint: Checkpoint | None = None,
    splits: Splits | None = None,
    data: Content | None = None,
    described: Mapping[str, Any] | None = None,
) -> Trace:
    """`train` for a record; `data` and `described` are the content of the splits and of the record, if known."""
    record.check()
    check_built(record.numerics, "numerics")
    described = record.describe() if described is None and checkpoint is not None else described
    with isolated(record.device):
        splits = record.workload.require_data()[0]() if splits is None else splits
        saved = None
        if checkpoint is not None:
            saved = SavedRun(checkpoint, record.identity(data or splits_digest(splits), described))
            if (finished := saved.read_trace()) is not None:
                return finished
        training = Training(
            record, splits, observers=observers, on_evaluation=on_evaluation, on_finding=on_finding, on_wait=on_wait
        )
        with closing(training):
            return training.run(saved, Pace(None if checkpoint is None else checkpoint.every, training.state_bytes))


def _update_together(optimizer: Optimizer) -> None:
    """Let torch update many parameters in one kernel, where the workload only wanted separate ops in its graph."""
    for group in optimizer.param_groups:
        if group.get("foreach") is False and not group.get("fused"):
            group["foreach"] = None


class Training:
    """One training run in memory: the model, and everything that is carried from step to step."""

    def __init__(
        self,
        record: TrainingRecord,
        splits: Splits,
        *,
        observers: tuple[Observer, ...] = (),
        on_evaluation: OnEvaluation | None = None,
        on_finding: OnFinding | None = None,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        workload, numerics, seed, device = record.workload, record.numerics, record.seed, record.device
        methods, hooks, operators = record.methods, record.hooks, record.operators
        _, self._target = workload.require_data()
        self._workload, self.numerics, self._seed = workload, numerics, seed
        self._device, self._splits = device, splits
        self._hooks, self._on_evaluation, self._on_wait = hooks, on_evaluation, on_wait
        seed_generators(derive_seed(seed, "weights"), device)
        self.model = transform_model(workload.model(), methods).to(device)
        self._batches = TrainingData(workload, self._splits.train, seed=seed, device=device)
        self._validation = EvaluationData(workload, self._splits.validation, "validation", device=device)
        self._test = EvaluationData(workload, self._splits.test, "test", device=device)
        # Dropout and the like have a random stream of their own, whatever building the model has drawn.
        seed_generators(derive_seed(seed, "forward"), device)
        rounding_seed = derive_seed(seed, "rounding")
        emulate_(self.model, numerics, seed=rounding_seed, observers=observers, operators=operators)
        emulation = emulation_of(self.model)
        assert emulation is not None
        self._emulation = emulation
        self.optimizer = workload.optimizer(self.model.parameters())
        if device.startswith("cuda"):
            _update_together(self.optimizer)
        emulate_optimizer_(self.optimizer, numerics, model=self.model, seed=rounding_seed)
        self._scaler = AdaptiveScale(numerics.loss_scale)
        self._diagnosis = Diagnosis(numerics, on_finding)
        self._progress = Progress([], [], [], self._diagnosis.shares)
        self._formats = FormatFacts(emulation)
        self._generators = Generators(device)
        self._counts = Counts()
        self._methods = AttachedMethods(methods, self)
        self._trainer = StepTrainer(
            workload,
            self.model,
            self.optimizer,
            loss_of_training(workload.loss, self.model),
            emulation=emulation,
            update_rule=record.update_rule,
            scaler=self._scaler,
            diagnosis=self._diagnosis,
            methods=self._methods,
            may_capture=device.startswith("cuda") and not (methods or hooks or observers or operators),
        )
        self._snapshot: Snapshot | None = None

    @property
    def train_samples(self) -> int | None:
        """Samples of an epoch; None for a stream of unknown length."""
        return self._batches.samples

    @property
    def state_bytes(self) -> int:
        """Size of what a checkpoint holds: parameters, their momenta, and buffers."""
        parameters = list(self.model.parameters())
        tensors = (*parameters, *parameters, *self.model.buffers())
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors if not is_lazy(tensor))

    def set_format(self, layer: str, role: Role, role_format: RoleFormat | None) -> None:
        """Set the format of a layer's role from the next pass on; None returns to the design's own.

        Raises:
            ConfigError: the model has no such layer, or the role is one of the optimizer's.
        """
        layers = [name for name, _ in self.model.named_modules()]
        if layer not in layers:
            raise unknown("layer", layer, layers)
        if role not in ("weight", "activation", "error", "gradient"):
            raise ConfigError(f"a method can set the formats of weight, activation, error and gradient, not of {role}")
        self._emulation.set_format(layer, role, role_format)

    def format_of(self, layer: str, role: Role) -> RoleFormat:
        """The format of a layer's role in the passes of this step."""
        return self._emulation.numerics_of(layer).format_of(role)

    def generator(self, step: TrainingStep, purpose: str) -> torch.Generator:
        """A random stream that depends on the run's seed, the step and `purpose` only."""
        return torch.Generator().manual_seed(derive_seed(self._seed, f"method/{purpose}/{step.number}"))

    def run(self, saved: SavedRun | None, pace: Pace) -> Trace:
        """Train from the checkpoint, or from the start, to the end."""
        states = self._states()
        if saved is not None:
            self._progress = saved.read_progress(states)
            self._diagnosis.shares = self._progress.shares
        first = len(self._progress.losses)
        self._emulation.step = max(first - 1, 0)  # of evaluations before the next step
        for hook in self._hooks:
            if isinstance(hook, AttachedHook):
                hook.attach(self.model, self.optimizer, first)
        self._diagnosis.check_data(self._splits, self.numerics)
        workload = self._workload
        budget, interval = workload.max_steps * workload.batch_size, workload.evaluate_every * workload.batch_size
        ending: Ending = "budget"
        failure: str | None = None
        number = first
        while self._counts.samples < budget:
            evaluated = self._counts.samples // interval
            if self._snapshot is None and self._trainer.may_replay(number):
                self._snapshot = Snapshot(states, self._progress)
            failure = self._step(number)
            number += 1
            is_evaluated = self._counts.samples // interval > evaluated
            goes_on = failure is None and self._counts.samples < budget and self._trainer.may_replay(number)
            goes_on = goes_on and not (is_evaluated or self._diagnosis.is_due(number - 1))
            if self._snapshot is not None and not goes_on and not self._read_losses(states):
                number, failure = len(self._progress.losses), None
                continue
            if failure is not None:
                ending = "diverged"
                break
            if is_evaluated:
                self._evaluate(number)
                if self._target_is_held():
                    ending = "target"
                    break
                if (failure := self._hopeless()) is not None:
                    ending = "hopeless"
                    break
                if saved is not None and pace.is_due(len(self._progress.evaluations)):
                    with pace.writing():
                        saved.write_progress(self._progress, states)
        kinds = [processor(self._device)] if saved is None else saved.processors
        trace = replace(self._finish(ending, failure), processors=tuple(map(describe_processor, kinds)))
        if saved is not None:
            saved.write_trace(trace)
        return trace

    def _read_losses(self, states: dict[str, Stateful]) -> bool:
        """Wait for the steps that were replayed; if one failed, return to the snapshot before all of them.

        They are then repeated without a graph, so that the diagnosis sees the one that fails.
        """
        assert self._snapshot is not None
        self._on_wait()
        losses = self._trainer.read_losses()
        for number, loss in losses.items():
            self._progress.losses[number] = loss
        succeeds = all(map(isfinite, losses.values()))
        if not succeeds:
            self._snapshot.restore(states, self._progress)
        self._snapshot = None
        return succeeds

    def close(self) -> None:
        """End the workers that read the data."""
        for data in (self._batches, self._validation, self._test):
            data.close()

    def _states(self) -> dict[str, Stateful]:
        """All state carried from step to step that is not in the trace."""
        states: dict[str, Stateful] = {
            "model": ModelState(self.model),
            "optimizer": self.optimizer,
            "generators": self._generators,
            "data": self._batches,
            "counts": self._counts,
        }
        if self._scaler.is_active:
            states["loss_scale"] = self._scaler
        if self._trainer.stale is not None:
            states["stale_weights"] = self._trainer.stale
        states["diagnosis"] = self._diagnosis
        if self._methods:
            states |= {"formats": SetFormats(self._emulation), **self._methods.states()}
        # Passive hooks may come and go between the parts of a run, so they are numbered separately.
        active = [hook for hook in self._hooks if not isinstance(hook, PassiveHook)]
        passive = [hook for hook in self._hooks if isinstance(hook, PassiveHook) and isinstance(hook, Stateful)]
        states |= {f"hook{number}": hook for number, hook in enumerate(active) if isinstance(hook, Stateful)}
        return states | {f"passive{number}": hook for number, hook in enumerate(passive)}

    def _step(self, number: int) -> str | None:
        """Run one training step; return the reason if training cannot go on."""
        for hook in self._hooks:
            hook.before_step(number)
        step = TrainingStep(number, self._counts.samples, self._workload.batch_size, self._progress.losses)
        work = StepWork()
        failure: str | None = None
        try:
            self._methods.run("step", step, lambda: self._train_batch(step, work))
        except DivergedError as diverged:
            failure = str(diverged)
        if not work.samples:
            raise ConfigError(f"step {number}: a method must call proceed() in its step, because a step needs a batch")
        self._counts.add(work)
        self._progress.losses.append(work.loss / work.samples)
        facts = replace(
            self._formats.at(number),
            update_skipped=not work.updates,
            backward_skipped=not work.backward_passes and failure is None,
            samples=None if work.batch_size == self._workload.batch_size else work.batch_size,
        )
        if failure is None:
            facts = self._methods.facts(step, facts)
            for hook in self._hooks:
                facts = checked_facts(f"hook {type(hook).__name__}: after_step", hook.after_step(number, facts))
        self._append(facts)
        return failure

    def _train_batch(self, step: TrainingStep, work: StepWork) -> None:
        """The innermost step: fetch the batch and train it."""
        if type(step.batch_size) is not int or step.batch_size < 1:
            raise ConfigError(
                f"step {step.number}: a method set batch_size to {step.batch_size!r}; it must be a whole number of at "
                "least 1"
            )
        work.batch_size = step.batch_size
        inputs, targets = self._batches.take(step.batch_size)
        self._trainer.train(step, inputs, targets, work)

    def _append(self, facts: StepFacts) -> None:
        runs = self._progress.runs
        if runs and runs[-1].facts == facts:
            runs[-1] = FactsRun(facts, runs[-1].count + 1)
        else:
            runs.append(FactsRun(facts, 1))

    def _evaluate(self, step: int) -> None:
        value, loss = self._measure(self._validation, f"validation/{step}")
        samples, updates = self._counts.samples, self._counts.updates
        point = Evaluation(step=step, samples=samples, updates=updates, value=value, loss=loss)
        self._progress.evaluations.append(point)
        if self._on_evaluation is not None:
            self._on_evaluation(point)

    def _measure(self, data: EvaluationData, purpose: str) -> tuple[float, float]:
        """Metric and loss of a split; what the model draws meanwhile is not drawn from training's random numbers."""
        with PrivateRandom(derive_seed(self._seed, f"evaluation/{purpose}"), self._device):
            return evaluate_split(self.model, self._workload, data)

    def _target_is_held(self) -> bool:
        latest = reversed(self._progress.evaluations)
        reaches = self._workload.measure.reaches
        held = list(takewhile(lambda point: reaches(point.value, self._target), latest))
        return len(held) >= self._workload.sustain

    def _hopeless(self) -> str | None:
        workload = self._workload
        if not workload.stop_hopeless:
            return None
        values = [point.value for point in self._progress.evaluations]
        # A step of a grown batch may be longer than the interval of evaluations.
        in_budget = round(len(values) * workload.max_steps * workload.batch_size / self._counts.samples)
        return hopeless_reason(values, self._target, in_budget, workload.measure.direction)

    def _finish(self, ending: Ending, failure: str | None) -> Trace:
        losses, runs, evaluations, shares = self._progress
        self._diagnosis.judge_skips(self._scaler.skipped, self._scaler.step)
        return Trace(
            seed=self._seed,
            losses=tuple(losses),
            runs=tuple(runs),
            evaluations=tuple(evaluations),
            test_value=self._measure(self._test, "test")[0],
            ending=ending,
            findings=tuple(self._diagnosis.findings),
            shares=tuple(shares),
            skipped=tuple(self._scaler.skipped),
            reason=failure or "",
        )
