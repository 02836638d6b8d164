"""Laws of the plain training that executed schedules are compared with: its batches depend on its seed alone."""

from itertools import count, pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from presilicon.base import ConfigError
from presilicon.study.execution import PlainTraining
from presilicon.workloads import Splits, Workload

Batches = list[tuple[object, Tensor]]


class Tokens(nn.Module):
    """A model of words and of numbers beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(2, 3), nn.Linear(7, 2)

    def forward(self, words: Tensor, numbers: Tensor, scale: float) -> Tensor:
        return self.out(torch.cat([self.words(words).mean(1), numbers], 1)) * scale


def example(size: int) -> tuple[dict[str, object], Tensor]:
    inputs = {"words": torch.empty(size, 5, dtype=torch.int64), "numbers": torch.empty(size, 4), "scale": 0.5}
    return inputs, torch.empty(size, dtype=torch.int64)


def numbered() -> Splits:
    """Each input is its row's number, and so is its target."""
    inputs, targets = torch.arange(50.0)[:, None].expand(50, 3), torch.arange(50)
    return Splits((inputs, targets), (-inputs, targets), (-inputs, targets))


def linear() -> nn.Module:
    return nn.Linear(3, 50)


DRAWN = Workload(name="drawn", model=Tokens, example=example)
READ = Workload(name="read", model=linear, data=numbered, target=0.5)


DRAWN_BESIDE = count()


def batches(workload: Workload, seed: int, steps: int = 3) -> Batches:
    training = PlainTraining(workload, 6, seed)
    found = []
    for batch in training.batches(steps):
        torch.rand(next(DRAWN_BESIDE))  # whatever else draws
        found.append(batch)
    return found


def same(one: object, other: object) -> bool:
    pairs = zip(pytree.tree_leaves(one), pytree.tree_leaves(other), strict=True)
    return all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in pairs)


@pytest.mark.parametrize("workload", [DRAWN, READ], ids=["drawn", "read"])
def test_batches_are_those_of_the_seed_and_no_two_are_alike(workload: Workload) -> None:
    first = batches(workload, 1)
    assert same(first, batches(workload, 1))
    assert same(first[:2], batches(workload, 1, steps=2))
    assert not same(first, batches(workload, 2))
    assert not any(same(one, other) for one, other in pairwise(first))
    losses = [list(PlainTraining(workload, 6, *seed).run(3)) for seed in ((1,), (1,), (0,), ())]
    assert losses[0] == losses[1] != losses[2] == losses[3]


def test_drawn_batches_look_like_the_example() -> None:
    inputs, targets = example(6)
    for found_inputs, found_targets in batches(DRAWN, 4):
        assert found_inputs["scale"] == inputs["scale"]
        words, numbers = found_inputs["words"], found_inputs["numbers"]
        for found, given in ((words, inputs["words"]), (numbers, inputs["numbers"]), (found_targets, targets)):
            assert (found.shape, found.dtype) == (given.shape, given.dtype)
        assert set(words.unique().tolist()) == {0, 1}  # what every table of words and every number of classes has
        assert 0 <= numbers.min() < 0.3 < 0.7 < numbers.max() < 1


def test_batches_of_data_are_rows_of_the_training_split_with_their_targets() -> None:
    rows = set()
    for inputs, targets in batches(READ, 5, steps=200):
        assert inputs.shape == (6, 3)
        assert torch.equal(inputs, targets[:, None].expand(6, 3).float())
        rows |= set(targets.tolist())
    assert rows == set(range(50))


def test_gradients_of_one_step_are_not_those_of_the_step_before() -> None:
    """Each loss falls from the same batch as an optimizer by hand lets it fall."""
    training = PlainTraining(READ, 6, 3)
    torch.manual_seed(3)
    model = linear()
    assert same([*training.model.parameters()], [*model.parameters()])
    optimizer, expected = READ.optimizer(model.parameters()), []
    for inputs, targets in batches(READ, 3, steps=4):
        loss = READ.loss(model(inputs), targets)
        expected.append(loss.item())
        for parameter, gradient in zip(
            model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
        ):
            parameter.grad = gradient
        optimizer.step()
    assert list(training.run(4)) == expected


def test_micro_batches_are_refused() -> None:
    with pytest.raises(ConfigError, match="micro-batches"):
        PlainTraining(Workload(name="parts", model=linear, data=numbered, target=0.5, accumulate=2), 6)
