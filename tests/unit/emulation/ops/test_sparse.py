"""Products with a sparse matrix are emulated like their dense twins; products of constants stay exact."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from presilicon.designs import Numerics
from presilicon.emulation import coverage, emulate_
from presilicon.formats import MacUnit, parse, quantize

NUMERICS = Numerics(weight="e4m3", activation="e5m2", error="float(exponent=5, mantissa=1)", gradient="bfloat16")


def adjacency() -> Tensor:
    torch.manual_seed(0)
    return (torch.rand(6, 6) < 0.4).float() * torch.rand(6, 6)


def as_csr(matrix: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR")
        return matrix.to_sparse_csr()


class Graph(nn.Module):
    def __init__(self, multiply: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.weight = nn.Parameter(torch.randn(4, 3))
        self.multiply = multiply

    def forward(self, graph: Tensor, x: Tensor) -> Tensor:
        return self.multiply(graph, x @ self.weight)


def step(model: Graph, graph: Tensor) -> tuple[Tensor, Tensor]:
    torch.manual_seed(2)
    out = model(graph, torch.randn(6, 4))
    out.backward(torch.randn(6, 3))
    return out.detach(), model.weight.grad


@pytest.mark.parametrize("layout", [Tensor.to_sparse, as_csr])
@pytest.mark.parametrize(
    "multiply", [torch.sparse.mm, torch.mm, torch.matmul, lambda a, b: a @ b, lambda a, b: (b.t() @ a.t()).t()]
)
@pytest.mark.parametrize("unit", [MacUnit(), MacUnit(accumulate=parse("bfloat16"))])
def test_a_sparse_product_equals_the_dense_one(layout, multiply, unit) -> None:
    numerics = Numerics(weight="e4m3", activation="e5m2", error="e5m2", mac=unit)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*not emulated")
        sparse = step(emulate_(Graph(multiply), numerics), layout(adjacency()))
    dense = step(emulate_(Graph(torch.matmul), numerics), adjacency())
    plain = step(Graph(multiply), layout(adjacency()))
    for mine, other, unrounded in zip(sparse, dense, plain, strict=True):
        assert torch.allclose(mine, other, rtol=1e-6, atol=1e-6)
        assert not torch.allclose(mine, unrounded, rtol=1e-3, atol=1e-3)


def test_stored_numbers_have_gradients() -> None:
    graph, x, error = adjacency().to_sparse().requires_grad_(), torch.randn(6, 3), torch.randn(6, 3)

    class Only(nn.Module):
        def forward(self, graph: Tensor) -> Tensor:
            return torch.sparse.mm(graph, x)

    emulate_(Only(), NUMERICS)(graph).backward(error)
    rows, cols = graph.detach().coalesce().indices()
    e, b = quantize(error, NUMERICS.error.format), quantize(x, NUMERICS.activation.format)
    assert torch.equal(graph.grad.coalesce().values(), (e[rows] * b[cols]).sum(-1))


def test_a_graph_network_is_covered() -> None:
    listing = coverage(Graph(torch.sparse.mm), NUMERICS, (adjacency().to_sparse(), torch.randn(6, 4)), strict=True)
    assert any("sparse" in op.operator and op.status == "emulated" for op in listing.ops)


class Rotary(nn.Module):
    """Positions by frequencies, as rotary embeddings compute them, and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.rand(4) / 3)
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions[:, None].float() @ self.frequencies[None]
        by_einsum = torch.einsum("i,j->ij", positions.float(), self.frequencies)
        return self.fc(x) * (angles + by_einsum).cos(), angles


def test_products_of_positions_and_constants_stay_exact() -> None:
    model = Rotary()
    positions = torch.arange(1000, 1005)
    _, plain = model(torch.randn(5, 4), positions)
    _, angles = emulate_(model, NUMERICS)(torch.randn(5, 4), positions)
    assert torch.equal(angles, plain)
    assert not torch.equal(quantize(angles, NUMERICS.activation.format), angles)
    listing = coverage(model, NUMERICS, (torch.randn(5, 4), positions), loss=lambda out: out[0].sum(), strict=True)
    constant = [op for op in listing.ops if op.formats == "constants float32"]
    assert constant
    assert {op.status for op in constant} == {"float32"}
