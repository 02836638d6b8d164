"""What a diagnosis finds in runs that were made to fail, and that it changes no bit of those that do not."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from msgspec.structs import replace as change
from torch import Tensor, nn

from presilicon.base import ConfigError
from presilicon.designs import LossScale, Numerics, load_recipe
from presilicon.emulation import emulate_, emulation_of, train
from presilicon.emulation.training import diagnosis
from presilicon.emulation.training.diagnosis import Diagnosis
from presilicon.records import Finding, StepFacts, Trace
from presilicon.workloads import Splits, Workload, load_workload, sgd

FLOAT16 = load_recipe("fp16-mixed").numerics
DIGITS = load_workload("digits-mlp")


def small_loss(output: Tensor, target: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output, target) * 1e-7


SMALL = replace(
    DIGITS, name="small-loss", loss=small_loss, optimizer=partial(sgd, learning_rate=1e6), max_steps=60, target=0.999
)


def run(workload: Workload, numerics: Numerics, **scale: object) -> Trace:
    return train(workload, change(numerics, loss_scale=LossScale(**scale)), seed=0)


def find(trace: Trace, symptom: str) -> Finding:
    return next(finding for finding in trace.findings if finding.symptom == symptom)


def test_float16_without_a_loss_scale_underflows_and_the_layer_and_role_are_named() -> None:
    trace = run(SMALL, FLOAT16)
    found = find(trace, "underflow")
    assert (found.layer, found.role, found.bug) == ("output", "error", "conceptual")
    assert found.share == 1.0
    assert trace.evaluations[-1].value < 0.2
    assert {(each.step, each.underflow) for each in trace.shares if each.role == "error"} == {(0, 1.0), (50, 1.0)}


def test_a_dynamic_loss_scale_lifts_it() -> None:
    trace = run(replace(SMALL, max_steps=200), FLOAT16, kind="dynamic", initial=2.0**20)
    assert trace.evaluations[-1].value > 0.8
    assert not [finding for finding in trace.findings if finding.step == 0]


def test_a_learning_rate_that_is_too_high_is_a_conceptual_mistake() -> None:
    trace = run(replace(DIGITS, optimizer=partial(sgd, learning_rate=1e3), max_steps=100), FLOAT16)
    assert trace.ending == "diverged"
    found = find(trace, "non-finite")
    assert found.bug == "conceptual"
    assert found.layer
    assert "learning rate" in trace.reason or "overflowed" in trace.reason


class DividesByZero(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / (x.detach() * 0)


def broken_model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 16), DividesByZero(), nn.Linear(16, 10))


def test_a_layer_that_makes_infinities_of_finite_numbers_is_a_structural_mistake() -> None:
    trace = run(replace(DIGITS, model=broken_model, max_steps=100), Numerics())
    found = find(trace, "non-finite")
    assert (found.layer, found.origin, found.bug, found.step) == ("1", "produced", "structural", 0)


def test_data_that_is_not_finite_or_out_of_range_is_said_before_training() -> None:
    inputs, targets = torch.full((4, 2), 1e6), torch.zeros(4, dtype=torch.long)
    broken = inputs.clone()
    broken[1, 1] = float("nan")
    found = Diagnosis(FLOAT16)
    found.check_data(Splits((broken, targets), (inputs, targets), (inputs, targets)), FLOAT16)
    assert {finding.bug for finding in found.findings} == {"data"}
    assert "1 numbers of the train inputs are not finite" in found.findings[0].message
    assert len(found.findings) == 4  # and the range of each split
    ranges = Diagnosis(FLOAT16)
    ranges.check_data(Splits((inputs, targets), (inputs, targets), (inputs, targets)), FLOAT16)
    assert "float16 ends at 6.55e+04" in ranges.findings[0].message


NUMBERS = DIGITS.data().train


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": lambda: Splits(NUMBERS, (NUMBERS[0][:, :5], NUMBERS[1]), NUMBERS)}, r"inputs of shape \(\d+, 5\)"),
        ({"data": lambda: Splits((NUMBERS[0].double(), NUMBERS[1]), NUMBERS, NUMBERS)}, "type torch.float64"),
        ({"data": lambda: Splits(NUMBERS, (NUMBERS[0], NUMBERS[1] + 5), NUMBERS)}, "the loss cannot take.*to 14"),
        ({"loss": lambda output, target: output.sum(1)}, r"one number, not a tensor of shape \(32,\)"),
        ({"loss": lambda output, target: None}, "one number, not a NoneType"),
        ({"loss": lambda output, target: output.detach().sum()}, "does not depend on any trainable parameter"),
        ({"model": lambda: nn.GRU(64, 10)}, "the loss cannot take a tuple"),
    ],
)
def test_a_workload_that_does_not_fit_together_is_a_clear_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f'workload "digits-mlp": .*{message}'):
        run(replace(DIGITS, max_steps=2, evaluate_every=1, **changes), Numerics())


class Forgetful:
    def before_step(self, step: int) -> None:
        pass

    def after_step(self, step: int, facts: StepFacts) -> None:
        pass


def test_arguments_of_a_wrong_kind_are_clear_errors() -> None:
    with pytest.raises(ConfigError, match="'digits-mlp' is not a Workload"):
        train("digits-mlp", Numerics())
    with pytest.raises(ConfigError, match="'fast' is not a Method"):
        train(DIGITS, Numerics(), methods=["fast"])
    with pytest.raises(ConfigError, match="hook Forgetful: after_step must return StepFacts, not None"):
        train(DIGITS, Numerics(), hooks=[Forgetful()])


def test_labels_beyond_the_outputs_are_a_clear_error() -> None:
    data = DIGITS.data()
    wrong = replace(
        DIGITS, name="wrong", data=lambda: Splits((data.train[0], data.train[1] + 5), data.validation, data.test)
    )
    with pytest.raises(ConfigError, match=r'workload "wrong": the loss cannot take outputs of shape \(32, 10\).*to 14'):
        train(wrong, Numerics(), seed=0)


def watch(found: Diagnosis, model: nn.Module) -> None:
    emulation = emulation_of(model)
    assert emulation is not None
    emulation.begin_step(7)
    with found.probing(emulation, 7) as probe:
        model(torch.randn(16, 4))
    found.note(probe)


def test_dead_units_are_counted() -> None:
    found = Diagnosis(Numerics())
    model = emulate_(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), Numerics())
    with torch.no_grad():
        model[0].bias.fill_(-100.0)
    watch(found, model)
    assert [(each.symptom, each.layer, each.step, each.share) for each in found.findings] == [
        ("dead-relu", "1", 7, 1.0)
    ]


class Functional(nn.Module):
    """Calls its ReLU as a function, in a block of its own name."""

    def __init__(self, inplace: bool) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, 8)
        self.inplace = inplace

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.hidden(x)
        return x.relu_() if self.inplace else nn.functional.relu(x)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("numerics", [Numerics(), FLOAT16, change(FLOAT16, vector="round-results")])
def test_dead_units_behind_a_function_are_counted(inplace: bool, numerics: Numerics) -> None:
    found = Diagnosis(FLOAT16)
    model = emulate_(nn.Sequential(Functional(inplace), nn.Linear(8, 2)), numerics)
    with torch.no_grad():
        model[0].hidden.bias.fill_(-100.0)
    watch(found, model)
    assert [(each.symptom, each.layer, each.share) for each in found.findings] == [("dead-relu", "0", 1.0)]


@pytest.mark.parametrize(("factor", "symptom"), [(1e-8, "vanishing"), (1e6, "exploding")])
def test_gradients_that_vanish_or_explode(factor: float, symptom: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    assert model[0].weight.grad is not None
    model[0].weight.grad.mul_(factor)
    found = Diagnosis(Numerics())
    probe = diagnosis.Probe(3)
    probe.see_gradients(model)
    found.inspect(probe)
    assert [(each.symptom, each.layer) for each in found.findings] == [(symptom, "0")]


@pytest.mark.parametrize(
    ("skipped", "steps", "word"),
    [
        ([0, 1, 2], 1000, "at the start"),
        ([0, 500, 900], 1000, "harmless"),
        (list(range(0, 1000, 5)), 1000, "divergence"),
    ],
)
def test_skipped_updates_are_judged(skipped: list[int], steps: int, word: str) -> None:
    rule = change(FLOAT16, loss_scale=LossScale(kind="dynamic", interval=200))
    verdict = Diagnosis(rule).judge_skips(skipped, steps)
    assert verdict is not None
    assert word in verdict.message


def test_a_run_that_never_updates_is_ended_with_the_reason() -> None:
    found = Diagnosis(FLOAT16)
    reasons = [found.after_update(step, False, 1.0) for step in range(diagnosis.HOPELESS)]
    assert reasons[:-1] == [None] * (diagnosis.HOPELESS - 1)
    assert "in a row" in str(reasons[-1])


def test_looking_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = replace(DIGITS, max_steps=30, evaluate_every=10, target=0.999)
    seen = train(workload, load_recipe("bfp4").numerics, seed=3)
    monkeypatch.setattr(Diagnosis, "is_due", lambda self, step: False)
    unseen = train(workload, load_recipe("bfp4").numerics, seed=3)
    assert seen.losses == unseen.losses
    assert seen.shares
    assert not unseen.shares


def test_a_diagnosis_goes_on_where_it_was() -> None:
    first = Diagnosis(FLOAT16)
    first.after_update(3, False, 1.0)
    first.judge_skips([3], 1000)
    told: list[Finding] = []
    second = Diagnosis(FLOAT16, told.append)
    second.load_state_dict(first.state_dict())
    assert second.findings == first.findings
    second.judge_skips([3], 1000)
    assert not told


class Doubles(nn.Module):
    """Its activations leave float16 after some steps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 16), nn.Linear(16, 10)
        self.register_buffer("factor", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.factor.mul_(2.0)
        out: Tensor = self.second(self.first(x) * self.factor)
        return out


def test_a_step_between_two_probes_that_overflows_is_traced_to_its_layer() -> None:
    small = partial(sgd, learning_rate=0.0)
    trace = run(replace(DIGITS, model=Doubles, optimizer=small, max_steps=100), FLOAT16)
    found = find(trace, "non-finite")
    assert 0 < found.step < 49
    assert (found.layer, found.role, found.bug, found.origin) == ("second", "activation", "conceptual", "produced")


def nan_data() -> Splits:
    data = DIGITS.data()
    inputs = data.train[0].clone()
    inputs[: len(inputs) // 2] = float("nan")
    return replace(data, train=(inputs, data.train[1]))


def test_data_that_is_not_finite_is_named_when_it_is_met() -> None:
    trace = run(replace(DIGITS, data=nan_data), Numerics())
    assert (find(trace, "non-finite").bug, trace.ending) == ("data", "diverged")


class Explodes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, error: Tensor) -> Tensor:
        return error * float("inf")


class Backward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 16), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(Explodes.apply(self.first(x)))
        return out


def test_gradients_that_are_not_finite_end_a_run_without_a_loss_scale_and_are_traced() -> None:
    trace = run(replace(DIGITS, model=Backward, max_steps=100), FLOAT16)
    found = find(trace, "non-finite")
    assert (found.layer, found.role, found.step, trace.steps) == ("first", "error", 0, 1)


def test_numbers_far_from_the_largest_do_not_saturate() -> None:
    probe = diagnosis.Probe(0)
    fmt = load_recipe("fp8-hybrid").numerics.weight.format
    data = torch.linspace(-0.29, 0.29, 100)
    probe.see_rounding(0, "layer", "weight", None, data, data.round(decimals=1), fmt)
    assert probe.shares()[0].saturation == 0.0
    held = torch.full((10,), 1000.0)
    probe.see_rounding(0, "layer", "weight", None, held, torch.full((10,), fmt.max), fmt)
    assert probe.shares()[0].saturation == pytest.approx(10 / 110)


def test_a_device_without_memory_is_not_blamed_on_the_workload() -> None:
    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        train(replace(DIGITS, model=Large), Numerics(), seed=0)
