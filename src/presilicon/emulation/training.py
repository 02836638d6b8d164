"""The training loop: one seed of one workload under one design's numerics, recorded as a trace."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from presilicon.base.errors import ConfigError
from presilicon.base.seeds import derive_seed
from presilicon.designs import Numerics
from presilicon.emulation.attach import emulate_, emulation_of
from presilicon.emulation.facts import FormatFacts
from presilicon.emulation.losses import emulated
from presilicon.emulation.optimizers import emulate_optimizer_
from presilicon.records import Evaluation, FactsRun, Observer, StepFacts, Trace, TrainingHook
from presilicon.records.trace import Ending
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
    hooks: Sequence[TrainingHook] = (),
    on_evaluation: OnEvaluation | None = None,
) -> Trace:
    """Train until the workload's target is held, the budget is spent or the loss is no number; return the trace.

    The target counts as held when `workload.sustain` consecutive evaluations of the validation split reach it. The test
    split is looked at once, at the end. Weights, data order, stochastic rounding and randomness in the forward pass
    each have a stream of their own derived from `seed`, so two designs with the same seed start from the same weights
    and see the same batches.

    Raises:
        ConfigError: the workload comes without data, or its batch is larger than the training split.
    """
    cuda = [torch.device(device).index or 0] if device.startswith("cuda") else []
    with torch.random.fork_rng(devices=cuda):
        return _train(workload, numerics, seed, device, tuple(observers), hooks, on_evaluation)


def _train(
    workload: Workload,
    numerics: Numerics,
    seed: int,
    device: str,
    observers: tuple[Observer, ...],
    hooks: Sequence[TrainingHook],
    on_evaluation: OnEvaluation | None,
) -> Trace:
    load_data, target = workload.require_data()
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
    emulate_(model, numerics, seed=rounding_seed, observers=observers)
    emulation = emulation_of(model)
    assert emulation is not None
    optimizer = workload.optimizer(model.parameters())
    emulate_optimizer_(optimizer, numerics, model=model, seed=rounding_seed)
    loss_of = emulated(workload.loss, model) if numerics.vector == "round-results" else workload.loss
    formats = FormatFacts(emulation)
    batches = _batches(data, workload.batch_size, derive_seed(seed, "data"))

    losses: list[float] = []
    evaluations: list[Evaluation] = []
    facts_runs: list[FactsRun] = []
    ending: Ending = "budget"
    held = 0
    for step in range(workload.max_steps):
        for hook in hooks:
            hook.before_step(step)
        inputs, targets = next(batches)
        model.train()
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets)
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            _append(facts_runs, replace(formats.at(step), update_skipped=True))
            ending = "diverged"
            break
        loss.backward()
        optimizer.step()
        facts = formats.at(step)
        for hook in hooks:
            facts = hook.after_step(step, facts)
        _append(facts_runs, facts)
        if (step + 1) % workload.evaluate_every == 0:
            point = _evaluate(model, workload, data, step + 1)
            evaluations.append(point)
            if on_evaluation is not None:
                on_evaluation(point)
            held = held + 1 if point.accuracy >= target else 0
            if held >= workload.sustain:
                ending = "target"
                break
    return Trace(
        seed=seed,
        losses=tuple(losses),
        runs=tuple(facts_runs),
        evaluations=tuple(evaluations),
        test_accuracy=_accuracy(model, workload, *data.test)[0],
        ending=ending,
    )


def _on_device(data: Splits, device: str) -> Splits:
    def move(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return pair[0].to(device), pair[1].to(device)

    return Splits(move(data.train), move(data.validation), move(data.test))


def _append(runs: list[FactsRun], facts: StepFacts) -> None:
    if runs and runs[-1].facts == facts:
        runs[-1] = FactsRun(facts, runs[-1].count + 1)
    else:
        runs.append(FactsRun(facts, 1))


def _batches(data: Splits, size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches: a fresh permutation each epoch, the short tail left out."""
    inputs, targets = data.train
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(inputs), generator=generator).to(inputs.device)
        for start in range(0, len(inputs) - size + 1, size):
            chosen = order[start : start + size]
            yield inputs[chosen], targets[chosen]


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
