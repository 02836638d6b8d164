"""Operators on a GPU against the scalar reference."""

import math

import pytest
import torch

from presilicon.formats import parse
from presilicon.operators import apply_operator, operator, piecewise_linear, table
from presilicon.operators.executions.torch_execution import run_torch
from presilicon.operators.reference import evaluate

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@operator("tanh")
def pieces(x):
    size = abs(x)
    if size < 2:
        return x * (1 - size / 3) + math.sqrt(size) / 7
    return math.floor(x) / 10 if x > 0 else -1.0


CHOSEN = [
    pieces,
    table("tanh", -4, 4, 33),
    table("tanh", -3, 4, 20, "linear"),
    piecewise_linear("tanh", -4, 4, 9, "minimax"),
]
EDGES = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-40, 1e-310, 2.0, -2.0, 4.0, -4.0]


@pytest.mark.parametrize("chosen", CHOSEN, ids=lambda each: each.name)
@pytest.mark.parametrize(("dtype", "fmt"), [(torch.float64, None), (torch.float32, "float32")])
def test_results_and_derivatives_are_the_reference_s(chosen, dtype: torch.dtype, fmt: str | None) -> None:
    x = torch.tensor([*EDGES, *(torch.randn(2000, dtype=torch.float64) * 3).tolist()], dtype=dtype)
    wanted = [evaluate(chosen.both, value, fmt and parse(fmt)) for value in x.tolist()]
    for place, got in enumerate(run_torch(chosen.both, {"x": x.cuda()}, {"_": len(x)})):
        expected = torch.tensor([row[place] for row in wanted], dtype=dtype)
        same = (got.cpu() == expected) & (got.cpu().signbit() == expected.signbit())
        assert bool((same | (got.cpu().isnan() & expected.isnan())).all())


def test_formats_and_gradients() -> None:
    rounded = operator("tanh", format="float16")(pieces.function)
    x = torch.randn(1000)
    assert torch.equal(apply_operator(rounded, x.cuda()).cpu(), apply_operator(rounded, x))
    on_gpu, on_cpu = (x.clone().to(device).requires_grad_() for device in ("cuda", "cpu"))
    for each in (on_gpu, on_cpu):
        apply_operator(pieces, each).sum().backward()
    assert torch.equal(on_gpu.grad.cpu(), on_cpu.grad)
