"""The examples of a training run: batches in a seeded order, and the metric over a split."""

import warnings
from collections.abc import Callable, Generator, Iterator
from itertools import cycle, islice, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from presilicon.base import ConfigError, derive_seed
from presilicon.workloads import Batch, Rows, Slot, Stream, Workload, files_of, open_split, resident_pair

Pair = tuple[Tensor, Tensor]


class Order:
    """A seeded order of examples: a fresh permutation each epoch."""

    def __init__(self, examples: int, seed: int, device: str = "cpu") -> None:
        """Indices are on `device`."""
        self._examples, self._seed, self._device = examples, seed, device
        self._epoch, self._indices = -1, torch.empty(0)
        self._generator = torch.Generator().manual_seed(seed)

    def slots(self, epoch: int, offset: int, count: int) -> Iterator[Slot]:
        """Endless batches of `count` examples from a position on, without the tail that does not fill one."""
        while True:
            order = self._permutation(epoch)
            while offset + count <= self._examples:
                offset += count
                yield Slot(epoch, offset, order[offset - count : offset])
            epoch, offset = epoch + 1, 0

    def _permutation(self, epoch: int) -> Tensor:
        if epoch < self._epoch:
            self._epoch = -1
            self._generator.manual_seed(self._seed)
        while self._epoch < epoch:
            self._indices = torch.randperm(self._examples, generator=self._generator).to(self._device)
            self._epoch += 1
        return self._indices


class TrainingData:
    """The training split of a workload on a device, in the order of a seed, with its augmentation.

    The order does not depend on how samples are grouped into batches, except that an epoch's tail that does not fill a
    batch is dropped.
    """

    def __init__(self, workload: Workload, split: Any, *, seed: int, device: str) -> None:
        self._workload, self._seed, self._device = workload, seed, device
        pair = resident_pair(split)
        resident = split if pair is None else (pair[0].to(device), pair[1].to(device))
        # Indices that are copied for each batch would make it wait for the GPU.
        self._order_device = "cpu" if pair is None else device
        self._source = open_split(resident, "train", derive_seed(seed, "data"), files_of(workload))
        self._batches: Iterator[Batch] = iter(())
        self._count = 0
        self._epoch = self._offset = 0
        self._check_batch_size()

    @property
    def samples(self) -> int | None:
        """Samples of an epoch; None for a stream, whose end is not known."""
        return None if isinstance(self._source, Stream) else len(self._source)

    def take(self, count: int) -> Pair:
        """The next `count` samples.

        Raises:
            ConfigError: the split has fewer samples.
            RunFailedError: an example cannot be read.
        """
        if self.samples is not None and count > self.samples:
            raise ConfigError(f"a step needs {count} samples, but the training split has only {self.samples}")
        if count != self._count:
            self.close()
            self._batches, self._count = self._read(count), count
        batch = next(self._batches)
        self._epoch, self._offset = batch.epoch, batch.end
        inputs, targets = (self._own(part) for part in (batch.inputs, batch.targets))
        return self._augmented(inputs, batch), targets

    def _own(self, part: Tensor) -> Tensor:
        """A part of a batch on the device, in memory of its own: a model may write into it."""
        moved = part.to(self._device, non_blocking=True)
        is_copied = moved is not part or isinstance(self._source, Rows)  # rows are gathered by index
        return moved if is_copied else moved.clone()

    def state_dict(self) -> dict[str, Any]:
        """Epoch, and the number of its samples that were taken or dropped."""
        return {"epoch": self._epoch, "offset": self._offset}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at a state."""
        self._epoch, self._offset, self._count = int(state["epoch"]), int(state["offset"]), 0

    def close(self) -> None:
        """End the workers that read ahead, if there are any."""
        _close(self._batches)
        self._batches, self._count = iter(()), 0

    def _read(self, count: int) -> Iterator[Batch]:
        if isinstance(self._source, Stream):
            return self._source.read(self._epoch, self._offset, count)
        order = Order(len(self._source), derive_seed(self._seed, "data"), self._order_device)
        return self._source.read(order.slots(self._epoch, self._offset, count))

    def _augmented(self, inputs: Tensor, batch: Batch) -> Tensor:
        """The inputs after the workload's augmentation, whose random numbers depend on seed and position only."""
        augment = self._workload.augment
        if augment is None:
            return inputs
        generator = torch.Generator(device=inputs.device)
        generator.manual_seed(derive_seed(self._seed, "augment", batch.epoch, batch.end - len(inputs)))
        changed = augment(inputs, generator)
        if not isinstance(changed, Tensor) or len(changed) != len(inputs):
            what = f"{len(changed)} inputs" if isinstance(changed, Tensor) else f"a {type(changed).__name__}"
            raise ConfigError(
                f'workload "{self._workload.name}": augment must return a tensor of as many inputs as it was given '
                f"({len(inputs)}), not {what}"
            )
        return changed

    def _check_batch_size(self) -> None:
        if self.samples is not None and self._workload.batch_size > self.samples:
            raise ConfigError(
                f'workload "{self._workload.name}": batch_size is {self._workload.batch_size}, '
                f"but the training split has only {self.samples} examples"
            )


class EvaluationData:
    """The validation or test split of a workload on a device, in pieces."""

    def __init__(self, workload: Workload, split: Any, name: str, *, device: str) -> None:
        self._device = device
        pair = resident_pair(split)
        self._pair = None if pair is None else (pair[0].to(device), pair[1].to(device))
        source = open_split(split, name, derive_seed(0, "evaluation"), files_of(workload))
        assert not isinstance(source, Stream)
        self.samples = len(source)
        self._bounds = list(pairwise([*range(0, self.samples, workload.evaluation_batch), self.samples]))
        # Read endlessly, so that workers are started once and not for each evaluation.
        self._batches = source.read(Slot(0, end, torch.arange(start, end)) for start, end in cycle(self._bounds))

    def pieces(self) -> Iterator[Pair]:
        """All examples, in their order."""
        if self._pair is not None:
            inputs, targets = self._pair
            yield from ((inputs[start:end].clone(), targets[start:end].clone()) for start, end in self._bounds)
            return
        for batch in islice(self._batches, len(self._bounds)):
            yield batch.inputs.to(self._device), batch.targets.to(self._device)

    def close(self) -> None:
        """End the workers that read ahead, if there are any."""
        _close(self._batches)


def _close(batches: Iterator[Batch]) -> None:
    if isinstance(batches, Generator):
        batches.close()


def run_model(model: nn.Module, workload: Workload, inputs: Tensor) -> Any:
    """The outputs of a model.

    Raises:
        ConfigError: it cannot take these inputs.
    """
    before = written(inputs)
    try:
        output = model(inputs)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        given = f"shape {tuple(inputs.shape)} and type {inputs.dtype}"
        raise ConfigError(f'workload "{workload.name}": the model cannot take inputs of {given} ({error})') from error
    if written(inputs) != before:
        warnings.warn(
            f'workload "{workload.name}": the model writes into its input in place; here it gets a copy of the data, '
            "but elsewhere it may spoil them: let its first op make a new tensor",
            WrittenInputWarning,
            stacklevel=2,
        )
    return output


class WrittenInputWarning(UserWarning):
    """A forward pass changes the batch that it is given."""


def written(tensor: Tensor) -> int:
    """The number of writes to a tensor."""
    return 0 if tensor.is_inference() else tensor._version


def compute_loss(loss: Callable[[Any, Any], Tensor], workload: Workload, output: Any, targets: Tensor) -> Tensor:
    """The loss of outputs.

    Raises:
        ConfigError: labels are out of range, shapes do not match, or the loss is not one number.
    """
    where = f'workload "{workload.name}": the loss'
    try:
        value: Any = loss(output, targets)
    except (IndexError, TypeError, ValueError, RuntimeError) as error:
        target = f"targets of shape {tuple(targets.shape)} and type {targets.dtype}"
        if not targets.is_floating_point() and targets.numel():
            target += f" from {int(targets.min())} to {int(targets.max())}"
        is_tensor = isinstance(output, Tensor)
        given = f"outputs of shape {tuple(output.shape)}" if is_tensor else f"a {type(output).__name__}"
        raise ConfigError(f"{where} cannot take {given} and {target} ({error})") from error
    if not isinstance(value, Tensor) or value.numel() != 1:
        what = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise ConfigError(f"{where} must be a tensor of one number, not {what}")
    return value


@torch.no_grad()
def evaluate_split(model: nn.Module, workload: Workload, data: EvaluationData) -> tuple[float, float]:
    """The workload's metric and its mean loss over a split, computed in pieces so that a large split fits in memory.

    Raises:
        ConfigError: the metric is outside its range.
    """
    model.eval()
    metric = workload.measure
    total = loss = 0.0
    outputs: list[Tensor] = []
    targets: list[Tensor] = []
    for inputs, expected in data.pieces():
        output = run_model(model, workload, inputs)
        if metric.over == "pieces":
            total += metric.number(metric.compute(output, expected)) * len(expected)
        elif metric.over == "split":
            outputs.append(output)
            targets.append(expected)
        loss += float(compute_loss(workload.loss, workload, output, expected)) * len(expected)
    mean_loss = loss / data.samples
    if metric.over == "pieces":
        value = total / data.samples
    else:
        value = metric.number(
            metric.compute(torch.cat(outputs), torch.cat(targets)) if outputs else metric.compute(mean_loss)
        )
    return metric.check_value(value), mean_loss
