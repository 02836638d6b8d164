"""Zeros of training as a method measures them, and their price on machines that gate or compress."""

from dataclasses import replace

import pytest
from torch import nn

from presilicon.base import ConfigError
from presilicon.designs import Numerics, load_design
from presilicon.emulation import train
from presilicon.formats import parse, quantize
from presilicon.methods.measure_zeros import MeasureZeros
from presilicon.study.join.prices import StepGraphs, StepPrices
from presilicon.workloads import load_workload

WORKLOAD = replace(load_workload("digits-mlp"), max_steps=6)


def test_training_is_the_same_and_densities_are_those_of_the_operands(monkeypatch):
    seen: list[float] = []
    linear = nn.Linear.forward

    def watched(layer, x):
        if layer.out_features == 10:
            seen.append(int((quantize(x.detach(), parse("bfloat16")) != 0).sum()) / x.numel())
        return linear(layer, x)

    monkeypatch.setattr(nn.Linear, "forward", watched)
    numerics = load_design("bf16-systolic").numerics
    plain = train(WORKLOAD, numerics, seed=0, device="cpu")
    seen.clear()
    trace = train(WORKLOAD, numerics, seed=0, device="cpu", methods=[MeasureZeros(every=1)])
    assert trace.losses == plain.losses
    facts = list(trace.facts())[-1]
    densities = {(fact.layer, fact.role): fact.density for fact in facts.layers}
    assert densities["hidden1", "weight"] == 1
    assert set(densities) == {(layer, role) for layer in ("hidden1", "hidden2", "output")
                              for role in ("activation", "weight", "error")}  # fmt: skip
    assert densities["output", "activation"] in seen
    assert 0.2 < densities["hidden2", "activation"] < 0.8
    pairs = {(fact.layer, fact.product): fact.share for fact in facts.products if fact.zeros == "gated"}
    assert pairs["hidden2", "forward"] == pytest.approx(densities["hidden2", "activation"], abs=0.1)  # dense weights
    assert pairs["hidden2", "weight_grad"] < min(
        densities["hidden2", "activation"] + 0.1, densities["hidden2", "error"] + 0.1
    )


def test_measured_zeros_save_energy_and_traffic_on_machines_that_use_them():
    facts = list(train(WORKLOAD, Numerics(), seed=0, device="cpu", methods=[MeasureZeros(every=5)]).facts())[-1]
    prices = {}
    for name, settings in (
        ("plain", []),
        ("gated", ["machine.sparsity.zeros=gated"]),
        ("compressed", ["machine.sparsity.activation=bitmap", "machine.sparsity.error=run-length"]),
    ):
        design = load_design("bf16-systolic", ["machine.fusion=none", *settings], methods=["measure-zeros"])
        prices[name] = StepPrices(StepGraphs(WORKLOAD, design.methods), design)(facts)
    assert prices["gated"].energy_j < prices["plain"].energy_j
    assert prices["gated"].time_s == prices["plain"].time_s
    assert prices["compressed"].bytes_dram < prices["plain"].bytes_dram


@pytest.mark.parametrize("method", ["measure-zeros", "tensordash"])
@pytest.mark.parametrize(
    ("setting", "said"),
    [("weight_grad.hadamard=16", "Hadamard transforms"), ("weight_grad.activation=e4m3", "formats of single products")],
)
def test_operands_that_differ_between_products_are_refused(method: str, setting: str, said: str) -> None:
    zeros = "gated" if method == "measure-zeros" else "pairs"
    settings = [f"machine.sparsity.zeros={zeros}"]
    load_design("bf16-systolic", settings, methods=(method,))
    with pytest.raises(ConfigError, match=f"methods: {method} looks at an operand once, .*{said}"):
        load_design("bf16-systolic", [*settings, f"numerics.{setting}"], methods=(method,))
