"""Delayed scaling follows the magnitudes of earlier passes, as Transformer Engine's does."""

import copy

import numpy as np
import pytest
import torch
from tests.oracles.delayed_scaling import Delayed
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

from presilicon.base import ConfigError
from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation import emulate_, emulation_of
from presilicon.formats import parse, quantize

GROWING = [1.0, 8.0, 0.5, 100.0, 2.0, 0.01, 3.0]


def numerics(length: int = 3, rule: str = "max", margin: int = 0) -> Numerics:
    def role(element: str) -> RoleFormat:
        fmt = parse(f"scaled(element={element}, margin={margin})")
        return RoleFormat(fmt, amax_history=length, amax_rule=rule)

    return Numerics(weight=role("e4m3fn"), activation=role("e4m3fn"), error=role("e5m2"))


def a_pass(layer: nn.Linear, x: Tensor, error: Tensor) -> tuple[Tensor, ...]:
    layer.weight.grad, x = None, x.requires_grad_()
    out = layer(x)
    out.backward(error)
    return out.detach(), x.grad, layer.weight.grad


@pytest.mark.parametrize(("length", "rule", "margin"), [(1, "max", 0), (3, "max", 0), (4, "most-recent", 2)])
def test_every_product_has_the_scales_of_transformer_engine(length, rule, margin) -> None:
    torch.manual_seed(0)
    layer = emulate_(nn.Linear(8, 5, bias=False), numerics(length, rule, margin))
    weight = layer.weight.detach().numpy()
    a, w, e = (
        Delayed(dtype, length, margin, rule) for dtype in (torch.float8_e4m3fn, torch.float8_e4m3fn, torch.float8_e5m2)
    )
    clipped = 0
    for size in GROWING:
        x, error = torch.randn(6, 8) * size * 100, torch.randn(6, 5) * size
        out, input_grad, weight_grad = a_pass(layer, x.clone(), error)
        ax, wx, ex = (torch.from_numpy(cast) for cast in (a.cast(x.numpy()), w.cast(weight), e.cast(error.numpy())))
        clipped += int((np.abs(x.numpy()) * a.scale > 448).sum())
        for state in (a, w, e):
            state.end_pass()
        assert torch.equal(out, ax @ wx.t())
        assert torch.equal(input_grad, ex @ wx)
        assert torch.equal(weight_grad, ex.t() @ ax)
    assert clipped > 0


def test_an_averaged_model_is_refused_until_it_has_the_scales_of_the_trained_one() -> None:
    torch.manual_seed(0)
    model = emulate_(nn.Sequential(nn.Linear(8, 5)), numerics())
    averaged, x = AveragedModel(model), torch.randn(6, 8) * 1000
    for _ in range(3):
        model(x).sum().backward()
        averaged.update_parameters(model)
    with pytest.raises(ConfigError, match=r'layer "0": delayed scales follow .* \(as in AveragedModel\)'):
        averaged.eval()(x)
    averaged.module.load_state_dict({"presilicon_state": model.state_dict()["presilicon_state"]}, strict=False)
    assert torch.equal(averaged(x), model.eval()(x))


def test_an_average_that_began_in_training_needs_the_scales_of_the_model_again_and_again() -> None:
    model, x = emulate_(nn.Sequential(nn.Linear(8, 4)), numerics()), torch.randn(6, 8)
    model(x).sum().backward()
    averaged, snapshot = AveragedModel(model), copy.deepcopy(model)
    expected = snapshot.eval()(x)
    for _ in range(2):
        model(x * 1000).sum().backward()
        averaged.update_parameters(model)
        with pytest.raises(ConfigError, match="has got other weights"):
            averaged.eval()(x)
        entry = {"presilicon_state": model.state_dict()["presilicon_state"]}
        averaged.module.load_state_dict(entry, strict=False)
        assert torch.equal(averaged(x), model.eval()(x))
        model.train()
    assert torch.equal(snapshot(x), expected), "a copy with its own weights has the scales of these"
    snapshot.train()(x)
    snapshot[0].weight.data.mul_(2)
    snapshot.eval()(x)


def test_copies_that_have_passes_or_train_are_not_refused() -> None:
    model, x = emulate_(nn.Sequential(nn.Linear(8, 5)), numerics()), torch.randn(6, 8)
    fresh = copy.deepcopy(model)
    fresh(x).sum().backward()
    assert torch.equal(fresh.eval()(x), model.eval()(x))  # one pass: both have the scale 1
    model.train()(x).sum().backward()
    model(x).sum().backward()
    assert torch.equal(copy.deepcopy(model).eval()(x), model.eval()(x))


def test_evaluation_uses_the_scales_and_does_not_change_them() -> None:
    torch.manual_seed(0)
    layer = emulate_(nn.Linear(8, 5, bias=False), numerics())
    a_pass(layer, torch.randn(6, 8), torch.randn(6, 5))
    a_pass(layer, torch.randn(6, 8), torch.randn(6, 5))
    before = copy.deepcopy(emulation_of(layer).amax.state_dict())
    x = torch.randn(6, 8) * 1000
    layer.eval()
    with torch.no_grad():
        out = layer(x)
    after = emulation_of(layer).amax.state_dict()
    for key, saved in before.items():
        assert torch.equal(saved["history"], after[key]["history"])
        assert torch.equal(saved["in_use"], after[key]["in_use"])
    current = quantize(x, parse("scaled(element=e4m3fn)")) @ quantize(layer.weight, parse("scaled(e4m3fn)")).t()
    assert float(out.abs().max()) < float(current.abs().max()) / 10  # saturated at the scale of the small batches


def test_numbers_that_are_not_finite_leave_the_scale() -> None:
    torch.manual_seed(0)
    layer = emulate_(nn.Linear(8, 5, bias=False), numerics(length=2))
    for _ in range(3):
        a_pass(layer, torch.randn(6, 8), torch.randn(6, 5))
    in_use = {key: saved["in_use"].clone() for key, saved in emulation_of(layer).amax.state_dict().items()}
    a_pass(layer, torch.full((6, 8), float("inf")), torch.full((6, 5), float("nan")))
    a_pass(layer, torch.zeros(6, 8), torch.zeros(6, 5))
    for key, saved in emulation_of(layer).amax.state_dict().items():
        assert saved["in_use"].isfinite().all()
        assert (saved["in_use"] > 0).all()
        assert saved["in_use"].shape == in_use[key].shape


def test_a_copy_and_a_restored_state_go_on_with_the_same_scales() -> None:
    torch.manual_seed(0)
    plain = nn.Linear(8, 5, bias=False)
    layer = emulate_(copy.deepcopy(plain), numerics())
    batches = [(torch.randn(6, 8) * size, torch.randn(6, 5) * size) for size in GROWING]
    for x, error in batches[:3]:
        a_pass(layer, x.clone(), error)
    twin, fresh = copy.deepcopy(layer), emulate_(copy.deepcopy(plain), numerics())
    emulation_of(fresh).amax.load_state_dict(copy.deepcopy(emulation_of(layer).amax.state_dict()))
    unlike = emulate_(copy.deepcopy(plain), numerics())
    results = [[a_pass(model, x.clone(), e) for x, e in batches[3:]] for model in (layer, twin, fresh, unlike)]
    flat = [[tensor for tensors in passes for tensor in tensors] for passes in results]
    assert all(map(torch.equal, flat[0], flat[1]))
    assert all(map(torch.equal, flat[0], flat[2]))
    assert not all(map(torch.equal, flat[0], flat[3]))


def test_recomputation_uses_the_scales_of_its_pass() -> None:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    models = [emulate_(copy.deepcopy(block), numerics()) for _ in range(2)]
    for size in GROWING[:4]:
        x = torch.randn(6, 8) * size
        models[0](x).square().sum().backward()
        checkpoint(models[1], x, use_reentrant=False).square().sum().backward()
        for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
            assert torch.equal(a.grad, b.grad)


def test_histories_are_part_of_the_models_state() -> None:
    torch.manual_seed(0)
    plain = nn.Linear(8, 5, bias=False)
    layer, fresh = (emulate_(copy.deepcopy(plain), numerics()) for _ in range(2))
    batches = [(torch.randn(6, 8) * size, torch.randn(6, 5) * size) for size in GROWING]
    for x, error in batches[:3]:
        a_pass(layer, x.clone(), error)
    fresh.load_state_dict(copy.deepcopy(layer.state_dict()))
    for x, error in batches[3:]:
        mine, its = (a_pass(model, x.clone(), error) for model in (layer, fresh))
        assert all(map(torch.equal, mine, its))
