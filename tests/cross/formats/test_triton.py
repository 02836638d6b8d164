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
from presilicon.formats.kernels import gpu_passes, gpu_scaled_passes
from presilicon.formats.kernels.grid import grid_of

KEY = Key(seed=3, step=5, tensor="w")
MODES = ["nearest-even", "nearest-away", "toward-zero", "up", "down"]
MODES += [Stochastic(), Stochastic(4), Stochastic(8, "lfsr")]
generator = torch.Generator().manual_seed(0)


def patterns(*shape):
    words = torch.randint(-(2**31), 2**31, shape, generator=generator, dtype=torch.int64)
    return words.to(torch.int32).view(torch.float32)


def differing(found, expected):
    same = found.contiguous().view(torch.int32) == expected.contiguous().view(torch.int32)
    return int((~same & ~(found.isnan() & expected.isnan())).sum())
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
permuted = torch.randn(4, 5, 6).permute(1, 2, 0)
for x in (torch.randn(30, 40).t(), torch.randn(3, 4, 50).mT, permuted, torch.randn(40)[::2]):
    found = gpu_passes.round_elements(x, grid_of(parse("e5m2")), Stochastic(), KEY, None)
    assert not differing(found, quantize(x, parse("e5m2"), rounding="stochastic", key=KEY))
print("equal")
"""

BANKS = """
from presilicon.formats.kernels.gpu_keys import KeyBank

bank, replay = KeyBank(torch.device("cpu")), KeyBank(torch.device("cpu"))
x, y, grid = torch.randn(64, 32), torch.randn(100), grid_of(parse("e5m2"))


def rounded(keys):
    drawn = Stochastic({mode})
    with keys.recording():
        first = gpu_passes.round_elements(x, grid, drawn, Key(3, 0, "x"), None)
        second = gpu_passes.round_blocks(x, parse("mxfp8_e4m3"), drawn, Key(3, 0, "blocks"), None)
        third = gpu_scaled_passes.round_scaled(x, parse("scaled(e4m3fn)"), None, drawn, Key(3, 0, "scaled"), None)
        many = [y.clone(), y.clone()]
        gpu_passes.round_list(many, grid, drawn, [Key(3, 0, "a"), Key(3, 0, "b")])
    return first, second, third, *many


at_capture = rounded(bank)
bank.write(7)
replay._words.copy_(bank._words)
names = [("x", x, "e5m2"), ("blocks", x, "mxfp8_e4m3"), ("scaled", x, "scaled(e4m3fn)")]
names += [("a", y, "e5m2"), ("b", y, "e5m2")]
for found, before, (name, tensor, fmt) in zip(rounded(replay), at_capture, names, strict=True):
    expected = quantize(tensor, parse(fmt), rounding=Stochastic({mode}), key=Key(3, 7, name))
    assert not differing(found, expected), name
    assert differing(before, expected), name
print("equal")
"""

BLOCKS = """
inputs = [torch.randn(24, 40), patterns(3, 8, 40), torch.exp(torch.randn(24, 40) * 30), torch.randn(3, 17, 35) * 1e-38,
          3e38 * torch.rand(24, 40)]
if {is_quick}:
    inputs = [patterns(2, 8, 20), torch.randn(2, 35, 9).mT * 1e-38]
else:
    inputs += [torch.randn(3, 35, 17).mT, torch.randn(2, 6, 5, 3).contiguous(memory_format=torch.channels_last),
               torch.zeros(4, 16), torch.randn(4, 5, 6).permute(1, 2, 0), torch.randn(8, 40)[:, ::2]]
for name in {names}:
    fmt = parse(name)
    for x in inputs:
        for mode in MODES:
            expected = quantize(x, fmt, rounding=mode, key=KEY)
            if fmt.kind == "nvfp":
                found = gpu_scaled_passes.round_nvfp4(x, fmt, mode, KEY, None)
            elif fmt.kind == "scaled":
                found = gpu_scaled_passes.round_scaled(x, fmt, None, mode, KEY, None)
            elif fmt.kind == "int":
                axis, grid = fmt._channel_axis(x), grid_of(fmt.codes)
                found = gpu_scaled_passes.round_by_channel(x, fmt.scale_for(x), axis, grid, mode, KEY, None)
                finite = torch.where(x.isfinite(), x.abs(), 0.0)
                largest = finite.amax([d for d in range(x.dim()) if d != axis], keepdim=True)
                assert not differing(gpu_scaled_passes.largest_by_channel(x, axis).view(largest.shape), largest)
            else:
                found = gpu_passes.round_blocks(x, fmt, mode, KEY, None)
            wrong = differing(found, expected)
            assert not wrong, (name, mode, tuple(x.shape), wrong)
            assert found.stride() == x.stride() or not x.is_contiguous()
print("equal")
"""

OTHERS = """
x = torch.randn(40, 48) * 3
narrow = torch.empty(48, 40, dtype=torch.bfloat16).t()
fmt = parse("mxfp8_e4m3")
gpu_passes.round_blocks(x.t().contiguous().t(), fmt, "nearest-even", KEY, narrow)
assert not differing(narrow.float(), quantize(x, fmt))
fmt = parse("scaled(e4m3fn)")
amax = torch.tensor(2.5)
expected = fmt.round_with(x, amax, rounding="stochastic", key=KEY)
assert not differing(gpu_scaled_passes.round_scaled(x, fmt, amax, Stochastic(), KEY, None), expected)
assert gpu_scaled_passes.largest_magnitude(x).item() == x.abs().max().item()
long = torch.randn(3, 1100)
for name in ("scaled(e5m2, per=row)", "scaled(e5m2, per=row, axis=0)"):
    for x in (long, long.t()):
        assert not differing(gpu_scaled_passes.round_scaled(x, parse(name), None, "up", KEY, None),
                             quantize(x, parse(name), rounding="up"))
print("equal")
"""

APART = """
inputs = [patterns(20, 24), torch.randn(2, 19, 17).mT]
for name in {names}:
    fmt = parse(name)
    for x in inputs:
        for mode in ("nearest-even", Stochastic()):
            expected = fmt.taken_apart(x, mode, KEY)
            for dtype in (torch.float32, torch.bfloat16):
                codes, scales = gpu_scaled_passes.take_apart(x, fmt, None, mode, KEY, dtype)
                assert scales.shape == expected[1].shape, (name, x.shape)
                assert not differing(codes.float(), expected[0]), (name, mode, x.shape)
                assert not differing(scales, expected[1]), (name, mode, x.shape)
print("equal")
"""

LISTS = """
from presilicon.formats.kernels.gpu_passes import round_list
tensors = [torch.randn(shape) for shape in [(1,), (3000,), (33, 70)]] + [patterns(2048)]
keys = [Key(1, 2, number) for number in range(len(tensors))]
for name in ("bfloat16", "e5m2"):
    for mode in MODES:
        found = [x.clone() for x in tensors]
        round_list(found, grid_of(parse(name)), mode, keys)
        for x, y, key in zip(tensors, found, keys):
            assert not differing(y, quantize(x, parse(name), rounding=mode, key=key)), (name, mode, x.shape)
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
def test_elements(name: str, run_kernels: Interpret) -> None:
    assert run_kernels(PRELUDE + FEW + ELEMENTS.replace("{names}", repr([name]))) == "equal"


@pytest.mark.parametrize(
    "name",
    [
        "bfp(mantissa=4, exponent=3, group=5, below=flush)",
        "mxint8(axis=0)",
        "nvfp4(axis=-2)",
        "nvfp4(square=true, apply=reciprocal)",
        "scaled(e4m3fn, per=tile, block=16, apply=multiply, least=1e-4)",
        "int(8, scale=channel)",
    ],
)
def test_blocks(name: str, run_kernels: Interpret) -> None:
    code = BLOCKS.replace("{names}", repr([name])).replace("{is_quick}", "True")
    assert run_kernels(PRELUDE + FEW + code) == "equal"


def test_narrow_outputs_given_magnitudes_and_long_rows(run_kernels: Interpret) -> None:
    assert run_kernels(PRELUDE + OTHERS) == "equal"


@pytest.mark.parametrize(
    "names",
    [
        ["nvfp4(axis=0)", "nvfp4(apply=multiply, square=true)", "scaled(e4m3fn)"],
        ["scaled(e5m2, per=row)", "scaled(e4m3fn, per=block, block=5, axis=0)", "scaled(e4m3fn, per=tile, block=16)"],
    ],
    ids=lambda names: names[0],
)
def test_codes_and_their_scales(names: list[str], run_kernels: Interpret) -> None:
    assert run_kernels(PRELUDE + APART.replace("{names}", repr(names))) == "equal"


def test_lists_of_tensors(run_kernels: Interpret) -> None:
    assert run_kernels(PRELUDE + FEW + LISTS) == "equal"


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        ["e4m3", "e4m3fn", "float16", "tf32", "float32", "float(exponent=6, mantissa=9)"],
        ["fp6_e3m2", "fp4_e2m1", "e4m3fnuz", "fixed(8, 4)", "float(exponent=5, mantissa=2, subnormals=false)"],
    ],
    ids=lambda names: names[0],
)
def test_all_elements(names: list[str], run_kernels: Interpret) -> None:
    assert run_kernels(PRELUDE + ELEMENTS.replace("{names}", repr(names))) == "equal"


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        ["bfp(mantissa=4, group=16)", "bfp(mantissa=3, group=5)", "bfp(mantissa=23, group=8, axis=0)"],
        ["bfp(mantissa=4, exponent=3, group=16)", "bfp(mantissa=4, exponent=3, group=16, below=flush)"],
        ["bfp(mantissa=2, group=4, square=true)", "mxfp8_e5m2", "mxint8"],
        ["mxfp8_e4m3", "mxfp6_e3m2", "mxfp4(scale=rceil)"],
        ["mxfp4(scale=ceil, axis=1)", "mxfp8_e4m3(scale=even)", "mxfp6_e2m3"],
        ["nvfp4", "nvfp4(apply=reciprocal)", "nvfp4(apply=multiply, axis=0)", "nvfp(tensor_scale=false, block=5)"],
        ["scaled(e4m3fn)", "scaled(e5m2, per=row)", "scaled(e4m3fn, per=row, axis=0, scale=e8m0)"],
        [
            "scaled(e4m3fn, per=block, block=8, apply=divide)",
            "scaled(fixed(2, 6), per=tile, block=4, margin=1, least=1e-12)",
        ],
        ["scaled(e4m3fn, per=block, block=5, axis=0, scale=e8m0, apply=divide)", "int(5, scale=tensor)"],
    ],
    ids=lambda names: names[0],
)
def test_all_blocks(names: list[str], run_kernels: Interpret) -> None:
    assert run_kernels(PRELUDE + BLOCKS.replace("{names}", repr(names)).replace("{is_quick}", "False")) == "equal"


def test_the_comparison_can_fail(interpret: Interpret) -> None:
    assert int(interpret(PRELUDE + MUTANT)) > 1000


@pytest.mark.parametrize("mode", ["", '8, "lfsr"'])
def test_captured_kernels_read_the_keys_of_their_step(run_kernels: Interpret, mode: str) -> None:
    assert run_kernels(PRELUDE + BANKS.format(mode=mode)) == "equal"
