"""Operators as ops of torch: compiled, checkpointed, with their own gradients; and what is refused."""

import math
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import operator_library as library
from presilicon.base import ConfigError
from presilicon.ops import SlowOperatorWarning, load_operator, operator
from presilicon.ops.custom import calls
from presilicon.programs import LanguageError
from presilicon.programs.executions import numba_execution, numba_functions

PRODUCTS = [[a * b - (a * b) % 2 for b in range(16)] for a in range(16)]


@pytest.fixture
def in_torch(monkeypatch) -> None:
    monkeypatch.setattr(calls, "has_numba", lambda: False)


@operator
def approximate(a, b):
    """A multiplier of numbers from 0 to 15 by a truth table."""
    return PRODUCTS[a][b]


def toward_a(error, a, b):
    return error * b


def toward_b(error, a, b):
    return error * a


multiplier = operator(custom_backward={"a": toward_a, "b": toward_b})(approximate.function)


@operator
def contraction(x: "m k", w: "k n") -> "m n":
    return sum(approximate(x[m, i], w[i, n]) for i in range(K))


@pytest.mark.usefixtures("in_torch")
def test_an_approximate_multiplier_by_truth_table() -> None:
    x, w = torch.randint(16, (4, 5)).float(), torch.randint(16, (5, 3)).float()
    table = torch.tensor(PRODUCTS, dtype=torch.float32)
    wanted = table[x.long()[:, :, None], w.long()[None]].sum(1)
    assert torch.equal(contraction(x, w), wanted)
    assert multiplier(3, 5) == 14
    x.requires_grad_()
    out = multiplier(x, x.detach() + 0)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, x.detach())


@pytest.mark.usefixtures("in_torch")
def test_an_operator_without_a_derivative_is_refused_where_one_is_needed() -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(ConfigError, match=r"test_calls\.py, line \d+: approximate depends on a only through tables"):
        approximate(x, 2.0)

    @operator(backward="none")
    def half(x):
        return x / 2

    with pytest.raises(ConfigError, match=r"half has no derivative, but the gradient of x is needed"):
        half(x)
    assert half(x.detach()).tolist() == [0.5] * 3


@pytest.mark.usefixtures("in_torch")
def test_shapes_that_do_not_meet_name_the_axis_and_both_sizes() -> None:
    with pytest.raises(ConfigError, match=r"library\.py, line \d+: matmul: axis k is 3 in a, but 4 in b"):
        library.matmul(torch.ones(2, 3), torch.ones(4, 2))
    with pytest.raises(ConfigError, match=r'contraction: x must have the axes "m k", not the shape \(2, 3, 1\)'):
        contraction(torch.ones(2, 3, 1), torch.ones(3, 2))
    with pytest.raises(ConfigError, match=r"the leading axes \(2,\) and \(3,\) do not broadcast"):
        library.add(torch.ones(2), torch.ones(3))
    with pytest.raises(ConfigError, match=r"approximate: b must be a tensor or a number, not 'two'"):
        approximate(torch.ones(2), "two")
    with pytest.raises(ConfigError, match=r"takes \(a, b\), but was given no b"):
        library.add(torch.ones(2))
    with pytest.raises(ConfigError, match=r"takes \(a, b\), but was given 3 arguments"):
        library.add(torch.ones(2), torch.ones(2), torch.ones(2))
    with pytest.raises(ConfigError, match=r"takes \(x, f, stride=1.*was given steps="):
        library.conv2d(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 1, 1), steps=2)
    with pytest.raises(ConfigError, match=r"a floating-point tensor, not torch\.int64"):
        library.relu(torch.arange(3))


@operator
def shifted(x: "n") -> "n":
    return x[n + 1]


@pytest.mark.parametrize("has_numba", [True, False])
def test_an_index_outside_is_refused_with_its_line(monkeypatch, has_numba: bool) -> None:
    monkeypatch.setattr(calls, "has_numba", lambda: has_numba)
    line = shifted.source.tree.body[0].lineno
    with pytest.raises(
        ConfigError, match=rf"test_calls\.py, line {line}: an index of x lies outside of its shape \(4,\)"
    ):
        shifted(torch.ones(4))
    with pytest.raises(ConfigError, match=r"line \d+: an index of x lies outside of its shape \(2, 3\)"):
        library.cross_entropy(torch.ones(2, 3), torch.tensor([0, 3]))


BAD = {
    'there is no "k" here': 'x: "r n") -> "r":\n    return x[r, k]',
    "x is a tensor, no number": 'x: "r n") -> "r":\n    return x + 1',
    "x has 2 axes, but 1 indices": 'x: "r n") -> "r":\n    return x[r]',
    'the result has an axis "m" that no operand has': 'x: "r n") -> "m":\n    return 1.0',
    "does not name the axes of its result": 'x: "r n"):\n    return 1.0',
    'the axis "R"': 'x: "R n") -> "n":\n    return 1.0',
    "an axis twice in the result": 'x: "r n") -> "r r":\n    return 1.0',
    '"n" is both an argument and an axis': 'x: "r n", n=1) -> "r":\n    return 1.0',
    "a range whose bound is known only at run time": 'x: "r n") -> "r":\n    return sum(x[r, j] for j in range(r))',
    "x without its leading axes": 'x: "... n") -> "... n":\n    return x[n]',
    "inside of a loop whose number": 'x: "r n") -> "r":\n    while x[r, 0] > 0:\n        pass\n    return 0.0',
}


@pytest.mark.parametrize(("what", "body"), BAD.items(), ids=BAD)
def test_what_is_wrong_with_axes_is_named_with_its_place(tmp_path: Path, what: str, body: str) -> None:
    path = tmp_path / "my_ops.py"
    path.write_text(f"from presilicon.ops import operator\n\n\n@operator\ndef f({body}\n")
    with pytest.raises(LanguageError) as caught:
        load_operator(f"{path}:f")
    assert what in str(caught.value)
    assert str(caught.value).startswith("my_ops.py, line ")


def test_what_cannot_be_compiled_runs_in_torch_and_says_which_line(monkeypatch) -> None:
    def refuse(*arguments: object) -> None:
        raise NotImplementedError("no such thing")

    @operator
    def tripled(x):
        return 3 * x

    monkeypatch.setattr(numba_execution, "compiled_stages", refuse)
    with pytest.warns(
        SlowOperatorWarning, match=r"test_calls\.py, line \d+: tripled cannot be compiled by numba \(Not"
    ):
        assert tripled(torch.ones(2)).tolist() == [3.0, 3.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tripled(torch.ones(2)).tolist() == [3.0, 3.0]


@pytest.mark.usefixtures("in_torch")
def test_compiled_and_checkpointed_models_compute_the_same() -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 6)

        def forward(self, x):
            return library.layer_norm(library.softmax(self.linear(x)), self.linear.bias, self.linear.bias, eps=1e-3)

    model, x = Rows(), torch.randn(5, 4)
    wanted = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for out in (compiled(x), checkpoint(model, x, use_reentrant=False)):
        for got, expected in zip(
            torch.autograd.grad(out.square().sum(), list(model.parameters())), wanted, strict=True
        ):
            torch.testing.assert_close(got, expected)


@pytest.mark.usefixtures("in_torch")
def test_the_op_meets_torch_s_own_checks() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    key = calls.key_of(library.softmax, ())
    torch.library.opcheck(torch.ops.presilicon.operator.default, ([x], key))


@pytest.mark.usefixtures("in_torch")
def test_formats_round_every_partial_sum() -> None:
    @operator(format="float16")
    def total(x: "r n") -> "r":
        return sum(x[r, j] for j in range(N))

    x = torch.full((2, 4096), 1.0)
    assert total(x).tolist() == [2048.0, 2048.0]  # 2048 + 1 is 2048 in float16


@pytest.mark.parametrize(
    ("ours", "function", "units"),
    [("exp32", math.exp, 2), ("exp232", lambda x: 2.0**x, 2), ("tanh32", math.tanh, 2), ("erf32", math.erf, 6)],
)
def test_polynomials_are_within_their_last_places(ours: str, function, units: int) -> None:
    x = torch.cat([torch.linspace(-20, 20, 2001), torch.linspace(-1, 1, 501), torch.linspace(-80, 80, 401)])
    for value in x.tolist():
        got, wanted = float(getattr(numba_functions, ours)(x.new_tensor(value).numpy()[()])), function(value)
        step = 2.0 ** (math.frexp(wanted)[1] - 24) if wanted else 0.0
        assert abs(got - wanted) <= units * step, value
