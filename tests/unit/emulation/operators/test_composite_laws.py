"""A decomposition around torch's own inner function computes what torch does, with every option and argument order."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from presilicon.emulation.operators.replacement import _around
from presilicon.ops import all_entries, entry_of_function, softmax_axis

INNER = {"softmax.exp": torch.exp, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "rsqrt": torch.rsqrt}
SHAPE = (4, 6, 8)
SCALE, SHIFT = torch.linspace(0.5, 2.0, 6).double(), torch.linspace(-1.0, 1.0, 6).double()
LAST, PLANE = torch.linspace(-1, 2, 8).double(), torch.linspace(-2, 1, 48).double().view(6, 8)
NORM = torch.nn.functional.batch_norm
FLOAT32 = torch.float32

CALLS = {
    "softmax": [(functional.softmax, (dim,), {}) for dim in (0, 1, -1)]
    + [(functional.softmax, (1,), {"dtype": FLOAT32}), (torch.softmax, (1, FLOAT32), {}), (torch.softmax, (2,), {})],
    "softmin": [(functional.softmin, (1,), {})],
    "log_softmax": [(functional.log_softmax, (dim,), {}) for dim in (0, 1, -1)]
    + [(functional.log_softmax, (1,), {"dtype": FLOAT32}), (torch.log_softmax, (1, FLOAT32), {})],
    "gelu": [(functional.gelu, (), {}), (functional.gelu, (), {"approximate": "tanh"})],
    "mish": [(functional.mish, (), {})],
    "tanhshrink": [(functional.tanhshrink, (), {})],
    "silu": [(functional.silu, (), {})],
    "glu": [(functional.glu, (dim,), {}) for dim in (0, 1, -1)] + [(functional.glu, (), {})],
    "layer_norm": [
        (functional.layer_norm, args, {})
        for args in (((8,),), ((6, 8),), ((8,), LAST), ((6, 8), PLANE, PLANE + 1), ((8,), None, LAST))
    ] + [
        (functional.layer_norm, ((8,),), {"eps": 0.5}),
    ],
    "rms_norm": [(functional.rms_norm, args, {}) for args in (((8,),), ((6, 8), PLANE), ((8,), LAST, 0.5))],
    "group_norm": [
        (functional.group_norm, args, {}) for args in ((1,), (6, SCALE), (2, SCALE, SHIFT), (3, None, SHIFT, 0.5))
    ],
    "batch_norm": [
        (NORM, (SHIFT, SCALE), {}), (NORM, (SHIFT, SCALE, SCALE + 1, SHIFT), {}),
        (NORM, (None, None), {"training": True, "eps": 0.5}), (NORM, (None, None, SCALE, None, True), {}),
        (NORM, (None, None, None, SHIFT, True, 0.1, 0.5), {}),
        (torch.batch_norm, (SCALE + 1, SHIFT, SHIFT - 1, SCALE, False, 0.1, 0.25, False), {}),
        (torch.batch_norm, (None, SHIFT, None, None, True, 0.1, 0.25, False), {}),
    ],
    "instance_norm": [
        (functional.instance_norm, (), {}),
        (functional.instance_norm, (), {"weight": SCALE, "bias": SHIFT, "eps": 0.5}),
        (functional.instance_norm, (SHIFT, SCALE, None, None, False), {}),
        (torch.instance_norm, (SCALE, SHIFT, None, None, True, 0.1, 0.25, False), {}),
    ],
}  # fmt: skip


def composed(name: str, func):
    return around(name, func, INNER[entry_of_function(name).inner])


def around(name: str, func, inner):
    entry = entry_of_function(name)
    return lambda *args, **named: _around(entry, {entry.inner: inner}, func, *args, **named)


def outcome(compute, x: Tensor, args: tuple, named: dict) -> tuple[Tensor, Tensor]:
    leaf = x.clone().requires_grad_()
    out = compute(leaf, *args, **named)
    out.backward(torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view(out.shape))
    return out.detach(), leaf.grad


def test_every_decomposition_is_tried() -> None:
    assert CALLS.keys() == {entry.name for entry in all_entries() if entry.inner}


@pytest.mark.parametrize("name", CALLS)
def test_the_parts_compute_the_whole(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(SHAPE, dtype=torch.float64)
    for func, args, named in CALLS[name]:
        found, expected = (outcome(way, x, args, named) for way in (composed(name, func), func))
        exact = expected[0].dtype == torch.float64
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.dtype == theirs.dtype
            torch.testing.assert_close(ours, theirs, rtol=1e-9 if exact else 1e-5, atol=1e-11 if exact else 1e-6)


NORMS = {
    torch.layer_norm: {"normalized_shape": (8,), "weight": LAST, "bias": LAST + 1, "eps": 0.25, "cudnn_enable": False},
    torch.rms_norm: {"normalized_shape": (8,), "weight": LAST, "eps": 0.25},
    torch.group_norm: {"num_groups": 2, "weight": SCALE, "bias": SHIFT, "eps": 0.25, "cudnn_enabled": False},
    torch.batch_norm: {
        "weight": SCALE, "bias": SHIFT, "running_mean": None, "running_var": None, "training": True, "momentum": 0.1,
        "eps": 0.25, "cudnn_enabled": False,
    },
    torch.instance_norm: {
        "weight": SCALE, "bias": SHIFT, "running_mean": None, "running_var": None, "use_input_stats": True,
        "momentum": 0.1, "eps": 0.25, "cudnn_enabled": False,
    },
}  # fmt: skip


@pytest.mark.parametrize("func", NORMS, ids=lambda func: func.__name__)
def test_any_number_of_arguments_may_be_given_by_name(func) -> None:
    x, arguments = torch.randn(SHAPE, dtype=torch.float64), NORMS[func]
    ours = composed(func.__name__, func)
    for count in range(len(arguments) + 1):
        args, named = tuple(arguments.values())[:count], dict(list(arguments.items())[count:])
        torch.testing.assert_close(ours(x, *args, **named), func(x, *args, **named), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("momentum", [0.1, 0.75])
@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
def test_running_averages_are_torchs(name: str, momentum: float) -> None:
    x, func = torch.randn(SHAPE, dtype=torch.float64), getattr(functional, name)
    averages = [[SHIFT.clone(), SCALE.clone()] for _ in range(3)]
    switch = {"training" if name == "batch_norm" else "use_input_stats": True}
    composed(name, func)(x, *averages[0], None, None, momentum=momentum, **switch)
    func(x, *averages[1], None, None, momentum=momentum, **switch)
    for ours, theirs, before in zip(*averages, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
        assert not torch.equal(ours, before)


@pytest.mark.parametrize("name", ["silu", "mish"])
def test_in_place_variants_write_to_their_input(name: str) -> None:
    x, func = torch.randn(SHAPE), getattr(functional, name)
    for compute in (composed(name, func), func):
        out = x.clone()
        assert compute(out, inplace=True) is out
        torch.testing.assert_close(out, func(x))
    kept = x.clone()
    composed(name, func)(x)
    assert torch.equal(x, kept)


def test_masked_scores_have_no_weight_whatever_the_operator_returns() -> None:
    x = torch.randn(4, 6)
    x[1, 2:] = x[2, 0] = -math.inf
    out = around("softmax", functional.softmax, torch.ones_like)(x, 1)
    allowed = (x > -math.inf).float()
    torch.testing.assert_close(out, allowed / allowed.sum(1, keepdim=True))


@pytest.mark.parametrize("func", [functional.softmax, functional.log_softmax], ids=lambda func: func.__name__)
def test_scores_that_overflow_as_they_are_shifted_have_no_weight_either(func) -> None:
    x = torch.tensor([[20.0, 10.0, 0.0, 0.0]], dtype=torch.float16)
    x[:, 2:] = torch.finfo(torch.float16).min
    ours = around(func.__name__, func, lambda shifted: shifted.exp().clamp(min=0.01))(x, 1)
    theirs = around(func.__name__, func, lambda shifted: shifted.exp().clamp(min=0.01))(x[:, :2], 1)
    assert torch.equal(ours[:, :2], theirs)


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
@pytest.mark.parametrize("dims", range(5))
def test_the_axis_that_is_not_given_is_torchs(dims: int) -> None:
    x = torch.randn((2, 3, 4, 5)[:dims])
    torch.testing.assert_close(functional.softmax(x), functional.softmax(x, softmax_axis(x, None)))
    assert softmax_axis(x, -1) == -1
