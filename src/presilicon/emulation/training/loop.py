"""The training loop: one seed of one workload with a design's numerics, recorded as a trace."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from itertools import takewhile
from typing import Any, NoReturn

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from presilicon.base import ConfigError, derive_seed, extensions_named_in, to_plain, unknown
from presilicon.designs import MINIBATCH, Method, Numerics, RoleFormat, TrainingStep, UpdateRule
from presilicon.emulation.attach import emulate_, emulation_of
from presilicon.emulation.emulation import Emulation
from presilicon.emulation.losses import emulated
from presilicon.emulation.optimizers import emulate_optimizer_
from presilicon.emulation.training.batches import EvaluationData, TrainingData, evaluate_split
from presilicon.emulation.training.captured import USUAL_STEPS, CapturedStep, can_capture, has_constant_update
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
from presilicon.emulation.training.hopeless import hopeless_reason
from presilicon.emulation.training.methods import AttachedMethods, SetFormats, transform_model
from presilicon.emulation.training.pipeline import StaleWeights
from presilicon.emulation.training.probe import Probe
from presilicon.emulation.training.scaling import LossScaler
from presilicon.emulation.training.work import Counts, StepWork
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
from presilicon.workloads import Schedule, Splits, Workload, capture

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

    A step trains `workload.batch_size` samples on each chip, with as many updates as the machine's `update_rule` makes
    of them; budget and evaluation interval count samples. `methods` take part in every step, the first outermost.

    `on_wait` is called when the step waits for the GPU, so that another run can start its own. `splits` are the
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
    cuda = [torch.device(device).index or 0] if device.startswith("cuda") else []
    with torch.random.fork_rng(devices=cuda), _deterministic_convolutions():
        workload.require_data()
        numerics.check()
        replaced = tuple(operators)
        run_identity = (
            identity(workload, numerics, seed, device, replaced, hooks, update_rule, methods) if checkpoint else {}
        )
        if checkpoint is not None and (finished := read_trace(checkpoint.path, run_identity)) is not None:
            return finished
        training = Training(
            workload, numerics, seed=seed, device=device, observers=tuple(observers), operators=replaced,
            update_rule=update_rule, methods=methods, hooks=hooks, on_evaluation=on_evaluation, on_finding=on_finding,
            on_wait=on_wait, splits=splits,
        )  # fmt: skip
        with closing(training):
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
    update_rule: UpdateRule = MINIBATCH,
    methods: Sequence[Method] = (),
) -> dict[str, Any]:
    """Everything that determines the bits of a run; a checkpoint must agree with it."""
    plain: dict[str, Any] = {"workload": workload.describe(), "numerics": to_plain(numerics)}
    if operators:
        plain["operators"] = [operator.describe() for operator in operators]
    active = [_describe_hook(hook) for hook in hooks if not isinstance(hook, PassiveHook)]
    if active:
        plain["hooks"] = active
    if update_rule != MINIBATCH:
        plain["update_rule"] = to_plain(update_rule)
    if methods:
        plain["methods"] = [to_plain(method) for method in methods]
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
        update_rule: UpdateRule = MINIBATCH,
        methods: Sequence[Method] = (),
        hooks: Sequence[TrainingHook] = (),
        on_evaluation: OnEvaluation | None = None,
        on_finding: OnFinding | None = None,
        on_wait: Callable[[], None] = lambda: None,
        splits: Splits | None = None,
    ) -> None:
        load_data, self._target = workload.require_data()
        if update_rule.per_sample and workload.accumulate > 1:
            raise ConfigError(
                f'workload "{workload.name}": accumulate is {workload.accumulate}, but the machine updates after every '
                "sample and adds up no gradients; set it to 1, or choose another schedule"
            )
        self._workload, self.numerics, self._seed, self._rule = workload, numerics, seed, update_rule
        self._hooks, self._on_evaluation, self._on_wait = hooks, on_evaluation, on_wait
        torch.manual_seed(derive_seed(seed, "weights"))
        self.model = transform_model(workload.model(), methods).to(device)
        self._splits = load_data() if splits is None else splits
        self._batches = TrainingData(workload, self._splits.train, seed=seed, device=device)
        self._validation = EvaluationData(workload, self._splits.validation, "validation", device=device)
        self._test = EvaluationData(workload, self._splits.test, "test", device=device)
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
        self._counts = Counts()
        self._stale: StaleWeights | None = self._make_stale_weights() if update_rule.pipelined else None
        self._methods = AttachedMethods(methods, self)
        may_capture = device.startswith("cuda") and not (methods or hooks or observers or operators)
        self._may_capture = may_capture and update_rule == MINIBATCH and can_capture(workload, numerics)
        self._captured: CapturedStep | None = None
        self._usual_steps = 0

    def _make_stale_weights(self) -> StaleWeights:
        workload = self._workload
        if workload.clip_norm is not None or self._scaler.is_active:
            raise ConfigError(
                f'workload "{workload.name}": layers that update at once know neither the norm of all gradients nor '
                "whether a later layer overflowed: continuous propagation needs clip_norm = None and no loss scale"
            )
        inputs, targets = workload.batch(1)
        graph = capture(self.model, inputs, targets=targets, loss=workload.loss, optimizer=workload.optimizer)
        self._emulation.stale_weights = True
        return StaleWeights(self.model, self._rule.delays(graph))

    @property
    def train_samples(self) -> int | None:
        """Samples of an epoch."""
        return self._batches.samples

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

    def generator(self, step: TrainingStep, purpose: str) -> torch.Generator:
        """A random stream that depends on the run's seed, the step and `purpose` only."""
        return torch.Generator().manual_seed(derive_seed(self._seed, f"method/{purpose}/{step.number}"))

    def run(self, checkpoint: Checkpoint | None, run_identity: dict[str, Any]) -> Trace:
        """Train from the checkpoint, or from the start, to the end."""
        states = self._states()
        if checkpoint is not None:
            self._progress = read_progress(checkpoint.path, run_identity, states)
        first = len(self._progress.losses)
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
            failure = self._step(number)
            number += 1
            if failure is not None:
                ending = "diverged"
                break
            if self._counts.samples // interval > evaluated:
                self._evaluate(number)
                if self._target_is_held():
                    ending = "target"
                    break
                if (failure := self._hopeless()) is not None:
                    ending = "hopeless"
                    break
                if checkpoint is not None and len(self._progress.evaluations) % checkpoint.every == 0:
                    write_progress(checkpoint.path, run_identity, self._progress, states)
        trace = self._finish(ending, failure)
        if checkpoint is not None:
            write_trace(checkpoint.path, run_identity, trace)
        return trace

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
        if self._stale is not None:
            states["stale_weights"] = self._stale
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
        except _DivergedError as diverged:
            failure = str(diverged)
        if not work.samples:
            raise ConfigError(f"step {number}: a method must call proceed() in its step, because a step needs a batch")
        self._counts.add(work)
        self._progress.losses.append(work.loss / work.samples)
        facts = replace(
            self._formats.at(number),
            update_skipped=not work.updates,
            backward_skipped=not work.backward_passes and failure is None,
            samples=None if step.batch_size == self._workload.batch_size else step.batch_size,
        )
        if failure is None:
            facts = self._methods.facts(step, facts)
            for hook in self._hooks:
                facts = hook.after_step(number, facts)
        self._append(facts)
        return failure

    def _train_batch(self, step: TrainingStep, work: "StepWork") -> None:
        """The innermost step: fetch the batch, and train as the machine's update rule says."""
        self._emulation.begin_step(step.number)
        self._set_learning_rate(step)
        chips = self._rule.batches
        inputs, targets = self._batches.take(step.batch_size * chips)
        parts = len(inputs) if self._rule.per_sample else chips * self._workload.accumulate
        pieces = list(zip(inputs.chunk(parts), targets.chunk(parts), strict=True))
        updates = [[piece] for piece in pieces] if self._rule.per_sample else [pieces]
        for update in updates:
            if self._may_capture and not self._diagnosis.is_due(step.number) and self._capture(*update[0]):
                self._replay(step, update[0], work)
            else:
                self._train_usual(step, update, work)

    def _train_usual(self, step: TrainingStep, pieces: Sequence[tuple[Tensor, Tensor]], work: "StepWork") -> None:
        """A step that is not captured; one that draws random numbers is never captured."""
        if not self._may_capture:
            return self._train_update(step, pieces, work)
        device = pieces[0][0].device
        before = torch.cuda.get_rng_state(device)
        self._train_update(step, pieces, work)
        self._may_capture = torch.equal(before, torch.cuda.get_rng_state(device))
        self._usual_steps += 1

    def _capture(self, inputs: Tensor, targets: Tensor) -> bool:
        """Whether the step is captured; it becomes so after some usual steps, if it draws no random numbers."""
        if self._captured is None and self._usual_steps >= USUAL_STEPS:
            optimizer, update = self.optimizer, self._apply_gradients
            has_constant = has_constant_update(self._workload, optimizer)
            try:
                self._captured = CapturedStep(
                    self.model, optimizer, (inputs, targets), self._compute_loss, update if has_constant else None
                )
            except RuntimeError:  # an op that waits for the GPU, or that allocates memory, cannot be captured
                torch.cuda.synchronize()
                self._may_capture = False
        return self._captured is not None and self._captured.fits(inputs, targets)

    def _compute_loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        self.model.train()
        return self._loss(self.model(inputs), targets)

    def _replay(self, step: TrainingStep, batch: tuple[Tensor, Tensor], work: "StepWork") -> None:
        """A captured step."""
        assert self._captured is not None
        step.inputs, step.targets = batch
        self._captured.launch(*batch)
        self._on_wait()
        loss, is_finite = self._captured.outcome()
        work.add_loss(loss, len(step.inputs))
        if not math.isfinite(loss):
            self._fail(step, work, None, backward=False)
        work.backward_passes += 1
        if not is_finite:
            self._fail(step, work, None, backward=True)
        if not self._captured.update():
            self._apply_gradients()
        work.updates += 1
        self._diagnosis.after_update(step.number, True, self._scaler.scale)

    def _set_learning_rate(self, step: TrainingStep) -> None:
        """The rate of the schedule, in place of the optimizer's own; a rate that was set since becomes the new base."""
        schedule, size = self._workload.schedule, self._workload.batch_size
        if schedule is None:
            return
        assert isinstance(schedule, Schedule)
        factor = schedule.factor(step.samples_seen / size, float(self._workload.max_steps))
        factor *= schedule.scale(self._rule.samples_per_update(step.batch_size))
        for group in self.optimizer.param_groups:
            base = group.get("initial_lr", group["lr"])
            if group["lr"] != group.get("scheduled_lr", group["lr"]) and group["scheduled_lr"]:
                base *= group["lr"] / group["scheduled_lr"]
            group["initial_lr"] = base
            group["lr"] = group["scheduled_lr"] = base * factor

    def _train_update(self, step: TrainingStep, pieces: Sequence[tuple[Tensor, Tensor]], work: "StepWork") -> None:
        """Forward and backward passes of all pieces, whose gradients are added up, and the update."""
        self.optimizer.zero_grad()
        samples = sum(len(inputs) for inputs, _ in pieces)
        probe: Probe | None = None
        for step.inputs, step.targets in pieces:
            step.loss = None
            is_due = self._diagnosis.is_due(step.number) and not work.samples
            seen = self._forward_and_backward(step, len(step.inputs) / samples, work, is_due)
            probe = seen or probe
        is_finite = self._scaler.unscale_(self.model.parameters())
        if not is_finite and not self._scaler.is_active:
            # The update would make weights that are not finite, and nothing brings those back.
            self._fail(step, work, probe, backward=True)
        if is_finite:
            self._methods.run("update", step, lambda: self._update(probe, work))
        self._scaler.update(is_finite)
        failure = self._diagnosis.after_update(step.number, is_finite, self._scaler.scale)
        if failure is not None:
            seen = self._probe_again(step, work, backward=True)
            raise _DivergedError(f"{failure}; {self._diagnosis.fail(seen, self.model, step.inputs).message}")

    def _forward_and_backward(
        self, step: TrainingStep, share: float, work: "StepWork", is_probed: bool
    ) -> Probe | None:
        """Add the gradients of a piece of the batch, weighted by its share; the probe is None at most steps."""
        probing = self._diagnosis.probing(self.model, self._emulation, step.number) if is_probed else nullcontext()
        with probing as probe:
            watching = self._diagnosis.watching_relus(self.model, step.number) if probe else nullcontext()
            with watching, nullcontext() if self._stale is None else self._stale.in_place():
                self._methods.run("forward", step, lambda: self._forward(step))
            if step.loss is None:
                raise ConfigError(f"step {step.number}: a method that replaces the forward pass must set step.loss")
            value = float(step.loss.detach())
            work.add_loss(value, len(step.inputs))
            if math.isfinite(value):
                self._methods.run("backward", step, lambda: self._backward(step, share, work))
        if not math.isfinite(value):
            self._fail(step, work, probe, backward=False)
        return probe

    def _forward(self, step: TrainingStep) -> None:
        self.model.train()
        try:
            output = self.model(step.inputs)
        except ValueError as error:
            if len(step.inputs) == 1 and "more than 1 value per channel" in str(error):
                raise ConfigError(
                    f'workload "{self._workload.name}": batch normalization needs more than one sample, but the '
                    "machine trains one at a time; choose a model without it, or another schedule"
                ) from error
            raise
        try:
            step.loss = self._loss(output, step.targets)
        except (IndexError, ValueError, RuntimeError) as error:
            raise _unusable_loss(self._workload, output, step.targets, error) from error

    def _backward(self, step: TrainingStep, share: float, work: "StepWork") -> None:
        assert step.loss is not None
        work.backward_passes += 1
        self._scaler.scaled(step.loss if share == 1.0 else step.loss * share).backward()

    def _update(self, probe: Probe | None, work: "StepWork") -> None:
        if probe is not None:
            self._diagnosis.inspect(probe, self.model)
        if self._stale is not None:
            self._stale.push()
        self._apply_gradients()
        work.updates += 1

    def _apply_gradients(self) -> None:
        if self._workload.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self._workload.clip_norm)
        self.optimizer.step()

    def _fail(self, step: TrainingStep, work: "StepWork", probe: Probe | None, *, backward: bool) -> NoReturn:
        """End training at a step without an update, with the diagnosis of why it failed."""
        seen = probe or self._probe_again(step, work, backward=backward)
        raise _DivergedError(self._diagnosis.fail(seen, self.model, step.inputs).message)

    def _probe_again(self, step: TrainingStep, work: "StepWork", *, backward: bool) -> Probe:
        """Repeat a failed pass with a probe; the run ends here, so this disturbs nothing."""
        self._emulation.begin_step(step.number, work.passes - 1)
        self.optimizer.zero_grad()
        with self._diagnosis.probing(self.model, self._emulation, step.number) as probe:
            with nullcontext() if self._stale is None else self._stale.in_place():
                self._forward(step)
            if backward:
                assert step.loss is not None
                self._scaler.scaled(step.loss).backward()
        return probe

    def _append(self, facts: StepFacts) -> None:
        runs = self._progress.runs
        if runs and runs[-1].facts == facts:
            runs[-1] = FactsRun(facts, runs[-1].count + 1)
        else:
            runs.append(FactsRun(facts, 1))

    def _evaluate(self, step: int) -> None:
        accuracy, loss = evaluate_split(self.model, self._workload, self._validation)
        samples, updates = self._counts.samples, self._counts.updates
        point = Evaluation(step=step, samples=samples, updates=updates, accuracy=accuracy, loss=loss)
        self._progress.evaluations.append(point)
        if self._on_evaluation is not None:
            self._on_evaluation(point)

    def _target_is_held(self) -> bool:
        latest = reversed(self._progress.evaluations)
        reaches = self._workload.measure.reaches
        held = list(takewhile(lambda point: reaches(point.accuracy, self._target), latest))
        return len(held) >= self._workload.sustain

    def _hopeless(self) -> str | None:
        workload = self._workload
        if not workload.stop_hopeless:
            return None
        values = [point.accuracy for point in self._progress.evaluations]
        in_budget = workload.max_steps // workload.evaluate_every
        return hopeless_reason(values, self._target, in_budget, workload.measure.direction)

    def _finish(self, ending: Ending, failure: str | None) -> Trace:
        losses, runs, evaluations = self._progress
        self._diagnosis.judge_skips(self._scaler.skipped, self._scaler.step)
        return Trace(
            seed=self._seed,
            losses=tuple(losses),
            runs=tuple(runs),
            evaluations=tuple(evaluations),
            test_accuracy=evaluate_split(self.model, self._workload, self._test)[0],
            ending=ending,
            findings=tuple(self._diagnosis.findings),
            shares=tuple(self._diagnosis.shares),
            skipped=tuple(self._scaler.skipped),
            reason=failure or "",
        )


class _DivergedError(Exception):
    """Training cannot go on; the text is the reason."""


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
        self._known: dict[Any, StepFacts] = {}

    def at(self, step: int) -> StepFacts:
        """The formats of a step that has run."""
        used = self._emulation.formats_used
        key = self._numerics.stage(step), tuple(sorted(used.items()))
        if key not in self._known:
            self._known[key] = StepFacts(
                layers=tuple(
                    LayerFact(layer=layer, role=role, format=str(changed.format), stored_bits=changed.stored_bits)
                    for layer in dict.fromkeys((*self._emulation.layers_seen, *used))
                    for role, changed in self._changed(layer, step, dict(used.get(layer, ())))
                )
            )
        return self._known[key]

    def _changed(self, layer: str, step: int, used: Mapping[Role, RoleFormat]) -> list[tuple[Role, RoleFormat]]:
        if not used and not self._numerics.schedule:
            return []
        static, scheduled = (self._numerics.in_force(layer, at, self._emulation.ends) for at in (0, step))
        changed: dict[str, RoleFormat] = {str(role): role_format for role, role_format in used.items()}
        return list(replace(scheduled, **changed).formats_differing(static).items())
