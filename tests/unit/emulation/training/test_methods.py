"""Methods in the training loop: nesting, what they replace, the facts they leave, their state."""

from dataclasses import replace
from functools import partial
from typing import ClassVar

import pytest
import torch
from msgspec import Struct
from torch import nn

from presilicon.base import ConfigError, RunFailedError
from presilicon.designs import MINIBATCH, AttachedMethod, LossScale, Method, Numerics, RoleFormat, UpdateRule
from presilicon.emulation import Checkpoint, train
from presilicon.emulation.training.loop import Training
from presilicon.emulation.training.record import TrainingRecord
from presilicon.formats import parse
from presilicon.records import LayerFact, ProductFact, StepFacts
from presilicon.workloads import Splits, Workload, sgd


def tiny_net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


def tiny_data() -> Splits:
    generator = torch.Generator().manual_seed(1)
    pair = torch.randn(32, 4, generator=generator), torch.randint(3, (32,), generator=generator)
    return Splits(pair, pair, pair)


TINY = Workload(
    name="tiny", model=tiny_net, data=tiny_data, target=1.0, batch_size=8, max_steps=6, evaluate_every=3, sustain=9
)


class Toy(Method, Struct, frozen=True, kw_only=True, tag_field="name", tag="toy"):
    """A method whose attached object is found by number."""

    number: int
    attached: ClassVar[list[AttachedMethod]] = []

    def attach(self, training):
        attached = self.attached[self.number]
        attached.training = training
        return attached


def toy(attached: AttachedMethod, number: int = 0) -> Toy:
    """A method that attaches this object; equal numbers are equal parameters."""
    Toy.attached[number:] = [attached]
    return Toy(number=number)


class Logger(AttachedMethod):
    """Notes the parts that run inside of it."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def step(self, step, proceed):
        self.note("step", proceed)

    def forward(self, step, proceed):
        self.note("forward", proceed)

    def backward(self, step, proceed):
        self.note("backward", proceed)

    def update(self, step, proceed):
        self.note("update", proceed)

    def note(self, part, proceed):
        self.log.append(f"{self.name} {part}")
        proceed()
        self.log.append(f"{self.name} {part} done")


def training_of(**parts):
    record = TrainingRecord(TINY, Numerics(), **parts)
    return Training(record, TINY.require_data()[0]())


def test_methods_nest_in_the_order_given():
    log: list[str] = []
    training = training_of(methods=(toy(Logger("a", log)), toy(Logger("b", log), 1)))
    training._step(0)
    inner = [f"{name} {part}{done}" for part in ("forward", "backward", "update")
             for name, done in (("a", ""), ("b", ""), ("b", " done"), ("a", " done"))]  # fmt: skip
    assert log == ["a step", "b step", *inner, "b step done", "a step done"]


def test_a_method_that_does_nothing_changes_no_bit():
    assert train(TINY, Numerics(), methods=[toy(AttachedMethod())]) == train(TINY, Numerics())


class SecondBackward(AttachedMethod):
    def backward(self, step, proceed):
        if step.number % 2 == 0:
            proceed()


class SecondUpdate(AttachedMethod):
    def update(self, step, proceed):
        if step.number % 2 == 0:
            proceed()


def test_what_a_method_leaves_out_is_in_the_facts():
    trace = train(TINY, Numerics(), methods=[toy(SecondBackward())])
    assert [facts.backward_skipped for facts in trace.facts()] == [False, True] * 3
    trace = train(TINY, Numerics(), methods=[toy(SecondUpdate())])
    assert [facts.update_skipped for facts in trace.facts()] == [False, True] * 3
    assert [(point.samples, point.updates) for point in trace.evaluations] == [(24, 2), (48, 3)]


class NoStep(AttachedMethod):
    def step(self, step, proceed):
        pass


class NoLoss(AttachedMethod):
    def forward(self, step, proceed):
        pass


@pytest.mark.parametrize(
    ("attached", "message"),
    [(NoStep(), "must call proceed\\(\\) in its step"), (NoLoss(), "must set step.loss")],
)
def test_a_step_that_cannot_be_is_refused(attached, message):
    with pytest.raises(ConfigError, match=message):
        train(TINY, Numerics(), methods=[toy(attached)])


class Failing(AttachedMethod):
    def update(self, step, proceed):
        if step.number == 2:
            raise KeyError("gone")
        proceed()


def test_an_error_in_a_method_names_it_and_one_inside_of_it_does_not():
    with pytest.raises(RunFailedError, match="method \"toy\" failed in the update of step 2: KeyError: 'gone'"):
        train(TINY, Numerics(), methods=[toy(Logger("a", [])), toy(Failing(), 1)])
    with pytest.raises(ConfigError, match="the loss cannot take"):
        train(replace(TINY, loss=wrong_loss), Numerics(), methods=[toy(Logger("a", []))])


def wrong_loss(output, target):
    raise ValueError("shapes")


class Formats(AttachedMethod):
    """Weights of the first layer in e4m3 from step 2 on."""

    def step(self, step, proceed):
        if step.number == 2:
            self.training.set_format("0", "weight", RoleFormat(parse("e4m3fn")))
        proceed()


def test_formats_that_a_method_sets_are_used_and_in_the_facts():
    seen: dict[int, set[float]] = {}

    def observe(step, layer, role, tensor):
        if (layer, role) == ("0", "weight"):
            exact = torch.equal(tensor, tensor.to(torch.float8_e4m3fn).to(torch.float32))
            seen.setdefault(step, set()).add(exact)

    trace = train(TINY, Numerics(), methods=[toy(Formats())], observers=[observe])
    assert seen == {step: {step >= 2} for step in range(6)}
    fact = LayerFact(layer="0", role="weight", format="e4m3fn")
    assert [facts.layers for facts in trace.facts()] == [()] * 2 + [(fact,)] * 4


def test_a_format_is_refused_for_a_layer_or_role_that_cannot_have_it():
    training = training_of()
    with pytest.raises(ConfigError, match='unknown layer "7"'):
        training.set_format("7", "weight", None)
    with pytest.raises(ConfigError, match="not of master"):
        training.set_format("0", "master", None)


class Noise(AttachedMethod):
    """Adds noise to the gradients that depends on a state, and sets a format on the way."""

    def __init__(self) -> None:
        self.total = 0.0

    def update(self, step, proceed):
        noise = torch.rand(1, generator=self.training.generator(step, "noise"))
        self.total += float(noise)
        if step.number == 1:
            self.training.set_format("2", "activation", RoleFormat(parse("bfloat16")))
        for parameter in self.training.model.parameters():
            parameter.grad += 0.01 * self.total
        proceed()

    def state_dict(self):
        return {"total": self.total}

    def load_state_dict(self, state):
        self.total = state["total"]


def test_a_run_with_methods_resumes_to_the_same_bits(tmp_path):
    whole = train(TINY, Numerics(), methods=[toy(Noise())])
    assert whole != train(TINY, Numerics())
    checkpoint = Checkpoint(tmp_path / "run.safetensors", every=1)
    with pytest.raises(KeyboardInterrupt):
        train(TINY, Numerics(), methods=[toy(Noise())], hooks=[Interrupt(4)], checkpoint=checkpoint)
    assert train(TINY, Numerics(), methods=[toy(Noise())], checkpoint=checkpoint) == whole


class Interrupt:
    """A hook that changes nothing, but stops once."""

    is_passive = True

    def __init__(self, step: int) -> None:
        self.step = step

    def before_step(self, step):
        if step == self.step:
            raise KeyboardInterrupt

    def after_step(self, step, facts):
        return facts


class Forgetful(Noise):
    """Its state has another name than the one in the checkpoint."""

    def load_state_dict(self, state):
        self.total = state["sum"]


def test_state_that_does_not_fit_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr(TrainingRecord, "contents", {})  # as for a method of an installed package of the same version
    checkpoint = Checkpoint(tmp_path / "run.safetensors", every=1)
    with pytest.raises(KeyboardInterrupt):
        train(TINY, Numerics(), methods=[toy(Noise())], hooks=[Interrupt(4)], checkpoint=checkpoint)
    with pytest.raises(ConfigError, match=r"state of method .*toy.* does not fit .'sum' is missing"):
        train(TINY, Numerics(), methods=[toy(Forgetful())], checkpoint=checkpoint)


def test_a_checkpoint_of_other_methods_is_refused(tmp_path):
    checkpoint = Checkpoint(tmp_path / "run.safetensors")
    train(TINY, Numerics(), checkpoint=checkpoint)
    with pytest.raises(ConfigError, match="belongs to a run with a different methods"):
        train(TINY, Numerics(), methods=[toy(AttachedMethod())], checkpoint=checkpoint)


class OwnGradients(AttachedMethod):
    """Computes the gradients itself; with `scaled` it says in which scale."""

    def __init__(self, scaled: bool) -> None:
        self.scaled = scaled

    def backward(self, step, proceed):
        parameters = list(self.training.model.parameters())
        factor = step.gradient_scale if self.scaled else 1.0
        for parameter, gradient in zip(parameters, torch.autograd.grad(step.loss, parameters), strict=True):
            parameter.grad = factor * gradient if parameter.grad is None else parameter.grad + factor * gradient


SCALED = Numerics(loss_scale=LossScale(kind="static", initial=64.0))


@pytest.mark.parametrize(("numerics", "rule"), [(SCALED, MINIBATCH), (Numerics(), UpdateRule(chips=2))])
def test_gradients_of_a_method_have_the_scale_of_the_others(numerics, rule):
    workload = replace(TINY, max_steps=12)
    usual = train(workload, numerics, update_rule=rule)
    own = train(workload, numerics, update_rule=rule, methods=[toy(OwnGradients(scaled=True))])
    assert own.losses == pytest.approx(usual.losses, rel=1e-6)
    assert all(facts.backward_skipped for facts in own.facts())
    with pytest.raises(ConfigError, match=r"multiply its gradients by step\.gradient_scale"):
        train(workload, numerics, update_rule=rule, methods=[toy(OwnGradients(scaled=False))])


class OwnUpdate(AttachedMethod):
    def update(self, step, proceed):
        with torch.no_grad():
            for parameter in self.training.model.parameters():
                parameter.sub_(0.003 * parameter.grad)


@pytest.mark.parametrize("pipelined", [False, True])
def test_an_update_in_place_of_the_usual_one_is_an_update(pipelined):
    rule = UpdateRule(per_sample=True, pipelined=pipelined)
    plain = replace(TINY, optimizer=partial(sgd, learning_rate=0.003, momentum=0.0), schedule=None)
    usual = train(plain, Numerics(), update_rule=rule)
    own = train(plain, Numerics(), update_rule=rule, methods=[toy(OwnUpdate())])
    assert own.losses == pytest.approx(usual.losses, rel=1e-6)
    assert own.evaluations[-1].updates == usual.evaluations[-1].updates == 48
    assert not any(facts.update_skipped for facts in own.facts())


class ResetBatch(AttachedMethod):
    """Trains on a larger batch, and puts the size back."""

    def step(self, step, proceed):
        step.batch_size = 16
        proceed()
        step.batch_size = 8


def test_a_step_is_priced_at_the_batch_that_was_trained():
    trace = train(TINY, Numerics(), methods=[toy(ResetBatch())])
    assert [facts.samples for facts in trace.facts()] == [16] * 3


class Twice(AttachedMethod):
    def step(self, step, proceed):
        proceed()
        proceed()


class BatchOf(AttachedMethod):
    def __init__(self, size) -> None:
        self.size = size

    def step(self, step, proceed):
        step.batch_size = self.size
        proceed()


class FactsOf(AttachedMethod):
    def __init__(self, facts) -> None:
        self.own = facts

    def facts(self, step, facts):
        return self.own


class NumberAsLoss(AttachedMethod):
    def forward(self, step, proceed):
        step.loss = 1.5


class Unsaved(AttachedMethod):
    def state_dict(self):
        raise OSError("no")


@pytest.mark.parametrize(
    ("attached", "message"),
    [
        (Twice(), r'method "toy" called proceed\(\) twice in the step of step 0'),
        (BatchOf(0), "set batch_size to 0; it must be a whole number"),
        (BatchOf(16.0), r"set batch_size to 16\.0; it must be a whole number"),
        (NumberAsLoss(), r"must set step\.loss to a tensor of one number, not 1\.5"),
        (FactsOf(None), 'method "toy": facts must return StepFacts, not None'),
        (FactsOf(StepFacts(layers=[LayerFact(layer="0", role="weight")])), "must be hashable: give tuples"),
        (FactsOf(StepFacts(layers=(LayerFact(layer="0", role="weight", density=7.5),))), "between 0 and 1, not 7.5"),
        (FactsOf(StepFacts(products=(ProductFact(layer="0", product="forward", share=2.0),))), "and 1, not 2.0"),
    ],
)
def test_bad_values_of_a_method_are_one_clear_error(attached, message):
    with pytest.raises(ConfigError, match=message):
        train(TINY, Numerics(), methods=[toy(attached)])


def test_state_that_cannot_be_saved_names_the_method(tmp_path):
    with pytest.raises(RunFailedError, match=r"the state of method .toy. cannot be saved: OSError: no"):
        train(TINY, Numerics(), methods=[toy(Unsaved())], checkpoint=Checkpoint(tmp_path / "x.safetensors", every=1))


def test_a_run_with_milestones_resumes(tmp_path):
    workload = replace(TINY, milestones=(0.3, 0.5))
    checkpoint = Checkpoint(tmp_path / "run.safetensors", every=1)
    with pytest.raises(KeyboardInterrupt):
        train(workload, Numerics(), hooks=[Interrupt(4)], checkpoint=checkpoint)
    whole = train(workload, Numerics())
    assert train(workload, Numerics(), checkpoint=checkpoint) == whole
    assert train(workload, Numerics(), checkpoint=checkpoint) == whole


def test_skipped_updates_are_counted_in_steps_also_with_several_in_a_step():
    numerics = Numerics(
        error=RoleFormat(parse("float16")), loss_scale=LossScale(kind="dynamic", initial=2.0**40, interval=5)
    )
    trace = train(TINY, numerics, update_rule=UpdateRule(per_sample=True))
    assert trace.skipped
    assert max(trace.skipped) < trace.steps


@pytest.mark.parametrize(
    ("accuracy", "what"), [(lambda output, target: None, "None"), (lambda output, target: output, r"shape \(32, 3\)")]
)
def test_a_metric_that_is_no_number_is_one_clear_error(accuracy, what):
    with pytest.raises(ConfigError, match=f"accuracy must be computed as one number, not as .*{what}"):
        train(replace(TINY, accuracy=accuracy), Numerics())
