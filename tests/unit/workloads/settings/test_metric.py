"""Metrics: values against scikit-learn, directions, and what is refused."""

import math
import pickle
from dataclasses import replace

import pytest
import torch
from sklearn import metrics as oracle
from torch import nn

from presilicon import ConfigError
from presilicon.emulation.training.batches import EvaluationData, evaluate_split
from presilicon.workloads import Metric, Splits, Workload, load_metric


def scores(examples: int = 500, classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    targets = torch.randint(classes - 1, (examples,), generator=generator)  # the last class never occurs
    outputs = torch.randn(examples, classes, generator=generator)
    outputs[torch.arange(examples), targets] += 1.0
    return outputs, targets


def test_classification_metrics_equal_those_of_scikit_learn() -> None:
    outputs, targets = scores()
    guesses = outputs.argmax(-1)
    expected = oracle.f1_score(targets, guesses, labels=range(4), average="macro", zero_division=0)
    assert load_metric("macro F1").compute(outputs, targets) == pytest.approx(expected)
    assert load_metric("accuracy").compute(outputs, targets) == pytest.approx(oracle.accuracy_score(targets, guesses))
    assert load_metric("error rate").compute(outputs, targets) == pytest.approx(oracle.zero_one_loss(targets, guesses))


def test_rows_with_nan_count_as_wrong() -> None:
    outputs, targets = scores()
    best = nn.functional.one_hot(targets, 4).float()
    assert load_metric("macro F1").compute(best, targets) == 0.75
    best[targets == 0] = math.nan
    assert load_metric("macro F1").compute(best, targets) == 0.5
    assert load_metric("macro F1").compute(torch.full_like(outputs, math.nan), targets) == 0.0


def test_regression_metrics_equal_those_of_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(8)
    targets = torch.randn(300, generator=generator)
    outputs = (targets + 0.3 * torch.randn(300, generator=generator)).unsqueeze(1)
    expected = oracle.root_mean_squared_error(targets, outputs[:, 0])
    assert load_metric("RMSE").compute(outputs, targets) == pytest.approx(expected)
    assert load_metric("R2").compute(outputs, targets) == pytest.approx(oracle.r2_score(targets, outputs[:, 0]))


def make_data() -> Splits:
    pair = scores()
    return Splits(pair, pair, pair)


def make_workload(name: str, target: float, **options: object) -> Workload:
    return Workload(
        name="mine",
        model=nn.Identity,
        data=make_data,
        target=target,
        metric=load_metric(name),
        **options,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("piece", [64, 500, 1024])
def test_a_split_is_measured_the_same_in_any_pieces(piece: int) -> None:
    outputs, targets = scores()
    mean_loss = float(nn.functional.cross_entropy(outputs, targets))
    for name, expected in (
        ("accuracy", oracle.accuracy_score(targets, outputs.argmax(-1))),
        ("loss", mean_loss),
        ("perplexity", math.exp(mean_loss)),
        ("macro F1", load_metric("macro F1").compute(outputs, targets)),
    ):
        workload = make_workload(name, 0.5 if name in ("accuracy", "macro F1") else 2.0, evaluation_batch=piece)
        data = EvaluationData(workload, (outputs, targets), "test", device="cpu")
        value, loss = evaluate_split(nn.Identity(), workload, data)
        assert value == pytest.approx(expected, rel=1e-5), name
        assert loss == pytest.approx(mean_loss, rel=1e-5)


def test_perplexity_of_a_loss_that_is_too_large_or_not_a_number() -> None:
    compute = load_metric("perplexity").compute
    assert compute(1e4) == math.inf
    assert math.isnan(compute(math.nan))
    assert math.isnan(load_metric("perplexity").check_value(math.nan))


def test_a_direction_decides_what_reaches() -> None:
    accuracy, loss = load_metric("accuracy"), load_metric("loss")
    assert accuracy.reaches(0.9, 0.9)
    assert not accuracy.reaches(0.89, 0.9)
    assert loss.reaches(1.0, 1.0)
    assert not loss.reaches(1.1, 1.0)
    assert not loss.reaches(math.nan, 1.0)


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("accuracy", 97, "target must be above 0 and at most 1, not 97"),
        ("accuracy", None, "target must be above 0 and at most 1, not None"),
        ("perplexity", 0.5, "target must be at least 1, not 0.5"),
        ("error rate", 1.0, "target must be below 1 and at least 0, not 1.0"),
        ("loss", math.inf, "target must be a finite number, not inf"),
        ("R2", 1.5, "target must be at most 1, not 1.5"),
        ("RMSE", True, "target must be at least 0, not True"),
    ],
)
def test_a_target_outside_the_range_is_refused_before_training(name: str, target: float, message: str) -> None:
    with pytest.raises(ConfigError, match=f'workload "mine": {message}'):
        make_workload(name, target)


def test_a_value_outside_the_range_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a workload's accuracy must be between 0 and 1, not 97; divide percentages"):
        load_metric("accuracy").check_value(97)
    with pytest.raises(ConfigError, match=r"a workload's perplexity must be at least 1, not 0.5"):
        load_metric("perplexity").check_value(0.5)
    assert load_metric("accuracy").check_value(1 + 1e-9) == 1 + 1e-9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, 'metric "m": better must be "higher" or "lower", not None'),
        ({"better": "up"}, 'better must be "higher" or "lower", not \'up\''),
        ({"better": "lower", "over": "epoch"}, "over must be"),
        ({"better": "lower", "low": 1, "high": 0}, "low must be below high, not 1 and 0"),
        ({"better": "lower", "compute": 3}, "compute must be a function, not int"),
        ({"better": "lower", "name": ""}, "name must be a non-empty string"),
    ],
)
def test_a_metric_that_cannot_be_is_one_clear_error(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Metric(**{"name": "m", "compute": abs, **options})  # type: ignore[arg-type]


def test_an_unknown_metric_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match='unknown metric "perplexty": did you mean "perplexity"'):
        load_metric("perplexty")


def test_a_workload_has_a_metric_or_an_accuracy() -> None:
    with pytest.raises(ConfigError, match="give a metric or an accuracy, not both"):
        replace(make_workload("loss", 1.0), accuracy=abs)
    with pytest.raises(ConfigError, match="metric must be a Metric, not str"):
        replace(make_workload("loss", 1.0), metric="loss")  # type: ignore[arg-type]


def test_a_metric_is_described_in_place_of_the_accuracy_and_can_be_sent_to_a_process() -> None:
    workload = make_workload("perplexity", 20.0)
    described = workload.describe()
    assert "accuracy" not in described
    assert described["metric"] == {
        "name": "perplexity",
        "compute": "presilicon.workloads.settings.metrics.perplexity",
        "better": "lower",
        "over": "loss",
        "low": 1,
        "high": "inf",
    }
    workload.require_picklable()
    assert pickle.loads(pickle.dumps(workload)) == workload
    assert "metric" not in replace(workload, metric=None, target=0.5).describe()
