"""`presilicon evaluate --batch --optimizer --lr --schedule --accumulate`."""

import json

import msgspec
import pytest

from presilicon.study import EvaluateRequest

ARGUMENTS = ["evaluate", "fp32-systolic", "--workload", "digits-mlp"]
SHORT = ["--seeds", "1", "--jobs", "1", "--target", "0.3", "--max-steps", "40"]


def test_options_decide_training_and_are_in_the_provenance(invoke, tmp_path) -> None:
    options = ["--optimizer", "adamw(weight_decay=0.1)", "--lr", "0.01", "--schedule", "cosine(warmup=4)"]
    outcome = invoke(*ARGUMENTS, *SHORT, *options, "--batch", "64", "--accumulate", "4", "--json")
    assert outcome.code == 0
    document = json.loads(outcome.out)
    workload = document["designs"][0]["provenance"]["workload"]
    assert workload["optimizer"] == (
        "presilicon.workloads.settings.optimizers.torch_optimizer(kind='adamw', learning_rate=0.01, weight_decay=0.1)"
    )
    assert workload["schedule"] == "cosine(warmup=4)"
    assert (workload["batch_size"], workload["accumulate"]) == (64, 4)
    plain = json.loads(invoke(*ARGUMENTS, *SHORT, "--json").out)
    first, other = (result["designs"][0]["seeds"][0]["curve"][0]["value"] for result in (document, plain))
    assert first != other


def test_a_batch_keeps_the_samples_of_budget_interval_and_schedule() -> None:
    request = EvaluateRequest(designs=("fp32-systolic",), workload="digits-mlp", batch=64)
    workload, own = request.load_workload()
    assert (own.batch_size, own.max_steps, own.evaluate_every) == (32, 1500, 10)
    assert (workload.batch_size, workload.max_steps, workload.evaluate_every) == (64, 750, 5)
    odd, _ = EvaluateRequest(designs=(), workload="digits-mlp", batch=100).load_workload()
    assert (odd.max_steps, odd.evaluate_every) == (480, 4)
    given, _ = EvaluateRequest(designs=(), workload="digits-mlp", batch=64, max_steps=90).load_workload()
    assert (given.max_steps, given.evaluate_every) == (90, 5)


def test_a_learning_rate_alone_keeps_the_workloads_optimizer() -> None:
    workload, _ = EvaluateRequest(designs=(), workload="digits-mlp", learning_rate=0.2).load_workload()
    assert "with_learning_rate(presilicon.workloads.workload.sgd(learning_rate=0.05" in workload.describe()["optimizer"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--optimizer", "adamm"], 'unknown optimizer "adamm": did you mean "adam"'),
        (["--optimizer", "adamw(decay=1)"], 'optimizer adamw has no parameter "decay"'),
        (["--schedule", "cosin"], 'unknown schedule "cosin": did you mean "cosine"'),
        (["--schedule", "step"], "schedule step needs every=N"),
        (["--lr", "0"], "--lr must be above 0, not 0"),
        (["--lr", "nan"], "--lr must be above 0, not nan"),
        (["--accumulate", "5"], "batch_size must be divisible by accumulate, not 32 by 5"),
        (["--batch", "4000"], "batch_size is 4000, but the training split has only 1079 examples"),
    ],
)
def test_an_option_that_cannot_be_is_one_clear_error(invoke, options: list[str], message: str) -> None:
    outcome = invoke(*ARGUMENTS, "--seeds", "1", "--jobs", "1", *options)
    assert outcome.code == 2
    assert message in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--batch", "64"], "chosen hyperparameters: batch_size 64 in place of the workload's 32"),
        (
            ["--lr", "0.2"],
            "chosen hyperparameters: optimizer presilicon.workloads.settings.optimizers.",
        ),
        (
            ["--schedule", "cosine"],
            "chosen hyperparameters: schedule cosine in place of the workload's constant(scale_from=32)",
        ),
        (["--accumulate", "4"], "chosen hyperparameters: accumulate 4 in place of the workload's none"),
    ],
)
def test_chosen_hyperparameters_are_not_strict(invoke, options: list[str], words: str) -> None:
    outcome = invoke(*ARGUMENTS, "--strict", *options)
    assert outcome.code == 2
    assert f"this is not a strict comparison:\n  - {words}" in outcome.err
    assert "finer evaluation" not in outcome.err


def test_a_saved_request_loads_the_same_workload() -> None:
    request = EvaluateRequest(
        designs=("fp32-systolic",), workload="digits-mlp", batch=64, optimizer="adamw(eps=1e-6)", learning_rate=0.01,
        schedule="step(every=300, factor=0.5)", accumulate=2,
    )  # fmt: skip
    again = msgspec.json.decode(msgspec.json.encode(request), type=EvaluateRequest)
    assert again == request
    assert again.load_workload()[0].describe() == request.load_workload()[0].describe()
