"""Procrustes: few weights are tracked, and all others are decayed initial ones."""

from dataclasses import replace

import pytest
import torch
from msgspec import structs
from torch import nn

from presilicon.base import ConfigError
from presilicon.designs import LossScale, Numerics, RoleFormat, TrainingStep, load_design
from presilicon.emulation import train
from presilicon.methods import procrustes
from presilicon.methods.procrustes import Procrustes
from presilicon.methods.quantile import QuantileEstimator
from presilicon.records import LayerFact, MethodFact, StepFacts
from presilicon.study.join.prices import StepGraphs, StepPrices
from presilicon.workloads import load_workload

DIGITS = load_workload("digits-mlp")
FLOAT32 = Numerics()


def weights_of(monkeypatch: pytest.MonkeyPatch, steps: int, method: Procrustes, numerics: Numerics = FLOAT32):
    """Initial weights and those after each step."""
    seen: list[dict[str, torch.Tensor]] = []
    update = procrustes._Tracking.update

    def looking(self, step, proceed) -> None:
        if not seen:
            seen.append({name: weight.detach().clone() for name, weight in self._weights.items()})
        update(self, step, proceed)
        seen.append({name: weight.detach().clone() for name, weight in self._weights.items()})

    monkeypatch.setattr(procrustes._Tracking, "update", looking)
    trace = train(replace(DIGITS, max_steps=steps, evaluate_every=steps), numerics, methods=[method])
    return seen, trace


def test_the_tracked_weights_are_as_many_as_asked_and_the_others_bit_equal_to_decayed_ones(monkeypatch):
    method = Procrustes(density=0.1, selection="sort", zero_below=0.0)
    seen, _ = weights_of(monkeypatch, 12, method)
    count = sum(weight.numel() for weight in seen[0].values())
    for number, after in enumerate(seen[1:]):
        bases = {name: initial * method.factor_after(number) for name, initial in seen[0].items()}
        differing = sum(int((after[name] != bases[name]).sum()) for name in after)
        assert differing == int(0.1 * count)


def test_weights_that_are_not_tracked_become_zeros(monkeypatch):
    method = Procrustes(density=0.1, selection="sort", decay=0.5)
    seen, trace = weights_of(monkeypatch, 15, method)
    assert method.factor_after(9) == 0.0
    kept = sum(int(weight.count_nonzero()) for weight in seen[-1].values())
    assert kept == int(0.1 * sum(weight.numel() for weight in seen[0].values()))
    densities = {fact.layer: fact.density for fact in list(trace.facts())[-1].layers}
    assert densities == {name: int(weight.count_nonzero()) / weight.numel() for name, weight in seen[-1].items()}


def test_nothing_is_stored_for_weights_that_are_not_tracked():
    weight = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(weight.parameters(), lr=0.1, momentum=0.9)

    class Run:
        model = weight

        def format_of(self, layer: str, role: str) -> RoleFormat:
            return Numerics().master

    Run.optimizer = optimizer
    attached = Procrustes(density=0.25, selection="sort").attach(Run())
    weight(torch.randn(4, 8)).square().sum().backward()
    attached.update(TrainingStep(0, 0, 4, []), optimizer.step)
    assert int(optimizer.state[weight.weight]["momentum_buffer"].count_nonzero()) == 16


def test_decayed_weights_have_the_format_of_the_master_weights(monkeypatch):
    seen, _ = weights_of(monkeypatch, 3, Procrustes(), Numerics(master="bfloat16"))
    for weights in seen[1:]:
        assert all(torch.equal(weight, weight.bfloat16().float()) for weight in weights.values())


def test_a_step_without_an_update_tracks_no_weights(monkeypatch):
    scaled = Numerics(error="float16", loss_scale=LossScale(kind="dynamic", initial=2.0**24))
    _, trace = weights_of(monkeypatch, 10, Procrustes(), scaled)
    assert trace.skipped
    tracked = [bool(facts.methods) for facts in trace.facts()]
    assert tracked == [step not in trace.skipped for step in range(10)]


@pytest.mark.parametrize("share", [0.8, 0.9, 0.95])
def test_the_estimate_is_within_two_percent_of_the_quantile(share: float):
    generator = torch.Generator().manual_seed(1)
    estimator = QuantileEstimator(share, rate=3e-4)
    for _ in range(100):
        estimate = estimator.see(torch.randn(5000, generator=generator).abs())
    true = float(torch.randn(1_000_000, generator=generator).abs().quantile(share))
    assert estimate == pytest.approx(true, rel=0.02)


def test_an_estimate_does_not_follow_the_last_numbers():
    parts = torch.cat((torch.rand(9000), 0.01 * torch.rand(1000)))  # as a last layer whose weights move little
    estimator = QuantileEstimator(0.9, rate=3e-4)
    for _ in range(20):
        estimate = estimator.see(parts)
    assert estimate == pytest.approx(float(parts.quantile(0.9)), rel=0.02)


def test_an_estimate_with_the_wrong_steps_is_not():
    estimator, values = QuantileEstimator(0.9, rate=3e-4), torch.rand(300_000)
    estimator.share = 0.8
    assert estimator.see(values) != pytest.approx(0.9, rel=0.02)


def test_an_estimate_tracks_about_as_many_as_a_sort(monkeypatch):
    seen, _ = weights_of(monkeypatch, 60, Procrustes(density=0.2, decay=0.8))
    kept = sum(int(weight.count_nonzero()) for weight in seen[-1].values())
    assert kept == pytest.approx(0.2 * sum(weight.numel() for weight in seen[0].values()), rel=0.1)


def test_packing_is_simulated_on_the_weights(monkeypatch):
    _, trace = weights_of(monkeypatch, 15, Procrustes(density=0.1, selection="sort", decay=0.5))
    facts = list(trace.facts())[-1]
    densities = {fact.layer: fact.density for fact in facts.layers}
    shares = {(fact.layer, fact.product): fact.share for fact in facts.products if fact.zeros == "weights"}
    assert set(shares) == {(layer, product) for layer in densities for product in ("forward", "input_grad")}
    assert all(densities[layer] <= share <= 1 for (layer, _), share in shares.items())
    design = load_design("bf16-systolic", ["machine.rows=8", "machine.cols=8", "machine.sparsity.zeros=weights"])
    prices = StepPrices(StepGraphs(DIGITS, design.methods), design)
    ideal = structs.replace(facts, products=())
    poor = structs.replace(facts, products=tuple(structs.replace(fact, share=0.5) for fact in facts.products))
    assert prices(ideal).time_s <= prices(facts).time_s < prices(poor).time_s < prices().time_s


def test_zeros_save_time_on_a_machine_that_skips_them_and_tracking_costs_something():
    settings = ["machine.rows=8", "machine.cols=8"]
    names = [name for name, module in DIGITS.model().named_modules() if isinstance(module, nn.Linear)]
    facts = StepFacts(
        layers=tuple(LayerFact(layer=name, role="weight", density=0.1) for name in names),
        methods=tuple(MethodFact(method="procrustes", name="tracked", value=True, layer=name) for name in names),
    )
    skipping, dense = (
        load_design("bf16-systolic", [*settings, f"machine.sparsity.zeros={word}"], methods=["procrustes"])
        for word in ("weights", "computed")
    )
    prices = {
        design.machine.sparsity.zeros: StepPrices(StepGraphs(DIGITS, design.methods), design)
        for design in (skipping, dense)
    }
    assert prices["weights"](facts).time_s < 0.6 * prices["computed"](facts).time_s
    assert prices["computed"](facts).energy_j > prices["computed"](StepFacts()).energy_j


def test_what_it_cannot_treat_is_refused():
    with pytest.raises(ConfigError, match="on this machine layers update at different times"):
        load_design("caterpillar-small", ["machine.schedule=pipelined"], methods=["procrustes"])

    class Run:
        model = nn.Sequential(nn.ReLU())
        optimizer = None

    with pytest.raises(ConfigError, match="finds no weights to track"):
        Procrustes().attach(Run())
