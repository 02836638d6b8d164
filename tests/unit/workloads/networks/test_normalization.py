"""Normalizers against plain arithmetic, and the networks that can be built with each of them."""

from collections import Counter
from typing import get_args

import pytest
import torch
from torch import nn

from presilicon.workloads import capture
from presilicon.workloads.networks.normalization import Normalization, OnlineNorm, make_norm
from presilicon.workloads.networks.resnet import resnet50
from presilicon.workloads.networks.unet import place_loss, unet2d, unet3d

EPS = 1e-5


def online_by_hand(samples, errors, forward=0.999, backward=0.99):
    """One channel, one number per sample: results and input gradients of both control processes."""
    mean, variance, u, v = 0.0, 1.0, 0.0, 0.0
    results, scales = [], []
    for x in samples:
        scales.append((variance + EPS) ** -0.5)
        results.append((x - mean) * scales[-1])
        variance = forward * variance + forward * (1 - forward) * (x - mean) ** 2
        mean += (1 - forward) * (x - mean)
    gradients = []
    for y, scale, error in zip(results, scales, errors, strict=True):
        first = error - (1 - backward) * v * y
        v += first * y
        gradients.append(first * scale - (1 - backward) * u)
        u += gradients[-1]
    return results, gradients


def test_online_normalization_is_two_control_processes() -> None:
    from presilicon.workloads.networks.normalization import _Online

    torch.manual_seed(0)
    x = (torch.randn(50, 1, 1, dtype=torch.float64) * 2.5 + 3).requires_grad_()
    errors = torch.randn(50, 1, 1, dtype=torch.float64)
    statistics = [torch.tensor([start], dtype=torch.float64) for start in (0.0, 1.0, 0.0, 0.0)]
    y = _Online.apply(x, *statistics, (0.999, 0.99))
    y.backward(errors)
    results, gradients = online_by_hand(x.flatten().tolist(), errors.flatten().tolist())
    assert y.flatten().tolist() == pytest.approx(results)
    assert x.grad.flatten().tolist() == pytest.approx(gradients)


def test_online_normalization_over_time_has_mean_zero_and_variance_one() -> None:
    torch.manual_seed(0)
    layer = OnlineNorm(4, forward_decay=0.99)
    with torch.no_grad():
        seen = torch.cat([layer(torch.randn(1, 4, 5, 5) * 2.5 + 3) for _ in range(2000)])[1000:]
    # Each sample is scaled by its own root mean square after that.
    assert seen.mean(dim=(0, 2, 3)).abs().max() < 0.05
    assert (seen.var(dim=(0, 2, 3)) - 1).abs().max() < 0.05


def test_a_batch_is_its_samples_one_after_another() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 3, 4, 4)
    together, apart = OnlineNorm(3), OnlineNorm(3)
    whole = together(x)
    pieces = torch.cat([apart(sample[None]) for sample in x])
    torch.testing.assert_close(whole, pieces)
    torch.testing.assert_close(together.variance, apart.variance)


@pytest.mark.parametrize("kind", get_args(Normalization))
def test_every_normalizer_trains(kind) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*make_norm(kind, nn.Conv2d(3, 8, 3, bias=False)), nn.ReLU())
    model(torch.randn(4, 3, 6, 6)).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_over_what_each_normalizer_averages() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 64, 6, 6) * 3 + 1
    axes = {"batch": (0, 2, 3), "instance": (2, 3), "layer": (1, 2, 3)}
    for kind, over in axes.items():
        _, norm = make_norm(kind, nn.Conv2d(3, 64, 3))
        assert norm(x).mean(dim=over).abs().max() < 1e-5
    _, norm = make_norm("group", nn.Conv2d(3, 64, 3))
    assert norm(x).view(4, 32, -1).mean(dim=2).abs().max() < 1e-5


def test_only_online_normalization_holds_no_batch() -> None:
    with torch.device("meta"):
        graphs = {
            kind: capture(resnet50(normalization=kind), torch.empty(2, 3, 64, 64))
            for kind in ("batch", "weight", "none")
        }
    kinds = {kind: Counter(op.kind for op in graph.ops).get("normalization", 0) for kind, graph in graphs.items()}
    assert kinds["batch"] == 2 * 53
    assert kinds["none"] == 0
    assert graphs["weight"].parameter_elements > graphs["none"].parameter_elements


def test_unets_give_the_sizes_of_their_papers() -> None:
    with torch.device("meta"), torch.no_grad():
        assert unet2d()(torch.empty(1, 1, 572, 572)).shape == (1, 2, 388, 388)
        assert unet3d()(torch.empty(1, 3, 132, 132, 116)).shape == (1, 3, 44, 44, 28)
        loss = place_loss(torch.empty(1, 2, 388, 388), torch.empty(1, 572, 572, dtype=torch.int64))
    assert loss.shape == ()
