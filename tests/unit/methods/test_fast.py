"""FAST: which tensors take the long mantissa, and what that costs."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from presilicon.base import ConfigError
from presilicon.designs import Numerics, load_design
from presilicon.emulation import train
from presilicon.formats import MacUnit, parse, quantize
from presilicon.methods.fast import Fast
from presilicon.records import StepFacts
from presilicon.study.join.prices import StepGraphs, StepPrices
from presilicon.workloads import load_workload

DIGITS = load_workload("digits-mlp")
FMAC = ["numerics.mac.slice_bits=2"]


def formats_at(policy: str, steps: int = 20, **parameters: object) -> list[dict[tuple[str, str], str]]:
    """The mantissa bits of each layer and role, step by step."""
    workload = replace(DIGITS, max_steps=steps, evaluate_every=steps)
    trace = train(workload, Numerics(), methods=[Fast(policy=policy, every=1, steps=steps, **parameters)])
    return [{(fact.layer, fact.role): fact.format or "" for fact in facts.layers} for facts in trace.facts()]


def test_the_relative_improvement_of_gaussian_data_is_a_quarter():
    x = torch.randn(1000, 1024, generator=torch.Generator().manual_seed(0))
    method = Fast()
    low, high = (quantize(x, method.block(bits)) for bits in (2, 4))
    assert float((high - low).abs().mean() / low.abs().mean()) == pytest.approx(0.253, abs=0.001)
    errors = [float((quantize(x, method.block(bits)) - x).norm() / x.norm()) for bits in (2, 3, 4, 8)]
    assert errors == pytest.approx([0.237, 0.117, 0.058, 0.0036], rel=0.01)


def test_a_product_of_slices_is_the_product():
    slices = [(value >> 2, value & 3) for value in range(16)]
    for a, (high_a, low_a) in enumerate(slices):
        for b, (high_b, low_b) in enumerate(slices):
            passes = [high_a * high_b << 4, (high_a * low_b + low_a * high_b) << 2, low_a * low_b]
            assert sum(passes) == a * b
    fmac = MacUnit(slice_bits=2)
    assert [fmac.passes(a, b) for a, b in ((2, 2), (2, 4), (4, 2), (4, 4))] == [1, 2, 2, 4]


@pytest.mark.parametrize(
    ("policy", "first", "last"),
    [("low", {"2"}, {"2"}), ("high", {"4"}, {"4"}), ("temporal", {"2"}, {"4"}), ("temporal-reversed", {"4"}, {"2"})],
)
def test_a_policy_sets_the_mantissas_of_all_layers(policy: str, first: set[str], last: set[str]):
    steps = formats_at(policy)
    assert [{text.partition("mantissa=")[2][0] for text in step.values()} for step in (steps[0], steps[-1])] == [
        first,
        last,
    ]


def test_layerwise_policies_differ_by_depth():
    names = list(dict.fromkeys(layer for layer, _ in formats_at("layerwise")[0]))
    for policy, deep in (("layerwise", "4"), ("layerwise-reversed", "2")):
        formats = formats_at(policy)[-1]
        assert f"mantissa={deep}" in formats[names[-1], "weight"]
        assert f"mantissa={deep}" not in formats[names[0], "weight"]


def test_adaptive_mantissas_follow_the_rule():
    zero, infinite = formats_at("adaptive", alpha=0.0, beta=0.0), formats_at("adaptive", alpha=10.0, beta=0.0)
    assert all("mantissa=4" in text for text in zero[-1].values())
    assert all("mantissa=2" in text for text in infinite[-1].values())
    grown = formats_at("adaptive", steps=60)
    high = [sum("mantissa=4" in text for text in step.values()) for step in grown]
    assert high[0] == 0 < high[-1]
    deep, shallow = list(dict.fromkeys(layer for layer, _ in grown[0]))[-1], next(iter(grown[0]))[0]
    count = {layer: sum("mantissa=4" in step[layer, "weight"] for step in grown) for layer in (deep, shallow)}
    assert count[deep] >= count[shallow]


def test_longer_mantissas_take_more_passes_of_the_array():
    design = load_design("bf16-systolic", [*FMAC, "machine.rows=8", "machine.cols=8"], methods=["fast"])
    prices = StepPrices(StepGraphs(DIGITS, design.methods), design)
    workload = replace(DIGITS, max_steps=2, evaluate_every=2)
    times = {}
    for policy in ("low", "high"):
        trace = train(workload, design.numerics, methods=[Fast(policy=policy)])
        cost = prices(next(iter(trace.facts())))
        times[policy] = sum(op.cycles for op in cost.ops if op.unit == "array")
    assert 3.5 < times["high"] / times["low"] <= 4
    assert isinstance(prices(StepFacts()).time_s, float)


@pytest.mark.parametrize(("design", "settings"), [("bf16-systolic", []), ("h200", [])])
def test_a_machine_that_gains_nothing_is_refused(design: str, settings: list[str]):
    with pytest.raises(ConfigError, match=r"fast needs a systolic machine.*set numerics.mac.slice_bits = 2"):
        load_design(design, settings, methods=["fast"])


def test_bad_parameters_and_models_are_refused():
    with pytest.raises(ConfigError, match="high must be above low = 4, not 4"):
        load_design("bf16-systolic", FMAC, methods=["fast.low=4"])

    class Run:
        model = nn.Sequential(nn.ReLU())

    with pytest.raises(ConfigError, match="finds no linear or convolution layer"):
        Fast().attach(Run())
    assert parse("bfp(mantissa=2, exponent=8, group=16)") == Fast().block(2)
