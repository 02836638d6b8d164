"""Loss scaling: torch's GradScaler is the judge."""

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from presilicon.base import ConfigError
from presilicon.designs import load_design, load_recipe
from presilicon.designs.scaling import LossScale, Rise
from presilicon.emulation import train
from presilicon.emulation.training.scaling import LossScaler
from presilicon.workloads import load_workload

OVERFLOWS = (0, 1, 5, 9, 10, 23)


def follow(rule: LossScale, steps: int = 40) -> list[float]:
    scaler = LossScaler(rule)
    return [scaler.update(step not in OVERFLOWS) for step in range(steps)]


def test_the_scale_follows_gradscaler_through_a_scripted_sequence_of_overflows() -> None:
    judge = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_factor=2.0, backoff_factor=0.5, growth_interval=4)
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler = LossScaler(LossScale(kind="dynamic", initial=2.0**10, interval=4))
    stepped = []
    for step in range(40):
        factor = float("inf") if step in OVERFLOWS else 1.0
        optimizer.zero_grad()
        judge.scale((weight * factor).sum()).backward()
        judge.unscale_(optimizer)
        theirs = weight.grad.clone() if weight.grad is not None else None
        judge.step(optimizer)
        judge.update()
        optimizer.zero_grad()
        scaler.scaled((weight * factor).sum()).backward()
        finite = scaler.unscale_([weight])
        stepped.append(finite)
        if finite:
            assert torch.equal(weight.grad, theirs)
        assert scaler.update(finite) == judge.get_scale()
    assert scaler.skipped == [step for step, finite in enumerate(stepped) if not finite] == list(OVERFLOWS)


def test_a_minimum_that_rises_lifts_the_scale() -> None:
    plain = follow(LossScale(kind="dynamic", initial=64.0, interval=100))
    raised = LossScale(kind="enhanced", initial=64.0, interval=100, rises=(Rise(from_step=8, minimum=32.0),))
    found = follow(raised)
    assert found[:7] == plain[:7]
    assert all(scale == 32.0 for scale in found[7:])


def test_a_static_scale_skips_and_stays() -> None:
    scaler = LossScaler(LossScale(kind="static", initial=8.0))
    assert [scaler.update(finite) for finite in (True, False, True)] == [8.0, 8.0, 8.0]
    assert scaler.skipped == [1]


def test_the_state_goes_on() -> None:
    rule = LossScale(kind="dynamic", initial=8.0, interval=3)
    first, second = LossScaler(rule), LossScaler(rule)
    for finite in (True, False, True, True):
        first.update(finite)
    second.load_state_dict(first.state_dict())
    assert [first.update(True) for _ in range(4)] == [second.update(True) for _ in range(4)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["numerics.loss_scale.kind=static", "numerics.loss_scale.initial=1e9"], "errors are e5m2"),
        (["numerics.loss_scale.kind=enhanced"], "needs rises"),
        (["numerics.loss_scale.kind=dynamik"], 'did you mean "dynamic"'),
        (["numerics.loss_scale.growth=0.5"], "growth"),
        (["numerics.loss_scale.minimum=1e6"], "above the initial scale"),
    ],
)
def test_scales_that_cannot_be_are_refused(settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_design("fp8-systolic", settings)
    assert words in str(error.value)


def test_a_skipped_update_leaves_the_weights_and_is_a_fact_of_the_step() -> None:
    numerics = load_recipe("fp16-mixed").numerics
    rule = LossScale(kind="dynamic", initial=2.0**40, interval=1000)
    workload = load_workload("digits-mlp")
    trace = train(workload, replace(numerics, loss_scale=rule), seed=0)
    skipped = [run for run in trace.runs if run.facts.update_skipped]
    assert skipped
    assert trace.runs[0].facts.update_skipped  # 2^40 is beyond float16
    assert trace.ending == "target"
