"""Loss scaling: torch's GradScaler is the judge."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn

import presilicon as ps
from presilicon.base import ConfigError
from presilicon.designs import Numerics, load_design, load_recipe
from presilicon.designs.scaling import LossScale, Rise
from presilicon.emulation import UnscaledWarning, emulation_of, train
from presilicon.emulation.scaling import AdaptiveScale, LossScaler, all_finite
from presilicon.workloads import load_workload

OVERFLOWS = (0, 1, 5, 9, 10, 23)


def follow(rule: LossScale, steps: int = 40) -> list[float]:
    scaler = AdaptiveScale(rule)
    return [scaler.update(step not in OVERFLOWS) for step in range(steps)]


def test_the_scale_follows_gradscaler_through_a_scripted_sequence_of_overflows() -> None:
    judge = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_factor=2.0, backoff_factor=0.5, growth_interval=4)
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler = AdaptiveScale(LossScale(kind="dynamic", initial=2.0**10, interval=4))
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
    scaler = AdaptiveScale(LossScale(kind="static", initial=8.0))
    assert [scaler.update(finite) for finite in (True, False, True)] == [8.0, 8.0, 8.0]
    assert scaler.skipped == [1]


def test_the_state_goes_on() -> None:
    rule = LossScale(kind="dynamic", initial=8.0, interval=3)
    first, second = AdaptiveScale(rule), AdaptiveScale(rule)
    for finite in (True, False, True, True):
        first.update(finite)
    second.load_state_dict(first.state_dict())
    assert [first.update(True) for _ in range(4)] == [second.update(True) for _ in range(4)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["numerics.loss_scale.kind=static", "numerics.loss_scale.initial=1e9"], "errors are e5m2"),
        (["numerics.loss_scale.kind=enhanced"], "needs rises"),
        (["numerics.loss_scale.initial=1024"], "the loss is not scaled"),
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


class GradScalerTwin:
    """The calls of a training loop that GradScaler and LossScaler share."""

    def __init__(self, scaler: Any, clip: float | None) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        self.optimizers = [
            torch.optim.SGD(self.model[0].parameters(), lr=0.1, momentum=0.9),
            torch.optim.AdamW(self.model[2].parameters(), lr=0.01),
        ]
        self.scaler, self.clip = scaler, clip

    def run(self, steps: int) -> list[float]:
        scales = []
        for step in range(steps):
            generator = torch.Generator().manual_seed(step)
            for part in range(2):  # micro-batches
                loss = self.model(torch.randn(5, 4, generator=generator)).square().mean()
                if step in OVERFLOWS and part:
                    loss = loss * float("inf")
                self.scaler.scale(loss).backward()
            for optimizer in self.optimizers:
                if self.clip is not None:
                    self.scaler.unscale_(optimizer)
                    nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], self.clip)
                self.scaler.step(optimizer)
                optimizer.zero_grad()
            self.scaler.update()
            scales.append(self.scaler.get_scale())
        return scales


RULE = LossScale(kind="dynamic", initial=2.0**10, interval=4)


@pytest.mark.parametrize("clip", [None, 0.01])
def test_a_loop_with_the_scaler_is_bit_equal_to_one_with_gradscaler(clip: float | None) -> None:
    judge = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_factor=2.0, backoff_factor=0.5, growth_interval=4)
    theirs = GradScalerTwin(judge, clip)
    ours = GradScalerTwin(LossScaler(replace(Numerics(), loss_scale=RULE)), clip)
    assert ours.run(40) == theirs.run(40)
    assert ours.scaler.skipped == OVERFLOWS
    mine, judged = ours.model.state_dict(), theirs.model.state_dict()
    assert all(torch.equal(mine[name], judged[name]) for name in mine)


def test_a_wrong_rule_does_not_pass_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("presilicon.emulation.scaling.AdaptiveScale.unscale_", lambda self, parameters: True)
    with pytest.raises(AssertionError):
        test_a_loop_with_the_scaler_is_bit_equal_to_one_with_gradscaler(None)


def test_the_scale_of_an_emulated_model_keeps_gradients_that_underflow_without_it() -> None:
    model = nn.Linear(4, 2)
    ps.emulate_(model, ps.load_numerics("fp16-mixed"))
    scaler = ps.LossScaler(model)
    assert scaler.is_enabled()
    x = torch.ones(3, 4)
    (model(x).mean() * 1e-8).backward()
    assert not model.weight.grad.any()
    model.zero_grad()
    scaler.scale([model(x).mean() * 1e-8])[0].backward()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler.unscale_(optimizer)
    assert torch.allclose(model.weight.grad, torch.full((2, 4), 0.5e-8), rtol=1e-3)


def test_a_static_scale_and_none_at_all() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    for rule, steps in ((LossScale(kind="static", initial=8.0), 0), (LossScale(), 1)):
        scaler = LossScaler(rule)
        before = weight.detach().clone()
        weight.grad = None
        scaler.scale(weight.sum() * float("inf")).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.skipped == (() if steps else (0,))
        assert torch.equal(weight.detach(), before) == (not steps)
        assert scaler.get_scale() == (8.0 if not steps else 1.0)


def test_a_scaler_goes_on_from_its_state() -> None:
    twins = [GradScalerTwin(LossScaler(RULE), None) for _ in range(2)]
    whole = twins[0].run(20)
    twins[1].run(7)
    fresh = LossScaler(RULE)
    fresh.load_state_dict(twins[1].scaler.state_dict())
    assert fresh.get_scale() == whole[6]
    assert fresh.skipped == twins[1].scaler.skipped == (0, 1, 5)


def unscaled_step() -> None:
    weight = nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    LossScaler(RULE).step(torch.optim.SGD([weight]))


def unscale_twice() -> None:
    scaler, weight = LossScaler(RULE), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight])
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    scaler.unscale_(optimizer)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (unscaled_step, "call scaler.scale(loss).backward() first"),
        (unscale_twice, "once per update"),
        (lambda: LossScaler(RULE).update(), "call scaler.step(optimizer) first"),
        (lambda: LossScaler(nn.Linear(1, 1)), "not this Linear; call emulate_ first"),
        (lambda: LossScaler("fp16"), "not this str"),
    ],
)
def test_mistakes_are_explained(call: Callable[[], None], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        call()
    assert words in str(error.value)


def emulated_step(numerics: Numerics, step: Callable[[nn.Module, torch.optim.Optimizer], None]) -> list[str]:
    """The warnings of three updates of a model."""
    model = ps.emulate_(nn.Linear(2, 2), numerics)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            optimizer.zero_grad()
            step(model, optimizer)
    return [str(warning.message) for warning in caught if warning.category is UnscaledWarning]


FP16 = ps.load_numerics("fp16-mixed")


def plain_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def step_with(scaler: Any) -> Callable[[nn.Module, torch.optim.Optimizer], None]:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        scaler.scale(model(torch.ones(1, 2)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def test_a_loss_scale_that_nobody_applies_is_named_once() -> None:
    (message,) = emulated_step(FP16, plain_step)
    assert "presilicon.LossScaler(model)" in message
    assert not emulated_step(replace(FP16, loss_scale=LossScale()), plain_step)


def test_a_loss_scale_that_somebody_applies_is_not() -> None:
    assert not emulated_step(FP16, step_with(LossScaler(FP16)))
    assert not emulated_step(FP16, step_with(torch.amp.GradScaler("cpu")))
    made: dict[nn.Module, LossScaler] = {}

    def own(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        step_with(made.setdefault(model, LossScaler(model)))(model, optimizer)

    assert not emulated_step(FP16, own)


def test_the_scaler_of_a_model_is_saved_with_it() -> None:
    numerics = replace(FP16, loss_scale=RULE)

    def build() -> tuple[nn.Module, LossScaler]:
        torch.manual_seed(0)
        model = ps.emulate_(nn.Linear(2, 2), numerics)
        return model, LossScaler(model)

    model, scaler = build()
    step = step_with(scaler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        step(model, optimizer)
    again, fresh = build()
    again.load_state_dict(model.state_dict())
    assert fresh.state_dict() == scaler.state_dict()
    assert fresh.get_scale() == 2.0**11


def test_a_skipped_update_ends_the_step() -> None:
    model = ps.emulate_(nn.Linear(2, 2), replace(FP16, loss_scale=RULE))
    scaler, optimizer = LossScaler(model), torch.optim.SGD(model.parameters(), lr=0.1)
    steps = []
    for factor in (1.0, float("inf"), 1.0):
        scaler.scale(model(torch.ones(1, 2)).sum() * factor).backward()
        steps.append(emulation_of(model).step)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert steps == [0, 1, 2]
    assert scaler.skipped == (1,)


@pytest.mark.parametrize("value", [0.0, -3.0, torch.finfo(torch.float32).max, torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_that_are_not_finite_are_found_in_any_tensor(value: float, dtype: torch.dtype) -> None:
    tensors = [torch.ones(3), torch.ones(0), torch.tensor([[1.0, value]], dtype=dtype)]
    assert bool(all_finite(tensors)) == math.isfinite(value)
    assert bool(all_finite([torch.ones(1), torch.full((2,), 1e300, dtype=torch.float64)]))
    assert bool(all_finite([torch.ones(0)]))


def test_a_loop_without_update_is_refused_as_by_gradscaler() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.5), LossScaler(ps.load_numerics("fp16-mixed"))
    judge = torch.amp.GradScaler("cpu")
    for each, error in ((judge, RuntimeError), (scaler, ConfigError)):
        each.scale(weight.sum()).backward()
        each.step(optimizer)
        optimizer.zero_grad()
        each.scale(weight.sum()).backward()
        with pytest.raises(error, match="since the last update"):
            each.step(optimizer)
        optimizer.zero_grad()
    scaler.update()
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    assert weight.tolist() == [-0.5, -0.5]
