"""The kernels of tensor cores, run by Triton's interpreter on a CPU, on numbers whose sums are exact in any order."""

from collections.abc import Callable
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")

SCRIPT = """
import warnings
warnings.filterwarnings("ignore", module="triton")
import torch
from presilicon.formats import Patches, parse, tensor_core
from presilicon.formats.mac.tensor_core_gpu import convolve

def whole_numbers(*shape):  # their sums are exact in any order
    return torch.randint(-3, 4, shape).float()

torch.manual_seed(0)
unit = tensor_core(parse("float16"), parse("float16"), split={split})
size, positions, groups = {size}, {positions}, {groups}
x = whole_numbers(2, {channels}, *size)
patches = Patches(x, {kernel}, positions, {step}, {padding}, {dilation}, {gap}, groups)
dense = patches.dense()
assert dense.shape == patches.shape
kernels, bias = whole_numbers(groups, dense.shape[2], 5), whole_numbers(5) if groups == 1 else None
expected = dense @ kernels + (0 if bias is None else bias)
assert torch.equal(convolve(patches, kernels, unit, bias), expected)
assert not torch.equal(convolve(patches, kernels + 1, unit, bias), expected)
error = whole_numbers(groups, 5, dense.shape[1])
assert torch.equal(convolve(error, patches, unit, None), error @ dense)
print("equal")
"""
SCALED = """
import warnings
warnings.filterwarnings("ignore", module="triton")
import torch
from presilicon.formats import Factored, parse, tensor_core
from presilicon.formats.mac.tensor_core_gpu import multiply

torch.manual_seed(0)
a, b = torch.randint(-3, 4, (40, 200)).float(), torch.randint(-3, 4, (200, 24)).float()
bias = torch.randn(24)

def powers(*shape):  # of two, which scale without rounding
    return 2.0 ** torch.randint(-3, 4, shape).float()

for split, left, right in [
    (None, powers(), powers()), (None, powers(40, 1), powers()), (None, powers(40, 1), powers(1, 24)),
    (64, powers(40, 4), powers(4, 24)), (64, powers(40, 4), powers(1, 24)), (64, powers(), powers(4, 24)),
]:
    unit = tensor_core(parse("float16"), parse("float16"), split=split)
    factors = Factored(a, left, 64), Factored(b, right, 64)
    expected = factors[0].values() @ factors[1].values() + bias
    assert torch.equal(multiply(*factors, unit, bias), expected), (left.shape, right.shape)
    assert not torch.equal(multiply(Factored(a, left * 2, 64), factors[1], unit, bias), expected)
print("equal")
"""
PLAIN = {
    "size": (7, 6), "positions": (4, 5), "kernel": (3, 3), "step": (1, 1), "padding": (1, 1), "dilation": (1, 1),
    "gap": (1, 1), "groups": 1, "channels": 3, "split": None,
}  # fmt: skip
CASES = {
    "strides and dilation": {"step": (2, 1), "padding": (1, 0), "dilation": (1, 2)},
    "one element per tile": {"channels": 32, "split": 64},
    "gaps between inputs": {"channels": 32, "gap": (2, 3)},
    "groups and negative padding": {"channels": 64, "groups": 2, "kernel": (1, 3), "padding": (0, -1)},
    "one axis": {
        "size": (7,), "positions": (4,), "kernel": (3,), "step": (1,), "padding": (1,), "dilation": (1,), "gap": (1,),
    },
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_patches_read_in_place_equal_patches_in_memory(run_kernels: Callable[[str], str], case: str) -> None:
    assert run_kernels(SCRIPT.format(**PLAIN | CASES[case])) == "equal"


def test_scales_of_tensors_rows_and_blocks_multiply_sums(run_kernels: Callable[[str], str]) -> None:
    assert run_kernels(SCALED) == "equal"
