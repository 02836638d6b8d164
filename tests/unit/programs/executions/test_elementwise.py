"""The executions of a program agree with the reference, bit for bit; exp and log to the last places."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from presilicon.base import ConfigError
from presilicon.formats import parse
from presilicon.ops import apply_operator, operator, piecewise_linear, table
from presilicon.ops.custom.rounding import step_rounding
from presilicon.programs.executions.numba_execution import run_numba
from presilicon.programs.executions.torch_execution import run_torch
from presilicon.programs.reference import evaluate


@operator("tanh")
def pieces(x):
    size = abs(x)
    match size:
        case 1 | 1.5:
            y = 0.8
        case _ if size < 2:
            y = x * (1 - size / 4) if x != 0.5 else 0.4
        case _:
            return 1.0 if x > 0 else -1.0
    return max(min(y, 0.9, x + 3), -size)


@operator("rsqrt")
def roots(x):
    y = math.floor(x * 4) / 3
    return (math.sqrt(x) if x > 0 else 1 / x) - y**3 + abs(-x) / (x - 1) if x != 2 else y


@operator("exp")
def exponentials(x):
    return math.exp(-abs(x)) + math.log(x + 4)


@operator("tanh")
def nothing_of_it(x):
    return 0.5


@operator("tanh")
def itself(x):
    return x


EXACT = [
    pieces,
    roots,
    nothing_of_it,
    itself,
    table("tanh", -4, 4, 33),
    table("tanh", -3, 4, 20, "linear"),
    piecewise_linear("tanh", -4, 4, 10),
    piecewise_linear("gelu", -4, 4, 6, "minimax", outside="extend"),
]
EDGES = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    5e-324,
    1e-310,
    -1e-40,
    1e-44,
    1e308,
    -1e38,
    1.0,
    1.5,
    2.0,
    -2.0,
    4.0,
]
EDGES += [-4.0, -3.0, 0.5, -0.25, 3.999999, 1 / 3]
FORMATS = {torch.float64: None, torch.float32: step_rounding(parse("float32"))}


def flat(run, program, x: torch.Tensor, *fmt) -> list[torch.Tensor]:
    """An execution of a function of one number, on every element."""
    return [out.view(x.shape) for out in run(program, {"x": x.reshape(-1)}, {"_": x.numel()}, *fmt)]


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    integer = torch.int64 if a.dtype == torch.float64 else torch.int32
    either = a.isnan() & b.isnan()
    return bool(((a.view(integer) == b.view(integer)) | either).all())


def check(chosen, values: list[float], dtype: torch.dtype) -> None:
    x = torch.tensor(values, dtype=dtype)
    wanted = [evaluate(chosen.both, float(value), FORMATS[dtype]) for value in x]
    for run in (run_numba, run_torch):
        for place, got in enumerate(flat(run, chosen.both, x)):
            assert same_bits(got, torch.tensor([row[place] for row in wanted], dtype=dtype)), (run, place)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("chosen", EXACT, ids=lambda each: each.name)
def test_edges_agree(chosen, dtype: torch.dtype) -> None:
    check(chosen, EDGES, dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("chosen", EXACT, ids=lambda each: each.name)
@given(values=st.lists(st.floats() | st.floats(-5, 5) | st.integers(-20, 20).map(lambda n: n / 4), min_size=20))
@settings(max_examples=20, deadline=None)
def test_numbers_agree(chosen, dtype: torch.dtype, values: list[float]) -> None:
    check(chosen, values, dtype)


def test_the_comparison_can_fail() -> None:
    with pytest.raises(AssertionError):
        assert same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))


def test_exp_and_log_agree_to_the_last_places() -> None:
    x = torch.linspace(-3.9, 20, 1001, dtype=torch.float64)
    wanted = torch.tensor([exponentials(value) for value in x.tolist()], dtype=torch.float64)
    for run in (run_numba, run_torch):
        torch.testing.assert_close(flat(run, exponentials.program, x)[0], wanted, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("fmt", ["float16", "e4m3", "fixed(integer=4, fraction=8)", "posit(bits=8, es=1)"])
def test_formats_agree_with_the_reference(fmt: str) -> None:
    x = torch.tensor([each for each in EDGES if math.isfinite(each)] + torch.randn(200).tolist())
    for chosen in (pieces, piecewise_linear("tanh", -4, 4, 8)):
        wanted = [evaluate(chosen.both, float(value), step_rounding(parse(fmt))) for value in x]
        for place, got in enumerate(flat(run_torch, chosen.both, x, step_rounding(parse(fmt)))):
            assert same_bits(got, torch.tensor([row[place] for row in wanted]))


@pytest.mark.parametrize(
    "chosen", [pieces, exponentials, table("tanh", -3, 4, 20, "linear"), EXACT[-1]], ids=lambda each: each.name
)
def test_gradcheck_away_from_the_breakpoints(chosen) -> None:
    breaks = torch.tensor(chosen.breakpoints(-3.5, 8.0), dtype=torch.float64)
    x = torch.linspace(-3.4, 7.9, 157, dtype=torch.float64)
    x = x[(x[:, None] - breaks).abs().amin(1) > 1e-3] if len(breaks) else x
    assert len(x) > 100
    assert torch.autograd.gradcheck(lambda value: apply_operator(chosen, value), x.requires_grad_())


def test_gradients_of_branches_that_are_not_taken_do_no_harm() -> None:
    @operator("sqrt")
    def safe(x):
        return math.sqrt(x) if x > 0 else 0.0

    x = torch.tensor([-1.0, 0.0, 4.0], requires_grad=True)
    apply_operator(safe, x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0, 0.25]


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "gelu", "exp", "log", "rsqrt", "softplus", "silu"])
def test_the_exact_backward_is_torch_s(name: str) -> None:
    from presilicon.ops.custom.calls import exact_tensor

    made = table(name, 0.5, 4, 9, backward="exact")
    x = torch.linspace(0.6, 3.5, 50, dtype=torch.float64, requires_grad=True)
    (got,) = torch.autograd.grad(apply_operator(made, x).sum(), x)
    (wanted,) = torch.autograd.grad(exact_tensor(name)(x).sum(), x)
    assert torch.equal(got, wanted)


def test_every_function_has_its_tensor_twin() -> None:
    from presilicon.ops import exact_functions
    from presilicon.ops.custom.calls import exact_tensor

    for name, scalar in exact_functions().items():
        x = torch.linspace(0.3, 3, 20, dtype=torch.float64)
        torch.testing.assert_close(exact_tensor(name)(x), torch.tensor([scalar(v) for v in x.tolist()]).double())


def test_straight_through() -> None:
    @operator("tanh", backward="straight-through")
    def sign(x):
        return 1.0 if x > 0 else -1.0

    x = torch.randn(5, requires_grad=True)
    apply_operator(sign, x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0] * 5


def test_shapes_strides_and_types() -> None:
    x = torch.randn(3, 4, 5).transpose(0, 2)
    assert apply_operator(pieces, x).shape == x.shape
    assert torch.equal(apply_operator(pieces, x), apply_operator(pieces, x.contiguous()))
    assert apply_operator(pieces, torch.empty(0, 3)).shape == (0, 3)
    assert apply_operator(pieces, torch.tensor(0.3)).shape == ()
    assert apply_operator(pieces, torch.randn(4).bfloat16()).dtype == torch.bfloat16
    assert apply_operator(nothing_of_it, x).unique().tolist() == [0.5]
    assert apply_operator(itself, x).data_ptr() != x.data_ptr()
    assert apply_operator(pieces, torch.empty(3, device="meta")).shape == (3,)
    with pytest.raises(ConfigError, match="int64"):
        apply_operator(pieces, torch.arange(3))
