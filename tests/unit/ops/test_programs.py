"""Every decomposition against torch, in float64 without rounding; and that the steps are those of the format."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

import presilicon as ps
from presilicon.base import FormatError
from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation import emulate_, emulate_optimizer_, emulated
from presilicon.emulation.steps.lines import Line
from presilicon.emulation.steps.primitives import RoundedSteps
from presilicon.formats import Key, UserFormat, parse, quantize
from presilicon.ops import entry_of_function


def exact_line() -> Line:
    return Line(None, "activation", lambda name: Key(), lambda *args: None, nullcontext)


T = torch.tensor
CASES = {
    "add": (torch.add, lambda x: ((x, x + 1), {"alpha": 0.5})),
    "sub": (torch.sub, lambda x: ((x, 2.0), {})),
    "__rsub__": (torch.rsub, lambda x: ((x, 2.0), {})),
    "div": (torch.div, lambda x: ((x, x[0] + 5), {})),
    "abs": (torch.abs, lambda x: ((x,), {})),
    "rsqrt": (torch.rsqrt, lambda x: ((x.exp(),), {})),
    "pow": (torch.pow, lambda x: ((x, 2), {})),
    "log": (torch.log, lambda x: ((x.exp() + 1,), {})),
    "relu": (functional.relu, lambda x: ((x,), {})),
    "leaky_relu": (functional.leaky_relu, lambda x: ((x, 0.1), {})),
    "clamp": (torch.clamp, lambda x: ((x, -0.5, 0.7), {})),
    "sigmoid": (torch.sigmoid, lambda x: ((x,), {})),
    "silu": (functional.silu, lambda x: ((x,), {})),
    "addcmul": (torch.addcmul, lambda x: ((x, x + 1, x * 2), {"value": 0.3})),
    "addcdiv": (torch.addcdiv, lambda x: ((x, x + 1, x.exp()), {"value": 0.3})),
    "lerp": (torch.lerp, lambda x: ((x, x * 3, 0.2), {})),
    "sum": (torch.sum, lambda x: ((x, (0, 2)), {})),
    "mean": (torch.mean, lambda x: ((x, -1), {"keepdim": True})),
    "var": (torch.var, lambda x: ((x, 1), {})),
    "std": (torch.std, lambda x: ((x,), {"dim": (1, 2), "correction": 0})),
    "norm": (torch.norm, lambda x: ((x,), {"dim": 1})),
    "amax": (torch.amax, lambda x: ((x, (1, 2)), {})),
    "max": (lambda *a, **k: torch.max(*a, **k)[0], lambda x: ((x, 1), {})),
    "min": (torch.min, lambda x: ((x,), {})),
    "softmax": (functional.softmax, lambda x: ((x, 1), {})),
    "log_softmax": (functional.log_softmax, lambda x: ((x, -1), {})),
    "logsumexp": (torch.logsumexp, lambda x: ((x, 1), {})),
    "layer_norm": (functional.layer_norm, lambda x: ((x, (6, 8), x[0] + 1, x[1]), {})),
    "rms_norm": (functional.rms_norm, lambda x: ((x, (8,), x[0, 0]), {"eps": 1e-3})),
    "group_norm": (functional.group_norm, lambda x: ((x, 3, x[0, :, 0] + 1, x[1, :, 1]), {})),
    "batch_norm": (functional.batch_norm, lambda x: ((x, None, None, x[0, :, 0], x[1, :, 1]), {"training": True})),
    "max_pool1d": (functional.max_pool1d, lambda x: ((x, 3, 2, 1), {})),
    "avg_pool2d": (functional.avg_pool2d, lambda x: ((x, 2, 1), {"padding": 1})),
    "adaptive_avg_pool1d": (functional.adaptive_avg_pool1d, lambda x: ((x, 4), {})),
    "adaptive_max_pool2d": (functional.adaptive_max_pool2d, lambda x: ((x, (3, 2)), {})),
    "nll_loss": (functional.nll_loss, lambda x: ((x[:, :, 0], T([0, 2, 5, 1])), {"ignore_index": 2})),
    "l1_loss": (functional.l1_loss, lambda x: ((x, x * 2 + 1), {"reduction": "sum"})),
}


@pytest.mark.parametrize("name", CASES)
def test_a_decomposition_without_rounding_equals_torch(name: str) -> None:
    function, arguments = CASES[name]
    torch.manual_seed(0)
    x = torch.randn(4, 6, 8, dtype=torch.float64)
    outcomes = []
    for compute in (
        function,
        lambda *a, **k: entry_of_function(name).program(RoundedSteps(exact_line(), exact_line(), x), *a, **k),
    ):
        leaf = x.clone().requires_grad_()
        args, kwargs = arguments(leaf)
        out = compute(*args, **kwargs)
        out = out if isinstance(out, torch.Tensor) else out[0]
        out.backward(torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape))
        outcomes.append((out.detach(), leaf.grad))
    for expected, found in zip(*outcomes, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def value(code):
    return (code & 127) * 0.25 * (-1.0 if code & 128 else 1.0)


def convert(number):
    if number != number:
        return 0
    steps = int(min(abs(number) * 4, 127.0))
    return steps | 128 if number < 0 and steps > 0 else steps


def no_add(a, b):
    return 0


def odd_add(a, b):
    """Not associative: the order of a sum shows."""
    return (3 * a + b) & 127


def first_is_larger(a, b):
    return 1


FIELDS = (("s", 1), ("m", 7))
NO_ADD = UserFormat("no_add", FIELDS, value, convert, add=no_add)
ODD = UserFormat("odd_add", FIELDS, value, convert, add=odd_add)


class Apply(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def run(function, fmt: UserFormat, x: torch.Tensor, **roles: RoleFormat) -> torch.Tensor:
    return emulate_(Apply(function), Numerics(activation=RoleFormat(fmt), **roles))(x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + x,
        lambda x: x - 1,
        lambda x: x.clone().add_(x),
        lambda x: torch.add(x, 2.0),
        lambda x: x.sum(-1),
        lambda x: 3 + x,
        lambda x: torch.mean(x),
        lambda x: functional.linear(x, torch.eye(3), torch.ones(3)),
        lambda x: functional.layer_norm(x, (3,), bias=torch.ones(3)),
    ],
)
def test_an_add_that_returns_zero_makes_every_sum_zero(function) -> None:
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 0.5, 0.25]])
    assert not run(function, NO_ADD, x).any()
    assert run(function, UserFormat("plain", FIELDS, value, convert), x).any()


def test_products_of_tensors_without_a_mul_are_converted() -> None:
    x = torch.tensor([1.3, 2.0, -9.0])
    assert torch.equal(run(lambda x: x * x, NO_ADD, x), quantize(quantize(x, NO_ADD).square(), NO_ADD))


def test_sums_are_trees_of_neighbours() -> None:
    codes = [3, 5, 7, 11, 13]
    add = odd_add
    expected = add(add(add(3, 5), add(7, 11)), 13)
    x = torch.tensor([value(code) for code in codes])
    assert run(lambda x: x.sum(), ODD, x).item() == value(expected)
    sequential = add(add(add(add(3, 5), 7), 11), 13)
    assert value(sequential) != value(expected)


def test_compare_decides_maxima() -> None:
    fmt = UserFormat("compared", FIELDS, value, convert, compare=first_is_larger)
    x = torch.tensor([[1.0, 2.0, 3.0]])
    assert run(lambda x: x.max(), fmt, x).item() == 1.0
    assert not run(functional.relu, fmt, x).any()
    assert torch.equal(run(functional.relu, NO_ADD, x), x)


def test_gradients_that_meet_inside_an_op_are_added_by_add() -> None:
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    run(torch.square, NO_ADD, x, error=RoleFormat(NO_ADD)).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]
    y = torch.tensor([2.0, 3.0], requires_grad=True)
    run(torch.square, NO_ADD, y).sum().backward()
    assert y.grad.tolist() == [4.0, 6.0]  # errors in float32


def test_the_gradient_of_a_broadcast_operand_is_a_tree() -> None:
    weight = nn.Parameter(torch.tensor([1.0]))
    model = emulate_(Apply(lambda x: x + weight), Numerics(activation=RoleFormat(ODD), error=RoleFormat(ODD)))
    error = torch.tensor([value(code) for code in (3, 5, 7)])
    model(torch.zeros(3)).backward(error)
    assert weight.grad.item() == value(odd_add(odd_add(3, 5), 7))


def test_losses_are_computed_by_the_format() -> None:
    numerics = Numerics(activation=RoleFormat(NO_ADD))
    scores, labels = torch.tensor([[3.0, 1.0], [0.5, 2.0]]), torch.tensor([0, 1])
    assert emulated(functional.mse_loss, numerics)(scores, torch.zeros(2, 2)).item() == 0.0
    assert emulated(functional.cross_entropy, numerics)(scores, labels).item() == 0.0


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam], ids=["sgd", "adam"])
def test_an_update_with_an_add_that_returns_zero_ends_at_zero(kind) -> None:
    model = nn.Linear(2, 2)
    options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optimizer = kind(model.parameters(), lr=0.5, **options)
    role = RoleFormat(NO_ADD)
    emulate_optimizer_(optimizer, Numerics(master=role, state=role), model=model)
    model(torch.ones(3, 2)).sum().backward()
    optimizer.step()
    assert not any(parameter.any() for parameter in model.parameters())


def test_momentum_is_the_users_functions_one_by_one() -> None:
    fmt = UserFormat("odd_state", FIELDS, value, convert, add=odd_add)
    weight = nn.Parameter(torch.tensor([2.0]))
    optimizer = torch.optim.SGD([weight], lr=0.5, momentum=0.5)
    emulate_optimizer_(optimizer, Numerics(master=RoleFormat(fmt), state=RoleFormat(fmt)))
    half, minus = value(convert(0.5)), value(convert(-0.5))
    w, m = convert(2.0), convert(3.0)
    for step in range(2):
        weight.grad = torch.tensor([3.0])
        optimizer.step()
        if step:
            m = odd_add(convert(value(m) * half), convert(3.0))
        w = odd_add(w, convert(value(m) * minus))
        assert weight.item() == value(w)


def test_coverage_says_which_steps_the_user_computes() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Tanh())
    role = RoleFormat(UserFormat("listed", FIELDS, value, convert, add=odd_add, compare=first_is_larger))
    listing = ps.coverage(model, Numerics(activation=role, master=role), torch.randn(3, 4))
    formats = {(op.layer, op.stage, op.operator): op.formats for op in listing.ops}
    assert formats["1", "forward", "layer_norm.add"] == "activation listed, by its `add`"
    assert formats["1", "forward", "layer_norm.sub"] == "activation listed, by its `add`"
    assert formats["1", "forward", "layer_norm.div"] == "activation listed, float32, converted"
    assert "float32 as a whole, converted" in formats["2", "forward", "aten.tanh"]
    assert formats["0", "update", "add.add"] == "master listed, by its `add`"
    assert not listing.uncovered


def test_steps_of_built_in_formats_are_rounded_one_by_one() -> None:
    bfloat = parse("bfloat16")
    x = torch.randn(5)
    numerics = Numerics(activation=RoleFormat(bfloat), vector="round-steps")
    found = emulate_(Apply(lambda x: x.sum()), numerics)(x)
    terms = list(quantize(x, bfloat))
    for pair in ((0, 1), (2, 3)):
        terms[pair[0]] = quantize(terms[pair[0]] + terms[pair[1]], bfloat)
    expected = quantize(quantize(terms[0] + terms[2], bfloat) + terms[4], bfloat)
    assert found == expected


def test_evaluation_and_copies_compute_the_same(tmp_path) -> None:
    model = emulate_(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()), Numerics(activation=RoleFormat(ODD)))
    x = torch.randn(6, 4)
    model(x)
    twin = copy.deepcopy(model).eval()
    model.eval()
    assert torch.equal(model(x), twin(x))
    with torch.no_grad():
        assert torch.equal(model(x), twin(x))


def whole(code):
    return float(code)


def only_small(number):
    return 300 if number > 14 else int(max(number, 0.0))


def add_up(a, b):
    return min(a + b, 255)


def test_an_error_leaves_no_emulation_behind() -> None:
    model = emulate_(Apply(lambda x: x + 20), Numerics(activation=RoleFormat(ONLY_SMALL)))
    with pytest.raises(FormatError, match=r"not the code 300 for convert\(20.0\)"):
        model(torch.zeros(2))
    assert torch.overrides._get_current_function_mode_stack() == []


def test_what_recorders_compute_is_not_emulated() -> None:
    """Their sum of a layer's results would exceed what the format's `convert` takes."""
    workload = replace(ps.load_workload("digits-mlp"), max_steps=1)
    assert len(ps.train(workload, Numerics(activation=RoleFormat(ONLY_SMALL)), seed=0).losses) == 1


ONLY_SMALL = UserFormat("only_small", FIELDS, whole, only_small, add=add_up)


def dithered_add(a, b, state):
    return (a + b + (state >> 5 & 1)) & 127, state + 1


DITHERED = UserFormat("dithered", FIELDS, value, convert, add=dithered_add, state="random")


def dithered_run(parts: tuple[int, ...], seed: int = 1) -> list[float]:
    """Weights after some steps, with a save, a new model and a load between the parts."""
    x, saved = torch.linspace(0, 9, 24).view(4, 6), None
    for steps in parts:
        torch.manual_seed(0)
        role = RoleFormat(DITHERED)
        model = emulate_(nn.Sequential(nn.Linear(6, 4), nn.ReLU()), Numerics(activation=role, error=role), seed=seed)
        if saved is not None:
            model.load_state_dict(saved)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        saved = copy.deepcopy(model.state_dict())
    return [number for parameter in model.parameters() for number in parameter.flatten().tolist()]


def test_a_resumed_run_draws_the_states_of_one_that_went_on() -> None:
    assert dithered_run((4,)) == dithered_run((2, 2))
    assert dithered_run((4,)) != dithered_run((4,), seed=2)
