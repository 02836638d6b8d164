"""Optimizers by name: torch's own with their parameters, and other learning rates."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn, optim

from presilicon.base import ConfigError
from presilicon.designs import load_design
from presilicon.emulation import train
from presilicon.workloads import (
    OPTIMIZERS,
    Workload,
    capture_workload,
    load_workload,
    read_optimizer,
    sgd,
    with_learning_rate,
)


def weights_after(optimizer: optim.Optimizer, parameter: nn.Parameter) -> torch.Tensor:
    for step in range(3):
        parameter.grad = torch.tensor([0.5, -1.0]) * (step + 1)
        optimizer.step()
    return parameter.detach().clone()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sgd", partial(optim.SGD, lr=0.1)),
        ("momentum", partial(optim.SGD, lr=0.1, momentum=0.9)),
        ("momentum(momentum=0.5, weight_decay=0.1)", partial(optim.SGD, lr=0.1, momentum=0.5, weight_decay=0.1)),
        ("nesterov", partial(optim.SGD, lr=0.1, momentum=0.9, nesterov=True)),
        ("adam(betas=(0.5, 0.9))", partial(optim.Adam, lr=0.1, betas=(0.5, 0.9))),
        ("adamw(weight_decay=0.3)", partial(optim.AdamW, lr=0.1, weight_decay=0.3)),
        ("nadam", partial(optim.NAdam, lr=0.1)),
        ("rmsprop(alpha=0.8)", partial(optim.RMSprop, lr=0.1, alpha=0.8)),
        ("adagrad", partial(optim.Adagrad, lr=0.1)),
    ],
)
def test_an_optimizer_updates_as_torchs(text: str, expected: partial[optim.Optimizer]) -> None:
    ours, theirs = (nn.Parameter(torch.tensor([1.0, 2.0])) for _ in range(2))
    assert torch.equal(
        weights_after(read_optimizer(text, 0.1)([ours]), ours), weights_after(expected([theirs], foreach=False), theirs)
    )


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_without_a_rate_torchs_default_is_used(kind: str) -> None:
    made = read_optimizer(kind)([nn.Parameter(torch.zeros(1))])
    assert made.defaults["lr"] == type(made)([nn.Parameter(torch.zeros(1))]).defaults["lr"]


def test_a_learning_rate_replaces_the_workloads_own_and_keeps_proportions() -> None:
    own = load_workload("digits-mlp").optimizer
    made = with_learning_rate(own, 0.2, [nn.Parameter(torch.zeros(1))])
    assert (made.param_groups[0]["lr"], made.param_groups[0]["momentum"]) == (0.2, 0.9)

    def grouped(parameters: object) -> optim.Optimizer:
        first, second = (nn.Parameter(torch.zeros(1)) for _ in range(2))
        return optim.SGD([{"params": [first]}, {"params": [second], "lr": 0.05}], lr=0.1)

    assert [group["lr"] for group in with_learning_rate(grouped, 0.4, []).param_groups] == pytest.approx([0.4, 0.2])


def test_the_description_names_the_optimizer_and_its_parameters() -> None:
    base = Workload(name="mine", model=dict, example=dict)
    text = Workload(name="mine", model=dict, example=dict, optimizer=read_optimizer("adamw(eps=1e-6)", 0.01)).describe()
    assert text["optimizer"] == (
        "presilicon.workloads.settings.optimizers.torch_optimizer(kind='adamw', learning_rate=0.01, eps=1e-06)"
    )
    other = Workload(name="mine", model=dict, example=dict, optimizer=partial(with_learning_rate, sgd, 0.3)).describe()
    assert other["optimizer"] == (
        "presilicon.workloads.settings.optimizers.with_learning_rate(presilicon.workloads.workload.sgd, 0.3)"
    )
    assert {**text, "optimizer": 0} == {**base.describe(), "optimizer": 0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("adanw", 'unknown optimizer "adanw": did you mean "adamw"'),
        ("sgd(momentum=0.9)", 'optimizer sgd has no parameter "momentum": Allowed: weight_decay'),
        ("adam(beta=0.9)", 'optimizer adam has no parameter "beta": did you mean "betas"'),
        ("adam(betas=(2, 3))", "optimizer adam: Invalid beta parameter"),
        ("adam(betas=0.9)", "optimizer adam: "),
    ],
)
def test_an_optimizer_that_cannot_be_is_one_clear_error(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_optimizer(text)([nn.Parameter(torch.zeros(1))])


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_every_optimizer_is_captured_and_emulated(kind: str) -> None:
    workload = replace(
        load_workload("digits-mlp"), optimizer=read_optimizer(kind, 0.01), max_steps=30, evaluate_every=15, target=1.0
    )
    graph = capture_workload(workload)
    assert {op.layer for op in graph.ops if op.phase == "update"} == {"hidden1", "hidden2", "output"}
    exact, rounded = (train(workload, load_design(name).numerics) for name in ("fp32-systolic", "fp8-systolic"))
    assert all(trace.losses[-1] < trace.losses[0] for trace in (exact, rounded))
    assert rounded.losses != exact.losses
