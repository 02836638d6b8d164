"""Weights that a model computes from its parameters are weights, to the emulator and to the simulator."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from presilicon.designs import Numerics
from presilicon.emulation import emulate_
from presilicon.formats import parse, quantize
from presilicon.workloads import capture

NUMERICS = Numerics(
    weight="float(exponent=8, mantissa=1)",
    activation="float(exponent=8, mantissa=9)",
    error="float(exponent=8, mantissa=12)",
    gradient="float(exponent=8, mantissa=4)",
)


class Derived(nn.Module):
    """Multiplies the input by a tensor computed from parameters, and keeps that tensor's gradient."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.w = nn.Parameter(torch.randn(6, 4))
        self.experts = nn.Parameter(torch.randn(3, 6, 4))
        self.a, self.b = nn.Parameter(torch.randn(6, 2)), nn.Parameter(torch.randn(2, 4))
        self.register_buffer("mask", torch.tensor([1.0, 0.0]).repeat(6, 2))
        self.scale = torch.full((4,), 0.75)
        self.kind = kind

    def derive(self) -> torch.Tensor:
        match self.kind:
            case "concatenated":
                return torch.cat([self.w, self.experts[0]], 1)
            case "masked":
                return self.w * (self.mask * self.scale)
            case "created mask":
                return self.w * torch.tril(torch.ones(6, 4))
            case "normalized":
                return self.w / self.w.norm(dim=0, keepdim=True)
            case "gathered":
                return self.experts[torch.tensor([2, 0, 2])]
            case "stacked":
                return torch.stack([self.w, 2 * self.w, self.experts[1]])
            case "in place":
                return self.w.clone().mul_(0.3)
            case _:
                return self.w.t().contiguous().t()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.derived = self.derive()
        if self.derived.requires_grad:
            self.derived.retain_grad()
        if self.kind == "einsum":
            return torch.einsum("bi,io->bo", x, self.derived)
        return x @ self.derived


KINDS = ["concatenated", "masked", "created mask", "normalized", "gathered", "stacked", "in place", "copied", "einsum"]


def on(tensor: torch.Tensor, role: str) -> torch.Tensor:
    return quantize(tensor.detach(), getattr(NUMERICS, role).format)


@pytest.mark.parametrize("kind", KINDS)
def test_derived_weights_have_the_formats_of_weights(kind: str) -> None:
    model, x = Derived(kind), torch.randn(5, 6)
    emulate_(model, NUMERICS)
    out = model(x)
    weight = model.derived
    assert torch.equal(out, on(x, "activation") @ on(weight, "weight"))
    error = torch.randn_like(out)
    out.backward(error)
    exact = on(x, "activation").t() @ on(error, "error")
    assert torch.equal(weight.grad, on(exact, "gradient"))
    assert not torch.equal(weight.grad, exact)
    with torch.inference_mode():
        assert torch.equal(model(x), out)


@pytest.mark.parametrize("kind", KINDS)
def test_capture_sees_the_same_weights(kind: str) -> None:
    graph = capture(Derived(kind), torch.randn(5, 6))
    products = [op for op in graph.ops if op.gemm and op.phase != "update"]
    seen = [(op.phase, [tensor.role for tensor in op.inputs[:2]], op.outputs[0].role) for op in products]
    assert seen == [
        ("forward", ["activation", "weight"], "activation"),
        ("weight_grad", ["activation", "error"], "gradient"),
    ]


class Mixed(nn.Module):
    """Operands that depend on data are activations, although parameters take part."""

    def __init__(self) -> None:
        super().__init__()
        self.gain, self.table = nn.Parameter(torch.randn(6)), nn.Embedding(9, 6)
        self.register_buffer("memory", torch.zeros(5, 6))
        self.register_buffer("rows", torch.zeros(5, 6))

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        self.memory.copy_(x)
        self.rows[1:] = x[1:]
        self.operands = [x * self.gain, self.table(index), (x + 1) * self.gain, self.memory * self.gain]
        self.operands.append(self.rows * self.gain)
        total = sum(operand @ operand.t() for operand in self.operands)
        return total.sum()


class Recurrent(nn.Module):
    """Starts from a state of zeros, which is an activation although it is a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(6, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(5, 6)
        for _ in range(2):
            state = torch.tanh(x + state @ self.w)
        return state


def test_a_product_of_a_constant_and_a_weight_is_an_activation() -> None:
    graph = capture(Recurrent(), torch.randn(5, 6))
    seen = [(op.phase, [tensor.role for tensor in op.inputs[:2]]) for op in graph.ops if op.gemm]
    assert seen.count(("forward", ["activation", "weight"])) == 2
    assert seen.count(("weight_grad", ["activation", "error"])) == 2
    roles = []
    model = emulate_(Recurrent(), NUMERICS, observers=[lambda step, layer, role, tensor: roles.append(role)])
    model(torch.randn(5, 6)).sum().backward()
    assert roles.count("error") == 2


def test_what_depends_on_data_is_an_activation() -> None:
    model, seen = Mixed(), []
    emulate_(model, NUMERICS, observers=[lambda step, layer, role, tensor: seen.append(role)])
    model(torch.randn(5, 6), torch.arange(5)).backward()
    assert "weight" not in seen
    graph = capture(Mixed(), (torch.randn(5, 6), torch.arange(5)))
    forward = [op for op in graph.ops if op.gemm and op.phase == "forward"]
    assert [tensor.role for op in forward for tensor in op.inputs[:2]] == ["activation"] * 10


def test_a_recomputation_knows_derived_weights() -> None:
    class Tied(nn.Module):
        def __init__(self, checkpointed: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.w = nn.Parameter(torch.randn(6, 6))
            self.checkpointed = checkpointed

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight = torch.tanh(self.w)
            if self.checkpointed:
                return checkpoint(lambda x, w: torch.tanh(x @ w) @ w, x, weight, use_reentrant=False)
            return torch.tanh(x @ weight) @ weight

    x, gradients = torch.randn(5, 6), []
    for checkpointed in (False, True):
        model = emulate_(Tied(checkpointed), NUMERICS)
        model(x).square().sum().backward()
        gradients.append(model.w.grad)
    assert torch.equal(*gradients)


def test_the_format_of_weights_is_coarser_than_that_of_activations() -> None:
    x = torch.randn(100)
    assert not torch.equal(quantize(x, parse("float(exponent=8, mantissa=1)")), on(x, "activation"))
