"""Operators on a GPU against the scalar reference."""

import math
from random import Random

import pytest
import torch

from operator_library import CASES
from presilicon.base import ConfigError
from presilicon.formats import parse
from presilicon.ops import apply_operator, operator, piecewise_linear, table
from presilicon.ops.custom.rounding import step_rounding
from presilicon.programs.executions.torch_execution import run_torch
from presilicon.programs.reference import evaluate

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
    wanted = [evaluate(chosen.both, value, step_rounding(fmt and parse(fmt))) for value in x.tolist()]
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


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [0, 11])
def test_triton_computes_what_torch_does(name: str, seed: int) -> None:
    case = CASES[name]
    torch.manual_seed(seed)
    tensors, constants = case.make(Random(seed))
    tensors = [x.cuda().requires_grad_(place not in case.without_gradient) for place, x in enumerate(tensors)]
    wanted = case.function(*tensors, **constants)
    out = case.op(*tensors, **constants)
    torch.testing.assert_close(out, wanted, rtol=1e-10, atol=1e-10)
    error, trained = torch.randn_like(wanted), [x for x in tensors if x.requires_grad]
    gradients = [torch.autograd.grad(result, trained, error) for result in (out, wanted)]
    for got, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


def test_larger_tensors_in_float32() -> None:
    x = torch.randn(300, 1000, device="cuda", requires_grad=True)
    out, wanted = CASES["softmax"].op(x), torch.softmax(x, -1)
    torch.testing.assert_close(out, wanted)
    error = torch.randn_like(x)
    torch.testing.assert_close(*(torch.autograd.grad(result, x, error)[0] for result in (out, wanted)))


def test_indices_outside_are_refused_and_determinism_is_kept() -> None:
    x, target = torch.randn(4, 3, device="cuda", requires_grad=True), torch.tensor([0, 1, 2, 3], device="cuda")
    with pytest.raises(ConfigError, match="an index of x lies outside"):
        CASES["cross_entropy"].op(x, target)
    torch.use_deterministic_algorithms(True)
    try:
        CASES["cross_entropy"].op(x, target % 3).backward()
    finally:
        torch.use_deterministic_algorithms(False)
