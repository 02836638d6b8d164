"""The kernel of the statistics, run by Triton's interpreter on a CPU, against their definition."""

from collections.abc import Callable
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")

SCRIPT = """
import warnings
warnings.filterwarnings("ignore", module="triton")
import math
import torch
from presilicon.emulation.monitoring import statistics
from presilicon.formats import parse, quantize

statistics._PROGRAMS = 2
torch.manual_seed(0)
fmt = parse("{fmt}")
x = torch.randn({count}) * 200
x[0::7], x[1], x[2], x[3] = 0.0, math.nan, math.inf, 1e-9
y = quantize(x, fmt)
ends = torch.tensor([3.4e38, fmt.max, -fmt.max, 1.5, 0.0, 1e-9])
wide = torch.where(torch.rand({count}) < 0.5, 3.4e38, 0.0) * torch.randn({count}).sign()
rounded = [(before, quantize(before, fmt)) for before in (x, wide, ends, -ends)]
for before, after in (*rounded, (ends, -ends)):
    found = statistics.measure_in_one_pass(before, after, fmt)
    expected = statistics._measure_any(before, after, fmt)
    assert found.keys() == expected.keys()
    for name in expected:
        assert math.isclose(found[name], expected[name], rel_tol=1e-12), (name, found[name], expected[name])
other, expected = (statistics.measure_in_one_pass(x, after, fmt) for after in (x, y))
assert not math.isclose(other["error"], expected["error"])
print("equal")
"""


@pytest.mark.parametrize(
    "fmt", ["e4m3fn(overflow=saturate)", "e5m2", "bfloat16", "fixed(4, 4)", "fixed(4, 4, signed=false)"]
)
@pytest.mark.parametrize("count", [10, 3000])
def test_one_pass_measures_what_the_definition_does(run_kernels: Callable[[str], str], fmt: str, count: int) -> None:
    assert run_kernels(SCRIPT.format(fmt=fmt, count=count)) == "equal"
