"""The training loop: one seed of one workload under one design's numerics, recorded as a trace."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import takewhile
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from presilicon.base.config import to_plain
from presilicon.base.errors import ConfigError
from presilicon.base.seeds import derive_seed
from presilicon.designs import Numerics
from presilicon.emulation.attach import emulate_, emulation_of
from presilicon.emulation.checkpoint import (
    Checkpoint,
    Generators,
    ModelState,
    Onlooker,
    Progress,
    Stateful,
    read_progress,
    read_trace,
    write_progress,
    write_trace,
)
from presilicon.emulation.diagnosis import Diagnosis, OnFinding
from presilicon.emulation.emulation import Emulation
from presilicon.emulation.facts import FormatFacts
from presilicon.emulation.losses import emulated
from presilicon.emulation.optimizers import emulate_optimizer_
from presilicon.emulation.probe import Probe
from presilicon.emulation.scaling import LossScaler
from presilicon.operators import Operator
from presilicon.records import AttachedHook, Evaluation, FactsRun, Observer, StepFacts, Trace, TrainingHook
from presilicon.records.trace import Ending
from presilicon.runs import versions
from presilicon.workloads import Splits, Workload

EVALUATION_BATCH = 1024

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
    """Train until the workload's target is held, the budget is spent or the loss is no number; return the trace.

    The target counts as held when `workload.sustain` consecutive evaluations of the validation split reach it. The test
    split is looked at once, at the end. Weights, data order, stochastic rounding and randomness in the forward pass
    each have a stream of their own derived from `seed`, so two designs with the same seed start from the same weights
    and see the same batches. `operators` take the place of functions, beside those of the numerics.

    A diagnosis looks at a step now and then, and at any that fails: what it finds is in the trace, and `on_finding`
    hears of it at once. A run that cannot recover is ended, with the reason.

    With a `checkpoint` the run is kept in its file now and then. Called again, a run that was broken off goes on from
    there to the same bits, and one that had ended gives its trace at once. What carries state must be the model's, the
    optimizer's or a hook's that has `state_dict` and `load_state_dict`.

    Raises:
        ConfigError: the workload comes without data, its batch is larger than the training split, or the checkpoint is
            of another run.
    """
    cuda = [torch.device(device).index or 0] if device.startswith("cuda") else []
    with torch.random.fork_rng(devices=cuda), _repeatable():
        watching, replacing = tuple(observers), tuple(operators)
        return _train(
            workload, numerics, seed, device, watching, replacing, hooks, on_evaluation, on_finding, checkpoint
        )


@contextmanager
def _repeatable() -> Iterator[None]:
    """Convolutions on a GPU by algorithms that give the same bits every time, and in float32 where that is meant."""
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.allow_tf32
    # By default torch lets convolutions of float32 round their operands to TF32.
    cudnn.deterministic, cudnn.allow_tf32 = True, False
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.allow_tf32 = before


def identity(
    workload: Workload, numerics: Numerics, seed: int, device: str, operators: Sequence[Operator] = ()
) -> dict[str, Any]:
    """What a checkpoint must agree with: all that the bits of a run hang on."""
    described: dict[str, Any] = {"workload": workload.describe(), "numerics": to_plain(numerics)}
    if operators:
        described["operators"] = [operator.describe() for operator in operators]
    return described | {"seed": seed, "device": device, "versions": versions()}


def _hook_states(hooks: Sequence[TrainingHook]) -> dict[str, Stateful]:
    """Those with state, by their place; whoever only looks on may come and go, and is counted apart."""
    onlookers = [hook for hook in hooks if isinstance(hook, Onlooker)]
    others = [hook for hook in hooks if not isinstance(hook, Onlooker)]
    found: dict[str, Stateful] = {f"hook{at}": hook for at, hook in enumerate(others) if isinstance(hook, Stateful)}
    return found | {f"onlooker{at}": hook for at, hook in enumerate(onlookers)}


def _train(
    workload: Workload,
    numerics: Numerics,
    seed: int,
    device: str,
    observers: tuple[Observer, ...],
    operators: tuple[Operator, ...],
    hooks: Sequence[TrainingHook],
    on_evaluation: OnEvaluation | None,
    on_finding: OnFinding | None,
    checkpoint: Checkpoint | None,
) -> Trace:
    load_data, target = workload.require_data()
    numerics.check()
    of = identity(workload, numerics, seed, device, operators) if checkpoint is not None else {}
    if checkpoint is not None and (ended := read_trace(checkpoint.path, of)) is not None:
        return ended
    torch.manual_seed(derive_seed(seed, "weights"))
    model = workload.model().to(device)
    data = _on_device(load_data(), device)
    if workload.batch_size > len(data.train[0]):
        raise ConfigError(
            f'workload "{workload.name}": batch_size is {workload.batch_size}, '
            f"but the training split has only {len(data.train[0])} examples"
        )
    # Dropout and the like draw from a stream of their own, whatever the model's making has drawn.
    torch.manual_seed(derive_seed(seed, "forward"))
    rounding_seed = derive_seed(seed, "rounding")
    emulate_(model, numerics, seed=rounding_seed, observers=observers, operators=operators)
    emulation = emulation_of(model)
    assert emulation is not None
    optimizer = workload.optimizer(model.parameters())
    emulate_optimizer_(optimizer, numerics, model=model, seed=rounding_seed)
    loss_of = emulated(workload.loss, model) if numerics.vector == "round-results" else workload.loss
    scaler = LossScaler(numerics.loss_scale)
    diagnosis = Diagnosis(numerics, on_finding)
    formats = FormatFacts(emulation)
    # All that is carried from step to step and is no part of the trace; the order of the data follows from the step.
    states: dict[str, Stateful] = {"model": ModelState(model), "optimizer": optimizer, "generators": Generators(device)}
    if scaler.is_active:
        states["loss_scale"] = scaler
    states["diagnosis"] = diagnosis
    states |= _hook_states(hooks)
    progress = Progress([], [], []) if checkpoint is None else read_progress(checkpoint.path, of, states)
    losses, facts_runs, evaluations = progress
    emulation.resume(len(losses))
    for hook in hooks:
        if isinstance(hook, AttachedHook):
            hook.attach(model, optimizer, len(losses))
    diagnosis.check_data(data, numerics)
    batches = _batches(data, workload.batch_size, derive_seed(seed, "data"), skip=len(losses))
    ending: Ending = "budget"
    held = _held(evaluations, target)
    reason: str | None = None
    for step in range(len(losses), workload.max_steps):
        for hook in hooks:
            hook.before_step(step)
        inputs, targets = next(batches)

        def run(inputs: Tensor = inputs, targets: Tensor = targets) -> Tensor:
            model.train()
            optimizer.zero_grad()
            output = model(inputs)
            try:
                return loss_of(output, targets)
            except (IndexError, ValueError, RuntimeError) as error:
                raise _unusable(workload, output, targets, error) from error

        probes = diagnosis.probing(model, emulation, step) if diagnosis.is_due(step) else nullcontext()
        with probes as probe:
            if probe is None:
                loss = run()
            else:
                with diagnosis.watching_relus(model, step):
                    loss = run()
            losses.append(float(loss.detach()))
            if math.isfinite(losses[-1]):
                scaler.scaled(loss).backward()
        if not math.isfinite(losses[-1]):
            _append(facts_runs, replace(formats.at(step), update_skipped=True))
            ending = "diverged"
            seen = probe or _probe_again(run, diagnosis, model, emulation, step)
            reason = diagnosis.fail(seen, model, inputs).message
            break
        finite = scaler.unscale_(model.parameters())
        if not finite and not scaler.is_active:
            # The update would make weights that are no numbers, and nothing brings those back.
            _append(facts_runs, replace(formats.at(step), update_skipped=True))
            ending = "diverged"
            seen = probe or _probe_again(run, diagnosis, model, emulation, step, backward=True)
            reason = diagnosis.fail(seen, model, inputs).message
            break
        if finite:
            if probe is not None:
                diagnosis.look(probe, model)
            if workload.clip_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), workload.clip_norm)
            optimizer.step()
        scaler.update(finite)
        reason = diagnosis.after_update(step, finite, scaler.scale)
        facts = formats.at(step) if finite else replace(formats.at(step), update_skipped=True)
        for hook in hooks:
            facts = hook.after_step(step, facts)
        _append(facts_runs, facts)
        if reason is not None:
            ending = "diverged"
            seen = _probe_again(run, diagnosis, model, emulation, step, backward=True, scaler=scaler)
            reason = f"{reason}; {diagnosis.fail(seen, model, inputs).message}"
            break
        if (step + 1) % workload.evaluate_every == 0:
            point = _evaluate(model, workload, data, step + 1)
            evaluations.append(point)
            if on_evaluation is not None:
                on_evaluation(point)
            held = held + 1 if point.accuracy >= target else 0
            if held >= workload.sustain:
                ending = "target"
                break
            if checkpoint is not None and len(evaluations) % checkpoint.every == 0:
                write_progress(checkpoint.path, of, progress, states)
    diagnosis.judge_skips(scaler.skipped, len(losses))
    trace = Trace(
        seed=seed,
        losses=tuple(losses),
        runs=tuple(facts_runs),
        evaluations=tuple(evaluations),
        test_accuracy=_accuracy(model, workload, *data.test)[0],
        ending=ending,
        findings=tuple(diagnosis.findings),
        shares=tuple(diagnosis.shares),
        skipped=tuple(scaler.skipped),
        reason=reason or "",
    )
    if checkpoint is not None:
        write_trace(checkpoint.path, of, trace)
    return trace


def _unusable(workload: Workload, output: Any, targets: Tensor, error: Exception) -> ConfigError:
    """The error for a loss that cannot be computed: labels out of range, shapes that do not meet."""
    given = f"targets of shape {tuple(targets.shape)}"
    if not targets.is_floating_point() and targets.numel():
        given += f" from {int(targets.min())} to {int(targets.max())}"
    made = f"outputs of shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
    return ConfigError(f'workload "{workload.name}": the loss cannot take {made} and {given} ({error})')


def _probe_again(
    run: Callable[[], Tensor],
    diagnosis: Diagnosis,
    model: nn.Module,
    emulation: Emulation,
    step: int,
    *,
    backward: bool = False,
    scaler: LossScaler | None = None,
) -> Probe:
    """A step that failed, once more and watched; the run ends here, so nothing is disturbed."""
    emulation.resume(step)
    with diagnosis.probing(model, emulation, step) as probe:
        loss = run()
        if backward:
            (loss if scaler is None else scaler.scaled(loss)).backward()
    return probe


def _held(evaluations: Sequence[Evaluation], target: float) -> int:
    """How many of the last evaluations in a row are at or above the target."""
    return len(list(takewhile(lambda point: point.accuracy >= target, reversed(evaluations))))


def _on_device(data: Splits, device: str) -> Splits:
    def move(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return pair[0].to(device), pair[1].to(device)

    return Splits(move(data.train), move(data.validation), move(data.test))


def _append(runs: list[FactsRun], facts: StepFacts) -> None:
    if runs and runs[-1].facts == facts:
        runs[-1] = FactsRun(facts, runs[-1].count + 1)
    else:
        runs.append(FactsRun(facts, 1))


def _batches(data: Splits, size: int, seed: int, skip: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches from the one after `skip` others: a fresh permutation each epoch, the short tail left out."""
    inputs, targets = data.train
    generator = torch.Generator().manual_seed(seed)
    whole = len(inputs) // size
    while True:
        order = torch.randperm(len(inputs), generator=generator).to(inputs.device)
        for number in range(min(skip, whole), whole):
            chosen = order[number * size : (number + 1) * size]
            yield inputs[chosen], targets[chosen]
        skip = max(skip - whole, 0)


def _evaluate(model: nn.Module, workload: Workload, data: Splits, step: int) -> Evaluation:
    accuracy, loss = _accuracy(model, workload, *data.validation)
    return Evaluation(step=step, accuracy=accuracy, loss=loss)


@torch.no_grad()
def _accuracy(model: nn.Module, workload: Workload, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
    """Mean accuracy and loss over a split, looked at in pieces so that a large one fits in memory."""
    model.eval()
    accuracy = loss = 0.0
    for start in range(0, len(inputs), EVALUATION_BATCH):
        wanted = targets[start : start + EVALUATION_BATCH]
        output = model(inputs[start : start + EVALUATION_BATCH])
        accuracy += float(workload.accuracy(output, wanted)) * len(wanted)
        loss += float(workload.loss(output, wanted)) * len(wanted)
    return accuracy / len(inputs), loss / len(inputs)
