"""Training and evaluation data: order, grouping, workers, streams, files, augmentation, and the place to resume at."""

import multiprocessing
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from presilicon import Splits, Workload, load_workload
from presilicon.base import ConfigError, RunFailedError, derive_seed
from presilicon.designs import Numerics
from presilicon.emulation import Checkpoint, train
from presilicon.emulation.training.batches import EvaluationData, TrainingData, evaluate_split
from presilicon.workloads import capture_workload

COUNT = 100


WORKLOAD = load_workload(Path(__file__).parents[3] / "data" / "noisy_workload.py")
"""Loaded as a user's file, because a worker process cannot import a test."""


def load(kind: str, workers: int = 0) -> Splits:
    assert isinstance(WORKLOAD.data, partial)
    splits = WORKLOAD.data.func(kind, workers)
    assert isinstance(splits, Splits)
    return splits


def pair(count: int = COUNT) -> tuple[Tensor, Tensor]:
    inputs, targets = load("items").validation
    return inputs[:count], targets[:count]


class Batches:
    """Batches of 30, 30, 30 and 10."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(*(part.split(30) for part in pair()), strict=True)


def train_split(kind: str, workers: int = 0) -> Any:
    return pair() if kind == "tensors" else Batches() if kind == "batches" else load(kind, workers).train


def make_workload(kind: str = "items", workers: int = 0, **options: Any) -> Workload:
    data = lambda: Splits(train_split(kind, workers), pair(), pair())  # noqa: E731
    return replace(WORKLOAD, data=data, **options)


def open_data(split: Any, seed: int = 5, **options: Any) -> TrainingData:
    # With the workload of the file, so that workers know where the data set's class is.
    return TrainingData(replace(WORKLOAD, **options), split, seed=seed, device="cpu")


def shuffled_batches(size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The reference: a fresh permutation each epoch, in batches of a constant size, without the short tail."""
    inputs, targets = pair()
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(inputs), generator=generator)
        for start in range(0, len(inputs) - size + 1, size):
            indices = order[start : start + size]
            yield inputs[indices], targets[indices]


def assert_equal(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> None:
    assert all(torch.equal(*parts) for parts in zip(one, other, strict=True))


@pytest.mark.parametrize("size", [1, 20, 33, 100])
@pytest.mark.parametrize("kind", ["tensors", "arrays", "data set", "list"])
def test_batches_are_those_of_a_fresh_permutation_each_epoch(size: int, kind: str) -> None:
    split: Any = {
        "tensors": pair(),
        "arrays": tuple(part.numpy() for part in pair()),
        "data set": TensorDataset(*pair()),
        "list": list(zip(*pair(), strict=True)),
    }[kind]
    data, expected = open_data(split, batch_size=size), shuffled_batches(size, derive_seed(5, "data"))
    for _ in range(3 * COUNT // size):
        assert_equal(data.take(size), next(expected))


def test_the_order_of_samples_does_not_depend_on_their_grouping() -> None:
    whole, grouped = open_data(pair()), open_data(pair())
    inputs = whole.take(COUNT)[0]
    assert torch.equal(torch.cat([grouped.take(count)[0] for count in (10, 40, 25, 25)]), inputs)
    # 70 do not fit after 40 of the second epoch, so its rest is dropped and the third begins.
    third = [whole.take(COUNT)[0] for _ in range(2)][1]
    grouped.take(40)
    assert torch.equal(grouped.take(70)[0], third[:70])


@pytest.mark.parametrize("kind", ["tensors", "items", "samples", "batches"])
def test_data_continue_from_their_state_although_batches_grew(kind: str) -> None:
    counts = (20, 30, 45, 45, 60, 10)
    for stop in range(len(counts)):
        data = open_data(train_split(kind))
        for count in counts[:stop]:
            data.take(count)
        resumed = open_data(train_split(kind))
        resumed.load_state_dict(data.state_dict())
        for count in counts[stop:]:
            assert_equal(resumed.take(count), data.take(count))


def test_a_loader_with_workers_gives_the_bits_of_one_without() -> None:
    alone, fed = open_data(train_split("loader")), open_data(train_split("loader", workers=2))
    plain = open_data(train_split("items"))
    seen = []
    for count in (20, 20, 20, 20, 20, 20):
        inputs, targets = fed.take(count)
        assert_equal(alone.take(count), (inputs, targets))
        assert_equal((2 * plain.take(count)[0], targets), (inputs, targets))
        seen.append(inputs)
    assert not torch.equal(seen[0].sort(0)[0], seen[5].sort(0)[0])  # the noise of another epoch is another


def test_workers_end_with_the_training_and_change_nothing() -> None:
    before = set(multiprocessing.active_children())
    alone, fed = (
        train(make_workload("loader", workers, max_steps=4, sustain=1), Numerics(), seed=1) for workers in (0, 1)
    )
    assert fed == alone
    assert not set(multiprocessing.active_children()) - before


def test_reading_items_leaves_the_global_generators_alone() -> None:
    data, stream = open_data(train_split("items")), open_data(train_split("samples"))
    states = torch.get_rng_state(), numpy.random.get_state()[1].copy(), random.getstate()  # type: ignore[index,union-attr]
    data.take(20)
    stream.take(20)
    assert torch.equal(states[0], torch.get_rng_state())
    assert (states[1] == numpy.random.get_state()[1]).all()  # type: ignore[index]
    assert states[2] == random.getstate()


def test_a_stream_is_regrouped_and_iterated_again() -> None:
    data = open_data(Batches())
    inputs = pair()[0]
    assert torch.equal(data.take(45)[0], inputs[:45])
    assert torch.equal(data.take(55)[0], inputs[45:])
    assert torch.equal(data.take(70)[0], inputs[:70])
    assert torch.equal(data.take(70)[0], inputs[:70])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_is_read_through_its_loader(workers: int) -> None:
    data = open_data(train_split("sample loader", workers))
    assert torch.equal(data.take(50)[0], pair()[0][:50])


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (lambda: iter([pair(10)]), "the train split ended after 10 samples, but a step needs 20"),
        (lambda: iter([]), "the train split ended after 0 samples, but a step needs 20"),
        (lambda: iter([pair(10)[0]]), r"a batch of the train split must be a pair \(inputs, targets\), not a Tensor"),
        (lambda: iter([(*pair(10), 3)]), "must be a pair .*not a tuple of 3"),
        (lambda: iter([(pair(10)[0], pair(9)[1])]), "has 10 inputs and 9 targets"),
        (lambda: iter([("a", "b")]), "inputs and targets of the train split must be tensors, not str"),
    ],
)
def test_a_stream_that_ends_early_or_is_no_stream_of_batches_is_one_clear_error(
    split: Callable[[], Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        open_data(split()).take(20)


def test_a_stream_that_cannot_start_again_is_one_clear_error() -> None:
    data = open_data(iter([pair()]))
    for _ in range(5):
        data.take(20)
    with pytest.raises(ConfigError, match=r"ended after 0 samples.* its __iter__ must start from the beginning"):
        data.take(20)


@pytest.mark.parametrize(
    ("kind", "workers", "message"),
    [
        ("broken", 0, r"^example \d+ of the train split cannot be read: .*KeyError: 'no such row'$"),
        ("broken", 1, r"^example \d+ of the train split cannot be read: .*KeyError: 'no such row'$"),
        ("broken stream", 0, "^.*OSError: the disk is gone$"),
    ],
)
def test_data_that_cannot_be_read_are_one_clear_error(kind: str, workers: int, message: str) -> None:
    with pytest.raises(RunFailedError, match=message) as error:
        open_data(train_split(kind, workers)).take(20)
    assert "\n" not in str(error.value)


def test_a_step_larger_than_the_split_is_one_clear_error() -> None:
    with pytest.raises(ConfigError, match="a step needs 128 samples, but the training split has only 100"):
        open_data(pair()).take(128)
    with pytest.raises(ConfigError, match="batch_size is 128, but the training split has only 100 examples"):
        open_data(train_split("items"), batch_size=128)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (
            DataLoader(TensorDataset(*pair()), sampler=WeightedRandomSampler([1.0] * COUNT, 5)),
            "a WeightedRandomSampler, but the order",
        ),
        (DataLoader(TensorDataset(*pair()), batch_size=None), "no batch size, but the order"),
        (torch.zeros(3, 2), "must be a pair .*not Tensor"),
        (numpy.zeros((3, 2)), "must be a pair .*not ndarray"),
        ((torch.zeros(3), torch.zeros(3), 1), "must be a pair .*not a tuple of 3"),
        ([], "the train split is empty"),
        (3, "must be a pair .*not int"),
    ],
)
def test_a_split_that_cannot_be_is_refused(split: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Splits(split, pair(), pair())


def test_a_stream_cannot_be_evaluated() -> None:
    with pytest.raises(ConfigError, match=r"the validation split must have a length.*Samples has none"):
        Splits(pair(), train_split("samples"), pair())


@pytest.mark.parametrize("split", [lambda: DataLoader(TensorDataset(*pair())), lambda: TensorDataset(*pair())])
def test_any_kind_of_split_is_evaluated_to_the_same_numbers(split: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    model, workload = WORKLOAD.model(), make_workload(evaluation_batch=32)
    expected = evaluate_split(model, workload, EvaluationData(workload, pair(), "test", device="cpu"))
    data = EvaluationData(workload, split(), "test", device="cpu")
    assert [evaluate_split(model, workload, data) for _ in range(3)] == [expected] * 3


@pytest.mark.parametrize("kind", [numpy.asanyarray, torch.from_numpy], ids=["array", "tensor"])
def test_a_mapped_file_is_read_only_where_it_is_used(kind: Callable[[Any], Any], tmp_path: Path) -> None:
    rows, width = 100_000, 4096
    file = numpy.memmap(tmp_path / "inputs", numpy.float32, "w+", shape=(rows, width))  # sparse: no room on the disk
    inputs, targets = kind(file), kind(numpy.zeros(rows, numpy.int64))
    held = inputs[:8], targets[:8]
    workload = replace(
        make_workload(batch_size=8, max_steps=4, sustain=1),
        model=WideModel,
        data=lambda: Splits((inputs, targets), held, held),
    )
    before = resident_file_bytes()
    assert train(workload, Numerics()).steps == 4
    capture_workload(workload)
    assert resident_file_bytes() - before < file.nbytes / 20


class WideModel(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4096, 2)


def resident_file_bytes() -> int:
    """Bytes of mapped files that are in memory."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("not on this machine: Linux's /proc")
    line = next(line for line in status.read_text().splitlines() if line.startswith("RssFile"))
    return 1024 * int(line.split()[1])


def jitter(inputs: Tensor, generator: torch.Generator) -> Tensor:
    return inputs + torch.rand(len(inputs), 1, generator=generator)


def test_augmentation_depends_on_seed_and_position_only() -> None:
    plain, one, other = open_data(pair()), open_data(pair(), augment=jitter), open_data(pair(), augment=jitter)
    for _ in range(7):
        inputs = one.take(20)[0]
        assert not torch.equal(inputs, plain.take(20)[0])
        assert torch.equal(inputs, other.take(20)[0])
    resumed = open_data(pair(), augment=jitter)
    resumed.load_state_dict(one.state_dict())
    assert torch.equal(resumed.take(20)[0], one.take(20)[0])
    assert not torch.equal(open_data(pair(), seed=6, augment=jitter).take(20)[0], inputs)
    assert make_workload(augment=jitter).describe()["augment"].partition(" #")[0].endswith("jitter")


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        (
            lambda inputs, _: inputs[1:],
            r"must return a tensor of as many inputs as it was given \(20\), not 19",
        ),
        (lambda inputs, _: None, "not a NoneType"),
    ],
)
def test_an_augmentation_must_keep_the_batch(augment: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_data(pair(), augment=augment).take(20)


@pytest.mark.parametrize("kind", ["tensors", "items", "samples", "batches"])
def test_training_resumes_to_the_same_bits(kind: str, tmp_path: Path) -> None:
    workload = make_workload(kind, augment=jitter)
    whole = train(workload, Numerics(), seed=1)
    checkpoint = Checkpoint(tmp_path / "run", every=1)

    class StoppedError(Exception):
        pass

    def stop(point: Any) -> None:
        if point.step == 8:
            raise StoppedError

    with pytest.raises(StoppedError):
        train(workload, Numerics(), seed=1, checkpoint=checkpoint, on_evaluation=stop)
    assert train(workload, Numerics(), seed=1, checkpoint=checkpoint) == whole
    assert len(set(whole.losses)) == 12


@pytest.mark.parametrize("kind", ["tensors", "items", "samples", "batches", "loader", "sample loader"])
def test_every_kind_of_data_can_be_captured(kind: str) -> None:
    graph = capture_workload(make_workload(kind), batch_size=6)
    assert graph.batch_size == 6
    assert graph.flops("forward", matrix_only=True) == 2 * 6 * (4 * 8 + 8 * 2)
