"""Torch's functions, written in the operator language, equal torch: results and all gradients, on random shapes."""

from random import Random

import pytest
import torch

from operator_library import CASES, Case
from presilicon.ops import Operator
from presilicon.ops.custom import calls
from presilicon.programs.executions.numba_execution import run_numba
from presilicon.programs.executions.torch_execution import run_torch
from presilicon.programs.program import ERROR
from presilicon.programs.reference import Array, evaluate_tensors


def operands_of(case: Case, seed: int):
    torch.manual_seed(seed)
    tensors, constants = case.make(Random(seed))
    for place, tensor in enumerate(tensors):
        tensor.requires_grad_(place not in case.without_gradient)
    return tensors, constants


def reference(program, operands, sizes, shapes=()):
    arrays = {name: Array(tuple(x.shape), x.detach().reshape(-1).tolist()) for name, x in operands.items()}
    results = evaluate_tensors(program, arrays, sizes, shapes=shapes)
    return [torch.tensor(array.numbers, dtype=torch.float64).reshape(array.shape) for array in results]


def by_hand(op: Operator, tensors, constants, error, run):
    """Result and gradients by one execution, without the op of torch."""
    flat, _ = calls._flattened(op, [x.detach().double() for x in tensors])
    operands = dict(zip(op.operands, flat, strict=True))
    sizes = op.sizes({name: tuple(x.shape) for name, x in operands.items()})
    given = tuple((name, constants.get(name, default)) for name, default in op.constants.items())
    program = op.specialized(given, sizes)
    (out,) = run(program, operands, sizes)
    wanted = [name for name, x in zip(op.operands, tensors, strict=True) if x.requires_grad]
    backward = op.gradient_program(program, wanted)
    inputs = {**operands, ERROR: error.reshape(out.shape)}
    shapes = [tuple(operands[result.target].shape) for result in backward.results]
    results = run(backward, inputs, sizes, shapes) if run is reference else run(backward, inputs, sizes)
    gradients = {name: torch.zeros_like(operands[name]) for name in wanted}
    for result, gradient in zip(backward.results, results, strict=True):
        gradients[result.target] += gradient
    return out, gradients


@pytest.fixture
def in_torch(monkeypatch) -> None:
    """Operators computed by torch: compiling each of them by Numba takes seconds."""
    monkeypatch.setattr(calls, "has_numba", lambda: False)


@pytest.mark.usefixtures("in_torch")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(4))
def test_an_operator_equals_torch_s_function(name: str, seed: int) -> None:
    case = CASES[name]
    tensors, constants = operands_of(case, seed)
    wanted = case.function(*tensors, **constants)
    out = case.op(*tensors, **constants)
    torch.testing.assert_close(out, wanted, rtol=1e-10, atol=1e-10)
    error = torch.randn_like(wanted)
    trained = [x for x in tensors if x.requires_grad]
    for got, expected in zip(
        torch.autograd.grad(out, trained, error), torch.autograd.grad(wanted, trained, error), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


QUICK = ("add", "softmax", "max_pool2d", "cross_entropy")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_all_executions_agree(name: str) -> None:
    case = CASES[name]
    tensors, constants = operands_of(case, 11)
    error = torch.randn_like(case.function(*tensors, **constants)).double()
    wanted, gradients = by_hand(case.op, tensors, constants, error, reference)
    for run in (run_torch, run_numba):
        out, own = by_hand(case.op, tensors, constants, error, run)
        torch.testing.assert_close(out, wanted, rtol=1e-12, atol=1e-12)
        for operand, gradient in gradients.items():
            torch.testing.assert_close(own[operand], gradient, rtol=1e-11, atol=1e-11)


@pytest.mark.usefixtures("in_torch")
@pytest.mark.parametrize("name", CASES)
def test_numeric_differentiation_agrees(name: str) -> None:
    case = CASES[name]
    tensors, constants = operands_of(case, 5)
    assert torch.autograd.gradcheck(lambda *x: case.op(*x, **constants), tensors, fast_mode=tensors[0].numel() > 40)


def test_the_comparison_can_fail() -> None:
    """A softmax that forgets its largest element's share of the sum is told apart, and so is a wrong gradient."""
    case = CASES["softmax"]
    tensors, _ = operands_of(case, 1)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(case.op(*tensors) * (1 + 1e-9), case.function(*tensors), rtol=1e-10, atol=1e-10)


LONG = {
    "matmul": ([(9, 10), (10, 11)], {}),
    "conv1d": ([(2, 3, 31), (4, 3, 3)], {"stride": 2, "padding": 2, "dilation": 2}),
    "conv2d": ([(2, 2, 12, 19), (9, 2, 3, 3)], {"padding": 1}),
    "transposed": ([(2, 3, 17), (3, 9, 9)], {"stride": 3}),
}


@pytest.mark.parametrize("name", ["matmul", *(pytest.param(name, marks=pytest.mark.slow) for name in [*LONG][1:])])
def test_loops_along_the_last_axis_agree(name: str) -> None:
    """Long enough that the result's last axis runs innermost, with the bounds that its guards leave."""
    case, (shapes, constants) = CASES[name], LONG[name]
    tensors = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    wanted = case.function(*tensors, **constants)
    error = torch.randn_like(wanted)
    out, gradients = by_hand(case.op, tensors, constants, error, run_numba)
    torch.testing.assert_close(out.reshape(wanted.shape), wanted, rtol=1e-10, atol=1e-10)
    for got, expected in zip(gradients.values(), torch.autograd.grad(wanted, tensors, error), strict=True):
        torch.testing.assert_close(got.reshape(expected.shape), expected, rtol=1e-10, atol=1e-10)
