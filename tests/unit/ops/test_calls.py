"""Operators are classified once, for capture, coverage and characterization."""

import pytest
import torch

from presilicon.ops import describe_operator, ops_of_call

aten = torch.ops.aten


@pytest.mark.parametrize(
    "function",
    [aten.add.Tensor, aten.mm.default, aten.native_dropout.default, aten.scatter_add.default, aten.scatter_reduce.two],
)
def test_arithmetic_computes(function) -> None:
    assert describe_operator(function).computes


@pytest.mark.parametrize(
    "function",
    [
        aten.view.default,
        aten._unsafe_view.default,
        aten.clone.default,
        aten.where.self,
        aten.bernoulli_.float,
        aten.embedding.default,
        aten.fill_.Scalar,
    ],
)
def test_moves_selections_and_random_numbers_compute_nothing(function) -> None:
    assert not describe_operator(function).computes


def test_the_gradients_of_a_convolution_are_ops_of_their_own() -> None:
    x, weight = torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3)
    error = torch.ones(2, 4, 6, 6)
    args = (error, x, weight, [4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True])
    results = aten.convolution_backward.default(*args)
    parts = ops_of_call(aten.convolution_backward.default, args, results, [error, x, weight], results)
    assert [(part.label, part.kind) for part in parts] == [
        ("convolution_backward", "convolution"),
        ("convolution_backward", "convolution"),
        ("convolution_backward.bias", "reduction"),
    ]
    assert parts[0].flops == parts[1].flops == 2 * 72 * 27 * 4
    assert parts[2].flops == error.numel()
