"""The examples of a training run: splits on their device, batches in a seeded order, and the metric over a split."""

from typing import Any

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


class TrainingData:
    """The training split in a seeded order, a fresh permutation each epoch without the tail that fills no batch."""

    def __init__(self, data: Splits, seed: int) -> None:
        self._inputs, self._targets = data.train
        self._seed = seed
        self._start()

    def _start(self) -> None:
        self._generator = torch.Generator().manual_seed(self._seed)
        self._epoch, self._offset = -1, len(self._inputs)

    def _next_epoch(self) -> None:
        self._order = torch.randperm(len(self._inputs), generator=self._generator).to(self._inputs.device)
        self._epoch, self._offset = self._epoch + 1, 0

    def take(self, count: int) -> tuple[Tensor, Tensor]:
        """The next `count` samples."""
        if count > len(self._inputs):
            raise ConfigError(f"a step needs {count} samples, but the training split has only {len(self._inputs)}")
        if self._offset + count > len(self._inputs):
            self._next_epoch()
        indices = self._order[self._offset : self._offset + count]
        self._offset += count
        return self._inputs[indices], self._targets[indices]

    def state_dict(self) -> dict[str, Any]:
        """Epoch and offset of the next sample."""
        return {"epoch": self._epoch, "offset": self._offset}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at a state."""
        self._start()
        for _ in range(int(state["epoch"]) + 1):
            self._next_epoch()
        self._offset = int(state["offset"])


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
