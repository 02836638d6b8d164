from collections.abc import Iterator

import pytest
import torch

from presilicon.workloads import Workload, load_workload
from presilicon.workloads.digits import load_digits


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_splits_hold_every_image_once_and_every_class_alike() -> None:
    splits = load_digits(image=False)
    inputs = torch.cat([splits.train[0], splits.validation[0], splits.test[0]])
    assert [len(split[1]) for split in (splits.train, splits.validation, splits.test)] == [1079, 359, 359]
    assert inputs.shape == (1797, 64)
    assert inputs.dtype == torch.float32
    # Images of the data set are distinct, so an image in two splits would show.
    assert len(inputs.unique(dim=0)) == 1797
    for _, targets in (splits.validation, splits.test):
        assert targets.bincount(minlength=10).tolist() == [36, 36, 35, 37, 36, 36, 36, 36, 35, 36]


def test_images_and_labels_are_those_of_scikit_learn() -> None:
    from sklearn import datasets

    splits = load_digits(image=False)
    pixels, labels = (torch.from_numpy(array) for array in datasets.load_digits(return_X_y=True))
    known = {tuple(image): label for image, label in zip(pixels.int().tolist(), labels.tolist(), strict=True)}
    inputs, targets = splits.train
    low, step = inputs.min(), (inputs.max() - inputs.min()) / 16
    images = ((inputs - low) / step).round().int().tolist()
    assert [known[tuple(image)] for image in images] == targets.tolist()


def test_inputs_are_normalised_by_the_training_split() -> None:
    splits = load_digits(image=True)
    assert splits.train[0].shape == (1079, 1, 8, 8)
    assert abs(float(splits.train[0].mean())) < 1e-6
    assert abs(float(splits.train[0].std(correction=0)) - 1) < 1e-6
    assert float(splits.validation[0].mean()) != 0


def test_splits_do_not_follow_the_seed_of_a_run() -> None:
    torch.manual_seed(1)
    first = load_digits(image=True)
    torch.manual_seed(2)
    second = load_digits(image=True)
    assert torch.equal(first.validation[0], second.validation[0])
    assert torch.equal(first.train[1], second.train[1])


def steps_to_target(workload: Workload, seed: int) -> int | None:
    torch.manual_seed(seed)
    model, splits = workload.model(), workload.data()
    optimizer = workload.optimizer(model.parameters())
    held = 0
    for step in range(1, workload.max_steps + 1):
        chosen = torch.randint(len(splits.train[1]), (workload.batch_size,))
        optimizer.zero_grad()
        workload.loss(model(splits.train[0][chosen]), splits.train[1][chosen]).backward()
        optimizer.step()
        if step % workload.evaluate_every == 0:
            with torch.no_grad():
                accuracy = workload.accuracy(model(splits.validation[0]), splits.validation[1])
            held = held + 1 if accuracy >= workload.target else 0
            if held == workload.sustain:
                return step
    return None


@pytest.mark.parametrize("name", ["digits-cnn", "digits-mlp"])
def test_float32_reaches_the_target_in_some_hundreds_of_steps(name: str) -> None:
    workload = load_workload(name)
    assert all(100 <= (steps_to_target(workload, seed) or 0) <= 1000 for seed in range(2))
