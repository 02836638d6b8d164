"""Every option of a decomposition, at its ends too: what torch computes, or plainly NotImplemented."""

import math
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from presilicon.emulation.steps.lines import Line
from presilicon.emulation.steps.primitives import RoundedSteps
from presilicon.formats import Key
from presilicon.ops import entry_of_function

T = torch.tensor
SHAPE = (4, 6, 8)
PER_CHANNEL, OF_CHANNELS = torch.linspace(0.5, 2.0, 6, dtype=torch.float64), torch.linspace(-1, 1, 6).double()
TARGETS = T([[0, 2, 5, 1, 3, 3, 0, 4]] * 4)
CLASS_WEIGHTS = torch.linspace(0.1, 1.5, 6, dtype=torch.float64)
OTHER = torch.linspace(-2, 2, 192, dtype=torch.float64).view(SHAPE)


def options(function, *cases: tuple) -> list[tuple]:
    """Each case: arguments after the input, the last one a dictionary if it has names."""
    split = [(case[:-1], case[-1]) if case and isinstance(case[-1], dict) else (case, {}) for case in cases]
    return [(function, args, named) for args, named in split]


COVERED = {
    "add": options(torch.add, (2.5,), (OTHER, {"alpha": -2})),
    "sub": options(torch.sub, (OTHER,), (OTHER, {"alpha": 3})),
    "__rsub__": options(torch.rsub, (OTHER,), (1.5,)),
    "div": options(torch.div, (4.0,), (OTHER + 5, {"rounding_mode": None})),
    "pow": options(torch.pow, (2,), (2.0,), (-1,)),
    "maximum": options(torch.maximum, (OTHER,)),
    "minimum": options(torch.minimum, (OTHER,)),
    "fmax": options(torch.fmax, (OTHER,)),
    "fmin": options(torch.fmin, (OTHER,)),
    "clamp": options(torch.clamp, (-0.5,), (None, 0.5), (-0.25, 0.75), (OTHER - 1, OTHER + 1)),
    "clamp_min": options(torch.clamp_min, (0.25,)),
    "clamp_max": options(torch.clamp_max, (0.25,)),
    "hardtanh": options(functional.hardtanh, (), (-0.5, 0.25)),
    "relu6": options(lambda x: functional.relu6(3 * x), ()),
    "leaky_relu": options(functional.leaky_relu, (), (0.0,), (1.0,), (0.5,)),
    "addcmul": options(torch.addcmul, (OTHER, OTHER - 1), (OTHER, OTHER, {"value": -2})),
    "addcdiv": options(torch.addcdiv, (OTHER, OTHER + 3), (OTHER, OTHER + 3, {"value": 0.5})),
    "lerp": options(torch.lerp, (OTHER, 0.25), (OTHER, OTHER), (OTHER, 1.0)),
    "sum": options(torch.sum, (), (1,), (-1, True), ((0, 2),), ((0, 2), True)),
    "mean": options(torch.mean, (), (1,), (-1, True), ((0, 2),), ((1, 2), True)),
    "amax": options(torch.amax, (), (1,), (-1, True), ((0, 2),)),
    "amin": options(torch.amin, (), (1,), (-1, True), ((0, 2),)),
    "max": options(torch.max, (), (OTHER,)),
    "var": options(
        torch.var, (), (True,), (False,), (1,), (1, False), ((0, 2), True, True),
        *((1, {"correction": by}) for by in (0, 1, 2)), (0, {"correction": 1, "keepdim": True}),
    ),
    "std": options(torch.std, (), (False,), (1, {"correction": 2})),
    "norm": options(torch.norm, (), ("fro", 1), (2, (0, 2)), (2, 1, True)),
    "softmax": options(functional.softmax, (0,), (1,), (-1,)),
    "log_softmax": options(functional.log_softmax, (0,), (1,), (-1,)),
    "logsumexp": options(torch.logsumexp, (1,), ((0, 2),), (-1, True)),
    "layer_norm": options(
        functional.layer_norm, ((8,),), ((6, 8),), ((8,), {"weight": OTHER[0, 0]}), ((8,), None, OTHER[0, 0]),
        ((8,), None, None, 0.5),
    ),
    "rms_norm": options(functional.rms_norm, ((8,),), ((6, 8), OTHER[0]), ((8,), OTHER[0, 0], 0.5)),
    "batch_norm": options(
        functional.batch_norm, (OF_CHANNELS, PER_CHANNEL), (OF_CHANNELS, PER_CHANNEL, PER_CHANNEL, OF_CHANNELS),
        (None, None, None, OF_CHANNELS, True), (None, None, PER_CHANNEL, None, True, 0.1, 0.5),
    ),
    "group_norm": options(
        functional.group_norm, (1,), (6,), (2, PER_CHANNEL), (3, None, OF_CHANNELS), (3, None, None, 0.5)
    ),
    "max_pool1d": options(functional.max_pool1d, (2,), (3, 1), (3, 2, 1), (2, {"dilation": 1})),
    "max_pool2d": options(functional.max_pool2d, (2,), ((3, 2), (1, 2)), ((3, 2), (2, 1), (1, 0))),
    "avg_pool1d": options(functional.avg_pool1d, (2,), (3, 1), (3, 2, 1), (3, 2, 0, False, False)),
    "avg_pool2d": options(functional.avg_pool2d, (2,), ((3, 2), (1, 2)), ((3, 2), (2, 1), (1, 0))),
    "adaptive_avg_pool1d": options(functional.adaptive_avg_pool1d, (1,), (2,), (8,)),
    "adaptive_avg_pool2d": options(functional.adaptive_avg_pool2d, (2,), ((3, 4),), ((None, 2),), ((6, None),)),
    "adaptive_max_pool2d": options(functional.adaptive_max_pool2d, (2,), ((3, 4),)),
    "nll_loss": options(
        functional.nll_loss, (TARGETS,), *((TARGETS, {"reduction": how}) for how in ("none", "sum", "mean")),
        *((TARGETS, CLASS_WEIGHTS, {"reduction": how}) for how in ("none", "sum", "mean")),
        (TARGETS, CLASS_WEIGHTS, {"ignore_index": 3}), (TARGETS, {"ignore_index": 0, "reduction": "none"}),
    ),
    "l1_loss": options(functional.l1_loss, (OTHER,), *((OTHER, {"reduction": how}) for how in ("none", "sum", "mean"))),
}  # fmt: skip
LEFT_TO_THE_USER = {
    "div": [((2.0,), {"rounding_mode": "floor"})],
    "pow": [((3,), {}), ((OTHER,), {})],
    "leaky_relu": [((-0.1,), {}), ((1.5,), {})],
    "dropout": [((0.5, False), {}), ((0.0,), {})],
    "sum": [((), {"dtype": torch.float32})],
    "mean": [((), {"dtype": torch.float32})],
    "norm": [((1,), {}), ((), {"dtype": torch.float32})],
    "batch_norm": [((None, None), {}), ((OF_CHANNELS, None), {})],
    "max_pool1d": [((2,), {"dilation": 2}), ((2,), {"ceil_mode": True}), ((2,), {"return_indices": True})],
    "avg_pool1d": [((3, 2, 0, True), {}), ((3, 2, 1, False, False), {})],
    "avg_pool2d": [((2,), {"divisor_override": 3})],
    "adaptive_avg_pool1d": [((3,), {}), ((2,), {"return_indices": True})],
    "nll_loss": [((TARGETS,), {"size_average": False}), ((TARGETS,), {"reduce": True})],
    "l1_loss": [((OTHER, True), {})],
}


def line() -> Line:
    return Line(None, "activation", lambda name: Key(), lambda *args: None, nullcontext)


def decomposed(name: str, x: Tensor):
    steps = RoundedSteps(line(), line(), x)
    return lambda *args, **named: entry_of_function(name).program(steps, *args, **named)


def outcome(compute, x: Tensor, args: tuple, named: dict) -> tuple[Tensor, Tensor]:
    leaf = x.clone().requires_grad_()
    out = compute(leaf, *args, **named)
    assert isinstance(out, Tensor)
    out.backward(torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view(out.shape))
    return out.detach(), leaf.grad


@pytest.mark.parametrize("name", COVERED)
def test_every_option_gives_what_torch_does(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(SHAPE, dtype=torch.float64)
    whole = torch.randint(-2, 3, SHAPE).double() / 4  # with ties and zeros
    ties = "pool" not in name and name not in ("norm", "std", "pow", "max")
    for function, args, named in COVERED[name]:
        positive = x.abs() + 0.1 if name == "pow" else x
        for values in (positive, whole) if ties else (positive,):
            compute = decomposed(name, values)
            if name == "relu6":
                compute = lambda x, inner=compute: inner(3 * x)  # noqa: E731
            found, expected = (outcome(way, values, args, named) for way in (compute, function))
            for ours, theirs in zip(found, expected, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", LEFT_TO_THE_USER)
def test_what_no_steps_compute_is_left_to_torch(name: str) -> None:
    x = torch.randn(SHAPE, dtype=torch.float64)
    for args, named in LEFT_TO_THE_USER[name]:
        assert decomposed(name, x)(x, *args, **named) is NotImplemented


def test_masked_scores_have_no_weight_and_no_gradient() -> None:
    x = torch.randn(4, 6, dtype=torch.float64)
    x[1, 2:] = x[2, 0] = -math.inf
    for name in ("softmax", "log_softmax"):
        ours, theirs = (
            way(x, 1) for way in (decomposed(name, x), getattr(functional, name))
        )  # fmt: skip
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)
    leaf = x.clone().requires_grad_()
    decomposed("softmax", x)(leaf, 1).square().sum().backward()
    assert leaf.grad.isfinite().all()
    assert not leaf.grad[x == -math.inf].any()


def test_dropout_keeps_what_torch_keeps() -> None:
    x = torch.randn(SHAPE, dtype=torch.float64)
    for p in (0.25, 0.9):
        torch.manual_seed(3)
        expected = functional.dropout(x, p)
        torch.manual_seed(3)
        torch.testing.assert_close(decomposed("dropout", x)(x, p), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("momentum", [0.1, 0.75, None])
def test_running_averages_are_torchs(momentum: float | None) -> None:
    x = torch.randn(SHAPE, dtype=torch.float64)
    averages = [[OF_CHANNELS.clone(), PER_CHANNEL.clone()] for _ in range(2)]
    decomposed("batch_norm", x)(x, *averages[0], None, None, True, momentum)
    functional.batch_norm(x, *averages[1], None, None, True, 0.0 if momentum is None else momentum)
    for ours, theirs in zip(*averages, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
