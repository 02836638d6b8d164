"""ADA-GP: predicted gradients take the place of backward passes."""

from dataclasses import replace

import pytest
import torch
from msgspec import structs
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from presilicon.base import ConfigError
from presilicon.designs import Numerics, TrainingStep, load_design
from presilicon.emulation import Checkpoint, train
from presilicon.methods import ada_gp
from presilicon.methods.ada_gp import AdaGp, speedup
from presilicon.records import MethodFact, StepFacts
from presilicon.study.join.prices import StepGraphs, StepPrices
from presilicon.workloads import load_workload

DIGITS = load_workload("digits-cnn")
SHORT = replace(DIGITS, max_steps=40, evaluate_every=20)
METHOD = AdaGp(warmup=10, ratios=(4, 1), stage=15)


def test_the_speedup_has_a_closed_form():
    assert [round(speedup(ratio, 1), 2) for ratio in (4, 3, 2, 1)] == [2.14, 2.0, 1.8, 1.5]
    assert speedup(4, 1, 0.1) == 15 / (4 * 1.1 + 3.1)
    assert speedup(0, 1) == 1


def test_predicted_steps_alternate_with_usual_ones_by_falling_ratios():
    steps = "".join("BG"[METHOD.is_predicted(step)] for step in range(45))
    assert steps == "B" * 10 + "GGGGB" * 3 + "GB" * 7 + "G" + "GB" * 2 + "G"


def test_a_predicted_step_has_no_backward_pass_and_keeps_no_activations(monkeypatch: pytest.MonkeyPatch):
    saved: dict[int, int] = {}
    forward = ada_gp._Predicting.forward

    def counting(self, step: TrainingStep, proceed) -> None:
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: _count(saved, step.number, tensor), lambda x: x):
            forward(self, step, proceed)

    monkeypatch.setattr(ada_gp._Predicting, "forward", counting)
    backwards: list[int] = []
    backward = torch.Tensor.backward
    monkeypatch.setattr(
        torch.Tensor, "backward", lambda self, *a, **k: (backwards.append(1), backward(self, *a, **k))[1]
    )
    trace = train(SHORT, Numerics(), methods=[METHOD])
    predicted = [METHOD.is_predicted(step) for step in range(40)]
    assert [facts.backward_skipped for facts in trace.facts()] == predicted
    assert sorted(saved) == [step for step in range(40) if not predicted[step]]
    assert len(backwards) == 2 * predicted.count(False)  # the step's, and the predictor's


def _count(saved: dict[int, int], step: int, tensor: torch.Tensor) -> torch.Tensor:
    saved[step] = saved.get(step, 0) + 1
    return tensor


def test_predictions_point_along_true_gradients_and_better_than_their_mean(monkeypatch: pytest.MonkeyPatch):
    cosines: list[float] = []
    means: list[float] = []
    update = ada_gp._Predicting.update
    averages: dict[str, torch.Tensor] = {}

    def looking(self, step: TrainingStep, proceed) -> None:
        for name, weight in self._weights.items():
            if name in averages:
                means.append(float(torch.cosine_similarity(averages[name].flatten(), weight.grad.flatten(), 0)))
            averages[name] = 0.9 * averages.get(name, weight.grad) + 0.1 * weight.grad
        update(self, step, proceed)
        cosines.extend(self.cosines.values())

    monkeypatch.setattr(ada_gp._Predicting, "update", looking)
    train(replace(DIGITS, max_steps=120, evaluate_every=120), Numerics(), methods=[AdaGp(warmup=120)])
    late = [sum(values[-4 * 60 :]) / 240 for values in (cosines, means)]
    assert late[0] > max(0.03, late[1])


@pytest.mark.parametrize("source", ["zeros", "random"])
def test_controls_have_no_prediction(source: str):
    trace = train(SHORT, Numerics(), methods=[AdaGp(warmup=10, source=source)])
    usual = train(SHORT, Numerics(), methods=[METHOD])
    assert trace.losses[:10] == usual.losses[:10]
    assert trace.losses[20:] != usual.losses[20:]


def test_a_run_continues_to_the_same_bits(tmp_path):
    checkpoint = Checkpoint(tmp_path / "run.safetensors", every=1)

    class Stop:
        is_passive = True

        def before_step(self, step):
            if step == 30:
                raise KeyboardInterrupt

        def after_step(self, step, facts):
            return facts

    with pytest.raises(KeyboardInterrupt):
        train(SHORT, Numerics(), methods=[METHOD], checkpoint=checkpoint, hooks=[Stop()])
    assert train(SHORT, Numerics(), methods=[METHOD], checkpoint=checkpoint) == train(
        SHORT, Numerics(), methods=[METHOD]
    )


def test_predicted_steps_cost_less_and_the_predictor_something():
    design = load_design("bf16-systolic", ["machine.rows=16", "machine.cols=16"], methods=["ada-gp"])
    plain = load_design("bf16-systolic", ["machine.rows=16", "machine.cols=16"])
    prices, usual = (StepPrices(StepGraphs(DIGITS, each.methods), each) for each in (design, plain))
    predicted = StepFacts(backward_skipped=True, methods=(MethodFact(method="ada-gp", name="predicted", value=True),))
    assert prices(predicted).time_s < usual().time_s < prices().time_s
    added = [op for op in prices(predicted).ops if "predictor" in op.name]
    assert len(added) == 3 * 4  # layers of the predictor by layers of the network
    assert {op.phase for op in added} == {"forward"}
    large = structs.replace(predicted, samples=512), StepFacts(samples=512)
    assert prices(large[0]).memory_bytes < 0.8 * usual(large[1]).memory_bytes


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Unflatten(1, (4, 16)), nn.Conv1d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(112, 10)),
        nn.Sequential(nn.Unflatten(1, (4, 2, 8)), nn.Linear(8, 6), nn.ReLU(), nn.Flatten(), nn.Linear(48, 10)),
    ],
)
def test_layers_of_any_dimension_are_predicted(model: nn.Module):
    workload = replace(load_workload("digits-mlp"), model=lambda: model, max_steps=12, evaluate_every=12)
    trace = train(workload, Numerics(), methods=[AdaGp(warmup=4, ratios=(1,))])
    assert trace.steps == 12


def test_controls_have_no_predictor_to_pay_for():
    plain = load_design("bf16-systolic")
    for source in ("zeros", "random"):
        design = load_design("bf16-systolic", methods=["ada-gp", f"ada-gp.source={source}"])
        assert StepPrices(StepGraphs(DIGITS, design.methods), design)().time_s == (
            StepPrices(StepGraphs(DIGITS, plain.methods), plain)().time_s
        )


def test_what_it_cannot_treat_is_refused():
    with pytest.raises(ConfigError, match="ratios must have at least one number"):
        load_design("bf16-systolic", methods=["ada-gp.ratios=[]"])
    with pytest.raises(ConfigError, match="this machine updates after every sample"):
        load_design("caterpillar-small", methods=["ada-gp"])

    class Run:
        model = nn.Sequential(nn.ReLU())

    with pytest.raises(ConfigError, match="no linear or convolution layer"):
        AdaGp().attach(Run())


def test_the_predictor_that_is_priced_is_the_one_that_is_trained(monkeypatch: pytest.MonkeyPatch):
    def model() -> nn.Module:
        return nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(180, 14), nn.ReLU(),
            nn.Linear(14, 10),
        )  # fmt: skip

    executed: dict[bool, int] = {}

    def counted(function):
        def run(self, step: TrainingStep, proceed) -> None:
            with FlopCounterMode(display=False) as counter:
                function(self, step, (lambda: None) if function is update else proceed)
            predicted = self._parameters.is_predicted(step.number)
            if predicted == (function is backward):
                executed[predicted] = counter.get_total_flops()
            if function is update:
                proceed()

        return run

    backward, update = ada_gp._Predicting.backward, ada_gp._Predicting.update
    monkeypatch.setattr(ada_gp._Predicting, "backward", counted(backward))
    monkeypatch.setattr(ada_gp._Predicting, "update", counted(update))
    method = AdaGp(warmup=2, ratios=(1,), stage=4)
    workload = replace(load_workload("digits-mlp"), model=model, max_steps=6, evaluate_every=6)
    train(workload, Numerics(), methods=[method])
    graph = StepGraphs(workload, (method,))()
    predicted = StepFacts(methods=(MethodFact(method="ada-gp", name="predicted", value=True),))
    for is_predicted, facts in ((True, predicted), (False, StepFacts())):
        added = [op for op in method.rewrite(graph, facts, None).ops if ".predictor" in op.name]
        assert sum(op.flops for op in added) == executed[is_predicted]
