"""Tensors in the language: loops, reductions, whole numbers, tables and shapes, by the reference."""

import math
import statistics
from statistics import mean

import pytest
import torch

from presilicon.base import ConfigError
from presilicon.ops import operator
from presilicon.ops.custom import calls

TABLE = (1.0, 10.0, 100.0)
X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]], dtype=torch.float64)


@pytest.fixture(autouse=True)
def _in_torch(monkeypatch) -> None:
    monkeypatch.setattr(calls, "has_numba", lambda: False)


def operations(op) -> list[str]:
    return [step.operation for step in op.program.instructions]


def test_loops_that_add_up_are_reductions() -> None:
    @operator
    def positive(x: "r n") -> "r":
        total = 0
        top = x[r, 0]
        count = 0
        for j in range(N):
            if x[r, j] > 0:
                total += x[r, j]
                count += 1
            top = max(top, x[r, j])
        return total * 100 + count * 10 + top

    assert "sum" in operations(positive)
    assert positive(X).tolist() == [400 + 20 + 3, 450 + 20 + 4]


def test_an_extreme_by_comparison_is_a_reduction() -> None:
    @operator
    def lowest(x: "r n") -> "r":
        low = x[r, 0]
        for j in range(N):
            if x[r, j] < low:
                low = x[r, j]
        return low

    assert "least" in operations(lowest)
    assert lowest(X).tolist() == [-2.0, -1.0]


def test_other_loops_are_written_out_for_each_size() -> None:
    @operator
    def horner(x: "r n", at=2.0) -> "r":
        value = 0.0
        for j in range(N):
            value = value * at + x[r, j]
        return value

    assert horner(X).tolist() == [3.0, 9.0]
    assert horner(X[:, :2], at=3).tolist() == [1.0, 5.5]
    x = X.clone().requires_grad_()
    horner(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[4.0, 2.0, 1.0]] * 2


def test_ranges_have_starts_and_steps() -> None:
    @operator
    def odd(x: "r n") -> "r":
        return sum(x[r, j] for j in range(1, N, 2)) + 10 * sum(j for j in range(1, N, 2))

    assert odd(X).tolist() == [8.0, 14.0]


def test_products_means_and_filters() -> None:
    @operator
    def figures(x: "r n") -> "r":
        return math.prod(x[r, j] for j in range(N)) + mean(x[r, j] for j in range(N) if x[r, j] > 0)

    assert figures(X).tolist() == [-6.0 + 2.0, -2.0 + 2.25]


def test_tables_whole_numbers_and_tuples() -> None:
    @operator
    def mixed(x: "r n", weights=(1.0, 2.0)) -> "n r":
        return TABLE[(n + r) % 3] + weights[1] * (n // 2) + int(x[r, n]) * weights[0]

    assert mixed(X).tolist() == [[2.0, 10.0], [8.0, 104.0], [105.0, 2.0]]
    assert mixed(X, weights=(0, 0)).tolist() == [[1.0, 10.0], [10.0, 100.0], [100.0, 1.0]]


def test_leading_axes_are_broadcast() -> None:
    @operator
    def outer(a: "... n", b: "... m") -> "... n m":
        return a[..., n] * b[..., m]

    a, b = torch.randn(3, 1, 2), torch.randn(4, 5)
    torch.testing.assert_close(outer(a, b), a[..., :, None] * b[..., None, :])
    assert outer(a.bfloat16(), b.bfloat16()).dtype == torch.bfloat16


def test_gradients_of_shared_and_repeated_reads_add_up() -> None:
    @operator
    def diagonal(x: "n n") -> "n":
        return x[n, n] * x[0, n]

    x = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    (got,) = torch.autograd.grad(diagonal(x).sum(), x)
    (wanted,) = torch.autograd.grad((x.diagonal() * x[0]).sum(), x)
    torch.testing.assert_close(got, wanted)


def test_several_operands_of_numbers_are_a_number() -> None:
    @operator
    def blend(a, b, share=0.5):
        return a * share + b * (1 - share)

    assert blend(1.0, 3.0) == 2.0
    assert blend(1.0, b=3.0, share=0.25) == 2.5
    assert blend(torch.ones(2), 3.0).tolist() == [2.0, 2.0]


def test_empty_tensors_have_neutral_sums() -> None:
    @operator
    def total(x: "r n") -> "r":
        return sum(x[r, j] for j in range(N))

    assert total(torch.ones(2, 0)).tolist() == [0.0, 0.0]
    assert total(torch.ones(0, 2)).shape == (0,)


def test_a_second_derivative_is_refused() -> None:
    @operator
    def cube(x):
        return x * x * x

    w = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    x = torch.tensor([1.5], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(cube(w * x).sum(), x, create_graph=True)
    assert gradient.item() == pytest.approx(3 * 9 * 2)
    with pytest.raises(ConfigError, match="cube has no second derivative"):
        torch.autograd.grad(gradient.pow(2).sum(), w)


def test_tensors_on_different_devices_are_refused() -> None:
    @operator
    def product(a, b):
        return a * b

    with pytest.raises(ConfigError, match="must be on one device, not on cpu, meta"):
        product(torch.ones(2), torch.ones(2, device="meta"))


def test_means_are_written_with_or_without_their_module() -> None:
    @operator
    def centre(x: "r n") -> "r":
        return statistics.mean(x[r, j] for j in range(N))

    x = torch.randn(3, 5, dtype=torch.float64)
    torch.testing.assert_close(centre(x), x.mean(-1))


def test_errors_about_constants_name_the_operator() -> None:
    @operator
    def scaled(x, by=2):
        return x * by

    with pytest.raises(ConfigError, match="scaled, by: a constant must be a number, not 'much'"):
        scaled(torch.ones(2), by="much")
