"""TensorDash as a method: training does not change, and products take the cycles that their zeros allow."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from presilicon.base import ConfigError
from presilicon.designs import Numerics, load_design
from presilicon.emulation import train
from presilicon.methods.measure_zeros import _streams
from presilicon.methods.tensordash import TensorDash
from presilicon.records import ProductFact, StepFacts
from presilicon.simulation import simulate
from presilicon.workloads import capture_workload, load_workload

DIGITS = load_workload("digits-cnn")
SHORT = replace(DIGITS, max_steps=12, evaluate_every=12)


def test_training_is_the_same_and_relus_save_cycles():
    plain = train(SHORT, Numerics())
    dashed = train(SHORT, Numerics(), methods=[TensorDash(every=5, samples=128)])
    assert dashed.losses == plain.losses
    shares = {(fact.layer, fact.product): fact.share for fact in list(dashed.facts())[-1].products}
    assert len(shares) == 3 * 4
    assert all(1 / 3 <= share <= 1 for share in shares.values())
    assert shares["conv2", "forward"] < 0.95  # its inputs come out of a ReLU
    assert shares["output", "input_grad"] == 1  # ten errors and ten weights take one row of lanes


@pytest.mark.parametrize("layer", [nn.Linear(64, 48), nn.Conv2d(16, 32, 3, padding=1), nn.Conv2d(8, 16, 3, stride=2)])
def test_samples_have_the_length_and_the_density_of_their_products(layer: nn.Module):
    torch.manual_seed(0)
    weight = layer.get_parameter("weight").detach()
    x = torch.rand(32, 64) if weight.dim() == 2 else torch.rand(8, weight.shape[1], 12, 12)
    output = layer(x)
    zeros = {"x": torch.rand(x.shape) < 0.5, "w": torch.rand(weight.shape) < 0.75, "e": torch.rand(output.shape) < 0.5}
    generator = torch.Generator().manual_seed(1)
    streams = _streams(layer, zeros["x"], zeros["w"], zeros["e"], 400, generator)
    taps = weight[0, 0].numel() if weight.dim() > 2 and layer.stride == (1, 1) else 1
    lengths = {phase: pairs.shape[1] for phase, pairs in streams.items()}
    assert lengths["forward"] == weight[0].numel()
    assert lengths["input_grad"] == weight.shape[0] * taps
    density = {phase: float(pairs.float().mean()) for phase, pairs in streams.items()}
    border = 0.0 if weight.dim() == 2 else 0.09  # zeros around the pictures
    assert density["forward"] == pytest.approx(0.5 * 0.75, abs=0.02 + border)
    assert density["input_grad"] == pytest.approx(0.5 * 0.75, abs=0.02 + 2 * border)
    assert density["weight_grad"] == pytest.approx(0.25, abs=0.02 + border)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 8, 3, padding="same", dilation=2),
        nn.Conv2d(4, 8, 3, padding="valid"),
        nn.Conv1d(4, 8, 3, stride=2, padding=1),
        nn.Conv2d(8, 16, 3, groups=4, padding=1),
    ],
)
def test_patches_are_those_that_torch_multiplies(layer: nn.Module):
    weight = layer.get_parameter("weight").detach()
    x = torch.rand(2, 4 if weight.shape[0] == 8 else 8, *([9] * (weight.dim() - 2)))
    output = layer(x)
    streams = _streams(layer, x > 0.5, weight != 0, output != 99, 200, torch.Generator().manual_seed(0))
    assert streams["forward"].shape == (200, weight[0].numel())
    ones = torch.ones_like(weight)
    options = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation, "groups": layer.groups}
    convolve = nn.functional.conv1d if weight.dim() == 3 else nn.functional.conv2d
    counts = convolve((x > 0.5).float(), ones, **options)
    assert set(streams["forward"].sum(1).tolist()) <= set(counts.flatten().int().tolist())
    assert float(streams["forward"].float().sum(1).mean()) == pytest.approx(float(counts.mean()), rel=0.15)


def test_zeros_are_those_of_the_formats_that_another_method_sets():
    from presilicon.methods.fast import Fast

    workload = replace(load_workload("digits-mlp"), max_steps=8, evaluate_every=8)
    shares = []
    for methods in ([TensorDash(every=5)], [Fast(policy="low"), TensorDash(every=5)]):
        facts = list(train(workload, Numerics(), methods=methods).facts())[-1]
        shares.append({(fact.layer, fact.product): fact.share for fact in facts.products})
    assert shares[0]["hidden1", "forward"] == 1  # nothing in float32 is zero
    assert shares[1]["hidden1", "forward"] < 1
    assert shares[1]["hidden2", "forward"] < 0.95 * shares[0]["hidden2", "forward"]


def test_a_look_waits_for_a_step_with_a_backward_pass():
    from presilicon.methods.ada_gp import AdaGp

    workload = replace(load_workload("digits-mlp"), max_steps=30, evaluate_every=30)
    trace = train(workload, Numerics(), methods=[AdaGp(warmup=6, ratios=(4,), stage=50), TensorDash(every=5)])
    shares = [tuple(fact.share for fact in facts.products) for facts in trace.facts()]
    changes = [step for step in range(1, 30) if shares[step] != shares[step - 1]]
    assert changes == [5, 10, 15, 20, 25]


def test_a_machine_with_lanes_takes_the_cycles_that_were_simulated():
    design = load_design("edge-bf16", ["machine.sparsity.zeros=pairs"])
    graph = capture_workload(DIGITS)
    products = tuple(ProductFact(layer="hidden", product=phase, share=0.5) for phase in ("forward", "input_grad"))
    usual, skipping = simulate(graph, design), simulate(graph, design, StepFacts(products=products))
    cycles = {
        name: sum(op.cycles for op in cost.ops if op.layer == "hidden" and op.unit == "array" and op.phase == "forward")
        for name, cost in (("usual", usual), ("skipping", skipping))
    }
    assert 0.4 < cycles["skipping"] / cycles["usual"] < 0.7
    assert skipping.energy_j < usual.energy_j
    assert simulate(graph, load_design("edge-bf16"), StepFacts(products=products)).time_s == usual.time_s
    assert "does not skip zeros" in load_design("edge-bf16").machine.remarks(StepFacts(products=products))[0]


def test_machines_and_models_without_what_it_needs_are_refused():
    with pytest.raises(ConfigError, match=r'set machine\.sparsity\.zeros = "pairs"'):
        load_design("edge-bf16", methods=["tensordash"])

    class Run:
        model = nn.Sequential(nn.ReLU())

    with pytest.raises(ConfigError, match="no linear or convolution layer"):
        TensorDash().attach(Run())
