"""Functions that capture takes as the ops of an accelerator."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from presilicon.records import Op, StepGraph
from presilicon.workloads import capture


def steps_of(graph: StepGraph, phase: str) -> list[Op]:
    """The ops of a layer in the forward or in the backward pass."""
    return [op for op in graph.ops if op.layer == "1" and (op.phase == "forward") == (phase == "forward")]


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(16,), (4, 16)])
def test_an_rms_norm_is_one_op_each_way(shape, affine) -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.RMSNorm(shape, elementwise_affine=affine), nn.Linear(16, 16))
    graph = capture(model, torch.empty(8, 4, 16), optimizer=lambda given: torch.optim.SGD(given, lr=0.1))
    rows = 8 * 4 * 16 // torch.Size(shape).numel()
    [forward] = steps_of(graph, "forward")
    backward = next(op for op in steps_of(graph, "backward") if op.phase != "update")
    assert (forward.kind, backward.kind) == ("normalization", "normalization")
    assert [tensor.elements for tensor in forward.outputs] == [8 * 4 * 16, rows]
    assert backward.differentiates == forward.name
    assert backward.phase == "input_grad"
    assert {tensor.role for tensor in backward.outputs} == ({"error", "gradient"} if affine else {"error"})
    assert forward.flops == 4 * 8 * 4 * 16
    assert backward.flops == 6 * 8 * 4 * 16


class Penalized(nn.Module):
    """A normalization with the square of its slope as the result."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        x = x.requires_grad_()
        [slope] = torch.autograd.grad(self.norm(x).square().sum(), x, create_graph=True)
        return slope.square().sum()


def test_the_gradient_of_an_rms_norm_can_be_differentiated() -> None:
    graph = capture(Penalized(), torch.empty(4, 16))
    assert any(op.kind == "optimizer" for op in graph.ops)


class Mixed(nn.Module):
    """A normalization with weights of another type, which torch promotes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x.bfloat16(), (16,), self.weight)


@pytest.mark.filterwarnings("ignore:Mismatch dtype")
def test_an_rms_norm_with_weights_of_another_type_is_left_to_torch() -> None:
    assert not any("fused_rms_norm" in op.operator for op in capture(Mixed(), torch.empty(4, 16)).ops)


class Pair(nn.Module):
    """A bilinear form of a projection and of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.form = nn.Linear(7, 5), nn.Bilinear(7, 5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.form(x, self.project(x))


def test_a_bilinear_form_is_two_products_with_the_roles_of_their_operands() -> None:
    graph = capture(Pair(), torch.empty(2, 3, 7))
    products = [op for op in graph.ops if op.layer == "form" and op.gemm]
    found = [(op.phase, op.gemm.macs, *(tensor.role for tensor in op.inputs)) for op in products]
    batch, first, second, results = 6, 7, 5, 3
    macs, rest = batch * first * second * results, batch * first * results
    assert found == [
        ("forward", macs, "activation", "weight"),
        ("forward", rest, "activation", "activation"),
        ("input_grad", rest, "error", "activation"),
        ("weight_grad", macs, "activation", "error"),
        ("input_grad", macs, "error", "weight"),
    ]


class Outer(nn.Module):
    """All products of two vectors, by torch's own function or by broadcasting."""

    def __init__(self, by_function: bool) -> None:
        super().__init__()
        self.by_function, self.scale = by_function, nn.Parameter(torch.ones(5))

    def forward(self, x: Tensor) -> Tensor:
        return torch.outer(x, self.scale) if self.by_function else x.unsqueeze(1) * self.scale


def test_an_outer_product_adds_nothing_up_and_is_a_broadcast_multiplication() -> None:
    figures = [
        [(op.operator, op.kind, op.phase, op.flops, op.gemm) for op in capture(Outer(way), torch.empty(6)).ops]
        for way in (True, False)
    ]
    assert figures[0] == figures[1]
    assert all(gemm is None for *_, gemm in figures[0])
