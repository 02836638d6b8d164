"""The kernels of attention's probabilities, run by Triton's interpreter on a CPU, against torch's softmax."""

from collections.abc import Callable
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")

SCRIPT = """
import warnings
warnings.filterwarnings("ignore", module="triton")
import torch
from presilicon.emulation.ops.attention import fused_softmax

torch.manual_seed(0)
scores, error = torch.randn(3, 2, {queries}, 7, requires_grad=True), torch.randn(3, 2, {queries}, 7)
found = fused_softmax(scores, 0.3, is_causal={is_causal})
(found_grad,) = torch.autograd.grad(found, scores, error)
hidden = torch.full((error.shape[-2], 7), -torch.inf).triu(1) if {is_causal} else torch.zeros(error.shape[-2], 7)
expected = (scores * 0.3 + hidden).softmax(-1)
(expected_grad,) = torch.autograd.grad(expected, scores, error)
assert torch.allclose(found, expected, rtol=1e-6, atol=1e-7)
assert torch.allclose(found_grad, expected_grad, rtol=1e-5, atol=1e-7)
assert not torch.allclose(found, scores.softmax(-1), rtol=1e-3)
print("equal")
"""


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("queries", [1, 5, 9])
def test_probabilities_and_their_gradient_are_those_of_torch(
    run_kernels: Callable[[str], str], queries, is_causal
) -> None:
    assert run_kernels(SCRIPT.format(queries=queries, is_causal=is_causal)) == "equal"
