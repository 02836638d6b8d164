"""The FP8 recipes of torchao: its own linear layers give the same results, forward and backward."""

import copy
from dataclasses import replace

import pytest
import torch
from msgspec.structs import replace as changed
from torch import nn

from presilicon.designs import Numerics, ProductNumerics, load_numerics
from presilicon.emulation import emulate_

pytest.importorskip("torchao", reason="pip install torchao")
from torchao.float8 import Float8LinearConfig, convert_to_float8_training


def step(model: nn.Module) -> list[torch.Tensor]:
    """Output, input gradient and weight gradient of a layer whose rows and columns differ widely in size."""
    torch.manual_seed(1)
    x = (torch.randn(32, 64) * torch.logspace(-2, 2, 32)[:, None]).requires_grad_()
    out = model(x)
    out.backward(torch.randn(32, 48) * torch.logspace(-3, 1, 48))
    return [out.detach(), x.grad, model[0].weight.grad, model[0].bias.grad]


def pair(numerics: Numerics, recipe: str) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(64, 48))
    config = replace(Float8LinearConfig.from_recipe_name(recipe), emulate=True)
    return step(emulate_(copy.deepcopy(plain), numerics)), step(convert_to_float8_training(plain, config=config))


@pytest.mark.parametrize("name", ["rowwise", "rowwise_with_gw_hp"])
def test_rowwise_recipes_are_equal_bit_by_bit(name: str) -> None:
    numerics = load_numerics("fp8-" + name.replace("_with", "").replace("_", "-"))
    if name == "rowwise_with_gw_hp":  # torchao leaves the weight gradient's operands as they are, here in float32
        numerics = changed(numerics, weight_grad=ProductNumerics(activation="float32", error="float32"))
    ours, theirs = pair(numerics, name)
    assert all(map(torch.equal, ours, theirs))


def test_the_tensorwise_recipe_is_equal_but_for_the_division_by_the_scale() -> None:
    """torchao's emulation divides codes by the scale; its kernels, and ours, multiply by the scale's reciprocal."""
    ours, theirs = pair(load_numerics("fp8-tensorwise"), "tensorwise")
    for mine, its in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, its, rtol=0, atol=1e-6 * float(its.abs().max()))


@pytest.mark.parametrize("other", ["fp8-tensorwise", "fp8-current", "fp8-rowwise-gw-hp", "bf16"])
def test_another_recipe_is_told_apart(other: str) -> None:
    ours, theirs = pair(load_numerics(other), "rowwise")
    distance = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, theirs, strict=True))
    assert distance > 1e-4
