"""The examples of a training run: splits on their device, batches in a seeded order, and the metric over a split."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from presilicon.base import ConfigError
from presilicon.workloads import Splits, Workload


def check_batch_size(workload: Workload, data: Splits) -> None:
    """Check that the training split has at least one whole batch.

    Raises:
        ConfigError: it does not.
    """
    if workload.batch_size > len(data.train[0]):
        raise ConfigError(
            f'workload "{workload.name}": batch_size is {workload.batch_size}, '
            f"but the training split has only {len(data.train[0])} examples"
        )


def move_splits(data: Splits, device: str) -> Splits:
    """The splits on a device."""

    def move(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return pair[0].to(device), pair[1].to(device)

    return Splits(move(data.train), move(data.validation), move(data.test))


def shuffled_batches(data: Splits, size: int, seed: int, skip: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches after the first `skip`: a fresh permutation each epoch, without the short tail."""
    inputs, targets = data.train
    generator = torch.Generator().manual_seed(seed)
    per_epoch = len(inputs) // size
    while True:
        order = torch.randperm(len(inputs), generator=generator).to(inputs.device)
        for number in range(min(skip, per_epoch), per_epoch):
            indices = order[number * size : (number + 1) * size]
            yield inputs[indices], targets[indices]
        skip = max(skip - per_epoch, 0)


@torch.no_grad()
def evaluate_split(model: nn.Module, workload: Workload, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
    """The workload's metric and its mean loss over a split, computed in pieces so that a large split fits in memory.

    Raises:
        ConfigError: the metric is outside its range.
    """
    model.eval()
    metric, size = workload.measure, workload.evaluation_batch
    total = loss = 0.0
    outputs: list[Tensor] = []
    for start in range(0, len(inputs), size):
        expected = targets[start : start + size]
        output = model(inputs[start : start + size])
        if metric.over == "pieces":
            total += float(metric.compute(output, expected)) * len(expected)
        elif metric.over == "split":
            outputs.append(output)
        loss += float(workload.loss(output, expected)) * len(expected)
    mean_loss = loss / len(inputs)
    if metric.over == "pieces":
        value = total / len(inputs)
    else:
        value = float(metric.compute(torch.cat(outputs), targets) if outputs else metric.compute(mean_loss))
    return metric.check_value(value), mean_loss
