"""The GPU kernels of operators, run by Triton's interpreter on a CPU, against torch's own functions."""

from collections.abc import Callable
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")

SCRIPT = """
import warnings
warnings.filterwarnings("ignore", module="triton")
from random import Random
import torch
from operator_library import CASES
from presilicon.ops.custom import calls
from presilicon.programs.executions import triton_execution
from presilicon.programs.executions.triton_execution import run_triton

triton_execution.ELEMENTS, triton_execution.ROWS, triton_execution.CHUNK = 16, 2, 4
calls._execution = lambda tensor, program, fmt: run_triton
for name in {names}:
    case = CASES[name]
    torch.manual_seed(3)
    tensors, constants = case.make(Random(3))
    tensors = [x.requires_grad_(place not in case.without_gradient) for place, x in enumerate(tensors)]
    out, wanted = case.op(*tensors, **constants), case.function(*tensors, **constants)
    torch.testing.assert_close(out, wanted, rtol=1e-10, atol=1e-10)
    error, trained = torch.randn_like(wanted), [x for x in tensors if x.requires_grad]
    got, expected = (torch.autograd.grad(result, trained, error) for result in (out, wanted))
    for one, other in zip(got, expected):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
        assert not torch.allclose(one + 1e-6, other, rtol=1e-10, atol=1e-10), "the comparison could not fail"
print("equal")
"""

ELEMENTWISE = ["relu", "gelu", "add", "div"]
ROWS = ["softmax", "layer_norm", "cross_entropy", "products"]
WINDOWS = ["max_pool2d", "conv2d", "attention"]


@pytest.mark.parametrize(
    "names", [ELEMENTWISE, ROWS, pytest.param(WINDOWS, marks=pytest.mark.slow)], ids=lambda names: names[0]
)
def test_kernels_equal_torch_s_functions(names: list[str], run_kernels: Callable[[str], str]) -> None:
    assert run_kernels(SCRIPT.format(names=names)) == "equal"
