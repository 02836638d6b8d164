"""The GPU kernels, run by Triton's interpreter on a CPU, against the compiled CPU passes, bit for bit."""

from collections.abc import Callable
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")

Interpret = Callable[[str], str]

PRELUDE = """
import warnings
warnings.filterwarnings("ignore", module="triton")
import torch
from presilicon.formats import Key, Stochastic, parse, quantize
from presilicon.formats.kernels import gpu_passes
from presilicon.formats.kernels.grid import grid_of

KEY = Key(seed=3, step=5, tensor="w")
MODES = ["nearest-even", "nearest-away", "toward-zero", "up", "down"]
MODES += [Stochastic(), Stochastic(4), Stochastic(8, "lfsr")]
generator = torch.Generator().manual_seed(0)


def patterns(*shape):
    words = torch.randint(-(2**31), 2**31, shape, generator=generator, dtype=torch.int64)
    return words.to(torch.int32).view(torch.float32)


def differing(found, expected):
    return int((found.view(torch.int32) != expected.view(torch.int32)).sum())
"""

ELEMENTS = """
special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-45, -1e-45, 3.4e38])
x = torch.cat([patterns(3000), torch.randn(1000), special])
for name in {names}:
    grid = grid_of(parse(name))
    for mode in MODES:
        expected = quantize(x, parse(name), rounding=mode, key=KEY)
        wrong = differing(gpu_passes.round_elements(x, grid, mode, KEY, None), expected)
        assert not wrong, (name, mode, wrong)
    in_place = x.clone()
    gpu_passes.round_elements(in_place, grid, "nearest-even", KEY, in_place)
    assert not differing(in_place, quantize(x, parse(name)))
transposed = torch.randn(30, 40).t()
found = gpu_passes.round_elements(transposed, grid_of(parse("e5m2")), Stochastic(), KEY, None)
assert not differing(found, quantize(transposed, parse("e5m2"), rounding="stochastic", key=KEY).contiguous())
print("equal")
"""

BLOCKS = """
inputs = [torch.randn(24, 40), patterns(3, 8, 40), torch.exp(torch.randn(24, 40) * 30), torch.randn(3, 17, 35) * 1e-38,
          3e38 * torch.rand(24, 40)]
for name in {names}:
    fmt = parse(name)
    for x in inputs:
        for mode in MODES:
            expected = quantize(x, fmt, rounding=mode, key=KEY)
            wrong = differing(gpu_passes.round_blocks(x, fmt, mode, KEY, None), expected)
            assert not wrong, (name, mode, tuple(x.shape), wrong)
print("equal")
"""

MUTANT = """
from dataclasses import replace
x = torch.randn(4000)
grid = replace(grid_of(parse("e5m2")), mantissa=3)
print(differing(gpu_passes.round_elements(x, grid, "nearest-even", KEY, None), quantize(x, parse("e5m2"))))
"""


FEW = 'MODES = ["nearest-even", "down", Stochastic(), Stochastic(8, "lfsr")]\n'


@pytest.mark.parametrize("name", ["e5m2", "bfloat16", "fixed(8, 4)"])
def test_elements(name: str, interpret: Interpret) -> None:
    assert interpret(PRELUDE + FEW + ELEMENTS.replace("{names}", repr([name]))) == "equal"


@pytest.mark.parametrize("name", ["bfp(mantissa=4, exponent=3, group=5, below=flush)", "mxint8"])
def test_blocks(name: str, interpret: Interpret) -> None:
    assert interpret(PRELUDE + FEW + BLOCKS.replace("{names}", repr([name]))) == "equal"


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        ["e4m3", "e4m3fn", "float16", "tf32", "float32", "float(exponent=6, mantissa=9)"],
        ["fp6_e3m2", "fp4_e2m1", "e4m3fnuz", "fixed(8, 4)", "float(exponent=5, mantissa=2, subnormals=false)"],
    ],
    ids=lambda names: names[0],
)
def test_all_elements(names: list[str], interpret: Interpret) -> None:
    assert interpret(PRELUDE + ELEMENTS.replace("{names}", repr(names))) == "equal"


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        ["bfp(mantissa=4, group=16)", "bfp(mantissa=3, group=5)", "bfp(mantissa=23, group=8, axis=0)"],
        ["bfp(mantissa=4, exponent=3, group=16)", "bfp(mantissa=4, exponent=3, group=16, below=flush)"],
        ["bfp(mantissa=2, group=4, square=true)", "mxfp8_e5m2", "mxint8"],
        ["mxfp8_e4m3", "mxfp6_e3m2", "mxfp4(scale=rceil)"],
        ["mxfp4(scale=ceil, axis=1)", "mxfp8_e4m3(scale=even)", "mxfp6_e2m3"],
    ],
    ids=lambda names: names[0],
)
def test_all_blocks(names: list[str], interpret: Interpret) -> None:
    assert interpret(PRELUDE + BLOCKS.replace("{names}", repr(names))) == "equal"


def test_the_comparison_can_fail(interpret: Interpret) -> None:
    assert int(interpret(PRELUDE + MUTANT)) > 1000
