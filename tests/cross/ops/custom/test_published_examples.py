"""Derived gradients of operators in examples and docs: cosine 1 with finite differences, on CPU and in Triton."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cosine_similarity

from presilicon.ops import Operator, load_operator

ROOT = Path(__file__).parents[4]
EXAMPLES = [
    *(f"{ROOT}/examples/approximate_tanh.py:{name}" for name in ("approximate_tanh", "staircase")),
    *(f"{ROOT}/examples/base2_softmax.py:{name}" for name in ("of_base_2", "of_base_e")),
    *(f"{Path(__file__).parent}/published_operators.py:{name}" for name in ("pieces", "smooth", "polynomial", "norm")),
]
SIZES = (7, 8, 1000)


def slopes(chosen: Operator, x: torch.Tensor, error: torch.Tensor) -> torch.Tensor:
    """Finite differences of the value, element by element where the operator is, else along random directions."""
    if chosen.is_elementwise:
        return error * (chosen(x + 1e-6) - chosen(x - 1e-6)) / 2e-6
    columns = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device).unsqueeze(1) * 1e-6
    ends = [((chosen(x + sign * columns)) * error).sum(-1) for sign in (1, -1)]
    return ((ends[0] - ends[1]) / 2e-6).T


def check(chosen: Operator, size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    shape = (size,) if chosen.is_elementwise else (3, size)
    x, error = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(chosen(leaf), leaf, error)
    expected = slopes(chosen, x, error)
    assert cosine_similarity(gradient.flatten(), expected.flatten(), dim=0).item() == pytest.approx(1, abs=1e-6)
    mixed = gradient.flatten().roll(1)
    assert cosine_similarity(mixed, expected.flatten(), dim=0).item() < 0.999, "the comparison could not fail"


@pytest.mark.parametrize("reference", EXAMPLES, ids=lambda reference: reference.rpartition("/")[2])
@pytest.mark.parametrize("size", SIZES)
def test_gradients_of_examples_have_a_cosine_of_one(reference: str, size: int) -> None:
    check(load_operator(reference), size)


SCRIPT = """
import sys, torch
sys.path.insert(0, {folder!r})
from presilicon.ops import load_operator
from presilicon.ops.custom import calls
from presilicon.programs.executions import triton_execution
from presilicon.programs.executions.triton_execution import run_triton
import test_published_examples as published
triton_execution.ELEMENTS, triton_execution.ROWS, triton_execution.CHUNK = 16, 2, 4
calls._execution = lambda tensor, program, fmt: run_triton
for reference in published.EXAMPLES:
    for size in (7, 9):
        published.check(load_operator(reference), size)
print("equal")
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_gradients_of_examples_in_triton(interpret: Callable[[str], str]) -> None:
    assert interpret(SCRIPT.format(folder=str(Path(__file__).parent))) == "equal"
