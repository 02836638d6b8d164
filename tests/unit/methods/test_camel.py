"""CAMEL: reversible blocks recompute their inputs, and data lives for one block."""

import copy
import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from presilicon.base import ConfigError
from presilicon.designs import Numerics, load_design, load_recipe
from presilicon.emulation import emulate_, train
from presilicon.methods.camel import Camel
from presilicon.simulation import memory_timeline, simulate
from presilicon.workloads import Coupling, Reversible, capture, load_workload, reversible, sgd
from presilicon.workloads.digits import digits_revnet

WORKLOAD = load_workload("digits-revnet")


def dense(width: int = 16) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.Tanh())


@pytest.mark.parametrize(
    ("dtype", "least", "most"),
    [
        (torch.float64, 1e-16, 1e-13),
        (torch.float32, 1e-8, 1e-4),
        (torch.float16, 1e-3, 0.3),
        (torch.bfloat16, 0.01, 2.0),
    ],
)
def test_inputs_are_found_again_as_well_as_the_type_allows(dtype: torch.dtype, least: float, most: float):
    torch.manual_seed(0)
    sequence = Reversible(*(Coupling(dense(), dense()) for _ in range(32))).to(dtype)
    x = torch.randn(8, 32).to(dtype)
    with torch.no_grad():
        error = float((sequence.inverse(sequence(x)) - x).abs().max())
    assert least < error < most


@pytest.mark.parametrize("recipe", ["fp32", "bf16", "fp8-hybrid"])
def test_gradients_are_those_of_kept_inputs(recipe: str):
    torch.manual_seed(0)
    kept = digits_revnet(blocks=3)
    recomputed = Camel().transform(copy.deepcopy(kept))
    x, targets = torch.randn(8, 1, 8, 8), torch.randint(10, (8,))
    numerics = Numerics() if recipe == "fp32" else load_recipe(recipe).numerics
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as one for products that are not emulated
        for model in (kept, recomputed):
            functional.cross_entropy(emulate_(model, numerics)(x), targets).backward()
    for (name, p), q in zip(kept.named_parameters(), recomputed.parameters(), strict=True):
        assert p.grad is not None
        assert q.grad is not None
        assert float((p.grad - q.grad).norm()) <= (1e-5 if recipe == "fp32" else 0.02) * float(p.grad.norm()), name


def test_a_wrong_inverse_gives_other_gradients(monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    kept = digits_revnet(blocks=3)
    recomputed = Camel().transform(copy.deepcopy(kept))
    x, targets = torch.randn(8, 1, 8, 8), torch.randint(10, (8,))
    right = reversible._pass_back

    def wrong(*arguments):
        inputs, error, gradients = right(*arguments)
        return inputs * 1.5, error, gradients

    monkeypatch.setattr(reversible, "_pass_back", wrong)
    for model in (kept, recomputed):
        functional.cross_entropy(model(x), targets).backward()
    first = [model.blocks.couplings[0].first.conv.weight.grad for model in (kept, recomputed)]
    assert float((first[0] - first[1]).norm()) > 0.01 * float(first[0].norm())


def test_only_the_last_outputs_are_kept():
    saved = {}
    for depth in (2, 8):
        sizes = []
        model = Camel().transform(digits_revnet(blocks=depth))
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x, sizes=sizes: (sizes.append(x.numel()), x)[1], lambda x: x
        ):
            model(torch.randn(4, 1, 8, 8))
        saved[depth] = sum(sizes)
    assert saved[2] == saved[8]


def test_lifetimes_do_not_grow_with_depth_where_inputs_are_recomputed():
    design = load_design("edge-bf16")
    longest: dict[bool, list[float]] = {True: [], False: []}
    for recomputes, lifetimes in longest.items():
        for depth in (4, 8, 16):
            model = digits_revnet(blocks=depth)
            model.blocks.recomputes = recomputes
            graph = capture(
                model, torch.zeros(32, 1, 8, 8), targets=torch.zeros(32, dtype=torch.long),
                loss=functional.cross_entropy, optimizer=sgd,
            )  # fmt: skip
            timeline = memory_timeline(graph, design, simulate(graph, design))
            inside = [data for data in timeline.lifetimes if "couplings" in data.writer and data.part == "activations"]
            lifetimes.append(max(data.time_s for data in inside))
    kept, flat = longest[False], longest[True]
    assert kept[2] / kept[1] == pytest.approx(kept[1] / kept[0], rel=0.1)
    assert kept[2] > 3.5 * kept[0]
    assert max(flat) < 1.2 * min(flat)


def test_recomputation_is_a_second_forward_pass_in_the_price():
    design = load_design("edge-bf16")
    flops = []
    for model in (digits_revnet(16), Camel().transform(digits_revnet(16))):
        graph = capture(
            model, torch.zeros(32, 1, 8, 8), targets=torch.zeros(32, dtype=torch.long), loss=functional.cross_entropy,
            optimizer=sgd,
        )  # fmt: skip
        flops.append(sum(op.flops for op in graph.ops if op.gemm))
        assert simulate(graph, design).time_s > 0
    assert flops[1] / flops[0] == pytest.approx(4 / 3, rel=0.01)


def test_training_repeats_stochastic_roundings_in_the_backward_pass():
    workload = replace(WORKLOAD, max_steps=20, evaluate_every=20)
    numerics = load_recipe("bfp4").numerics
    kept, recomputed = (train(workload, numerics, methods=methods) for methods in ([], [Camel()]))
    assert recomputed.losses[0] == kept.losses[0]
    assert recomputed.losses == pytest.approx(kept.losses, rel=0.05)


def test_frozen_layers_have_no_backward_pass():
    model = Camel(freeze=("stem",)).transform(digits_revnet(2))
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["stem.weight", "stem.bias"]
    graph = capture(
        model, torch.zeros(8, 1, 8, 8), targets=torch.zeros(8, dtype=torch.long), loss=functional.cross_entropy,
        optimizer=sgd,
    )  # fmt: skip
    assert {op.phase for op in graph.ops if op.layer == "stem"} == {"forward"}
    trace = train(replace(WORKLOAD, max_steps=10, evaluate_every=10), Numerics(), methods=[Camel(freeze=("stem",))])
    assert trace.losses[-1] < trace.losses[0]
    with pytest.raises(ConfigError, match='no layer matches "backbone"'):
        Camel(freeze=("backbone",)).transform(digits_revnet(2))


def test_a_model_without_reversible_blocks_is_refused():
    with pytest.raises(ConfigError, match="camel needs reversible blocks, which this model does not have"):
        Camel().transform(nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("module", "words"),
    [(nn.Dropout(0.2), "draws other random numbers"), (nn.BatchNorm2d(16), "counts its batch twice")],
)
def test_modules_that_a_second_pass_would_not_repeat_are_refused(module: nn.Module, words: str):
    half = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), module)
    with pytest.raises(ConfigError, match=words):
        Camel().transform(nn.Sequential(Reversible(Coupling(half, copy.deepcopy(half)))))


def test_shared_functions_and_odd_channels_are_refused():
    half = nn.Conv2d(16, 16, 3, padding=1)
    with pytest.raises(ConfigError, match="share parameters"):
        Camel().transform(nn.Sequential(Reversible(Coupling(half, half))))
    with pytest.raises(ConfigError, match="even number of channels, not 3"):
        Reversible(Coupling(half, half))(torch.zeros(1, 3, 4, 4))
    with pytest.raises(ConfigError, match="leaves no parameter to train"):
        Camel(freeze=("*",)).transform(digits_revnet(1))


def test_frozen_and_unused_parameters_inside_have_no_gradient():
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.spare = nn.Conv2d(4, 4, 3, padding=1), nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv(x)

    model = Camel(freeze=("*couplings.0*",)).transform(
        nn.Sequential(Reversible(*(Coupling(Unused(), Unused()) for _ in range(2))))
    )
    model(torch.randn(2, 8, 5, 5)).sum().backward()
    grads = {name: parameter.grad is not None for name, parameter in model.named_parameters()}
    assert {name for name, has in grads.items() if has} == {
        f"0.couplings.1.{half}.conv.{part}" for half in ("first", "second") for part in ("weight", "bias")
    }
