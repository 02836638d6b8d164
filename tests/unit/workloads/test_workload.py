import pickle
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from presilicon.base import ConfigError
from presilicon.designs import Numerics
from presilicon.emulation import train
from presilicon.study import compare
from presilicon.workloads import (
    LearningRateSchedule,
    Splits,
    Workload,
    capture_workload,
    load_metric,
    load_workload,
    workload_names,
)
from presilicon.workloads.workload import argmax_accuracy, sgd


def make_model() -> nn.Module:
    return nn.Linear(4, 2)


def make_data(examples: int = 6) -> Splits:
    pair = (torch.zeros(examples, 4), torch.zeros(examples, dtype=torch.int64))
    return Splits(train=pair, validation=pair, test=pair)


def mine(**changes: object) -> Workload:
    return Workload(**{"name": "mine", "model": make_model, "data": make_data, "target": 0.9} | changes)  # type: ignore[arg-type]


def test_a_user_gives_four_things_and_can_train() -> None:
    workload = mine()
    model, splits = workload.model(), workload.data()
    optimizer = workload.optimizer(model.parameters())
    workload.loss(model(splits.train[0]), splits.train[1]).backward()
    optimizer.step()
    assert 0 <= workload.accuracy(model(splits.test[0]), splits.test[1]) <= 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": " "}, "name"),
        ({"name": 3}, "name"),
        ({"target": 0}, "target"),
        ({"target": 1.5}, "target"),
        ({"target": float("nan")}, "target"),
        ({"target": True}, "target"),
        ({"target": "97%"}, "target"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 1.5}, "batch_size"),
        ({"sustain": -1}, "sustain"),
        ({"evaluate_every": True}, "evaluate_every"),
        ({"max_steps": "many"}, "max_steps"),
        ({"model": nn.Linear(1, 1).weight}, "model"),
        ({"loss": "mse"}, "loss"),
        ({"data": "digits"}, "data must be a function"),
        ({"example": 3}, "example must be a function"),
        ({"data": None, "target": None}, "needs data and a target to be trained, or an example"),
        ({"data": None, "example": make_data}, "the target 0.9 needs data"),
        ({"target": None}, "target must be above 0"),
    ],
)
def test_impossible_values_are_named(change: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        mine(**change)


def test_data_that_are_no_splits_and_percentages_are_explained() -> None:
    numbers = mine(data=lambda: 3)
    with pytest.raises(ConfigError, match=r'"mine": data\(\) must return Splits.*not int'):
        train(numbers, Numerics())
    with pytest.raises(ConfigError, match="not int"):
        capture_workload(numbers)
    with pytest.raises(ConfigError, match="between 0 and 1, not 97; divide percentages by 100"):
        train(mine(accuracy=lambda output, target: 97.0, batch_size=2), Numerics())


def test_splits_must_be_pairs_of_equal_length() -> None:
    good = (torch.zeros(2, 1), torch.zeros(2))
    with pytest.raises(ConfigError, match="validation split has 2 inputs and 3 targets"):
        Splits(train=good, validation=(torch.zeros(2, 1), torch.zeros(3)), test=good)
    with pytest.raises(ConfigError, match="at least one"):
        Splits(train=(torch.zeros(0, 1), torch.zeros(0)), validation=good, test=good)
    with pytest.raises(ConfigError, match="pair"):
        Splits(train=torch.zeros(2, 1), validation=good, test=good)  # type: ignore[arg-type]


def test_description_is_plain_and_the_same_in_every_process() -> None:
    workload = mine(data=partial(make_data, 7), optimizer=partial(sgd, learning_rate=0.5), loss=nn.CrossEntropyLoss())
    described = workload.describe()
    assert described["data"].partition(" #")[0].endswith("make_data(7)")
    assert described["optimizer"] == "presilicon.workloads.workload.sgd(learning_rate=0.5)"
    assert described["loss"] == "torch.nn.modules.loss.CrossEntropyLoss"
    assert all(isinstance(value, str | int | float) for value in described.values())
    assert "0x" not in str(described)


def test_unpicklable_workloads_are_explained() -> None:
    mine(model=nn.ReLU).require_picklable()
    with pytest.raises(ConfigError, match=r"model cannot be sent to another process.*functools\.partial"):
        mine(model=lambda: nn.Linear(4, 2)).require_picklable()


@pytest.mark.parametrize("name", workload_names())
def test_packaged_workloads_survive_pickling(name: str) -> None:
    workload = load_workload(name)
    workload.require_picklable()
    assert pickle.loads(pickle.dumps(workload)).describe() == workload.describe()


def test_unknown_workload_proposes_the_nearest() -> None:
    with pytest.raises(ConfigError, match='unknown workload "digits-cn": did you mean "digits-cnn"'):
        load_workload("digits-cn")


def test_nan_scores_are_wrong_answers() -> None:
    scores = torch.tensor([[1.0, 0.0], [float("nan"), 0.0]])
    assert argmax_accuracy(scores, torch.tensor([0, 0])) == 0.5


def test_listing_and_loading_workloads_imports_neither_torch_nor_sklearn() -> None:
    code = (
        "import sys; from presilicon.workloads import load_workload, workload_names;"
        "[load_workload(name).describe() for name in workload_names()];"
        "print([name for name in ('torch', 'sklearn', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_data_there_is_an_example_and_no_training() -> None:
    workload = mine(data=None, target=None, example=lambda size: (torch.empty(size, 4), torch.empty(size)))
    assert not workload.can_evaluate
    assert workload.batch(3)[0].shape == (3, 4)
    assert {"data", "target"}.isdisjoint(workload.describe())
    with pytest.raises(ConfigError, match='"mine" has no data, so it can be simulated but not trained'):
        workload.require_data()
    for refuse in (lambda: train(workload, Numerics()), lambda: compare(["fp32-systolic"], workload)):
        with pytest.raises(ConfigError, match="has no data"):
            refuse()


def test_the_example_follows_from_the_data_unless_it_is_given() -> None:
    inputs, targets = mine().batch(5)
    assert (inputs.shape, targets.shape, inputs.device.type) == ((5, 4), (5,), "meta")
    assert targets.dtype == torch.int64
    assert mine(example=lambda size: (size, None)).batch(5) == (5, None)


def test_a_model_that_cannot_be_made_on_the_meta_device_is_made_with_numbers() -> None:
    def make() -> nn.Module:
        return nn.Linear(4, int(torch.tensor([2.0]).item()))

    graph = capture_workload(mine(model=make))
    assert [op.gemm.n for op in graph.ops if op.gemm and op.phase == "forward"] == [2]


def test_a_schedule_is_read_from_text_and_described_only_when_there_is_one() -> None:
    plain = Workload(name="mine", model=dict, example=dict)
    scheduled = replace(plain, schedule="cosine(warmup=10)")
    assert scheduled == replace(plain, schedule=LearningRateSchedule.parse("cosine(warmup=10)"))
    assert "schedule" not in plain.describe()
    assert scheduled.describe() == plain.describe() | {"schedule": "cosine(warmup=10)"}
    assert plain.rate_factor(640, 64) == 1.0
    assert scheduled.rate_factor(5 * 64, 64) == pytest.approx(0.505)
    assert replace(plain, schedule="constant(scale_from=32)").rate_factor(0, 128) == 4.0


def test_a_schedule_that_cannot_be_read_names_the_workload() -> None:
    with pytest.raises(ConfigError, match='workload "mine": unknown schedule "cosin"'):
        Workload(name="mine", model=dict, example=dict, schedule="cosin")
    with pytest.raises(ConfigError, match="schedule must be a Schedule or its text, not int"):
        Workload(name="mine", model=dict, example=dict, schedule=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"milestones": [0.5]}, r"milestones must be a tuple of numbers, not \[0\.5\]"),
        ({"milestones": (0.9,)}, r"milestones must be easier than the target 0\.9, not 0\.9"),
        ({"milestones": (0.5, 0.95)}, r"milestones must be easier than the target 0\.9, not 0\.95"),
        ({"milestones": (0.0,)}, r"milestones: a target must be above 0 and at most 1, not 0\.0"),
        ({"stop_hopeless": 1}, r"stop_hopeless must be True or False, not 1"),
    ],
)
def test_milestones_are_easier_targets(changes: dict, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        Workload(name="mine", model=dict, data=dict, target=0.9, **changes)


def test_milestones_of_a_metric_that_falls_are_larger() -> None:
    loss = load_metric("loss")
    assert Workload(name="mine", model=dict, data=dict, target=0.9, metric=loss, milestones=(1.5,)).milestones == (1.5,)
    with pytest.raises(ConfigError, match="easier than the target"):
        Workload(name="mine", model=dict, data=dict, target=0.9, metric=loss, milestones=(0.5,))


def test_options_that_are_off_leave_the_description_as_it_was() -> None:
    plain = Workload(name="mine", model=dict, data=dict, target=0.9).describe()
    assert not {"milestones", "stop_hopeless"} & plain.keys()
