"""Block formats: Numba = torch fallback = reference, and gfloat's MX blocks."""

import gfloat
import gfloat.formats
import numpy as np
import pytest
import torch
from inputs import random_patterns, same_bits

from oracles.block_formats import quantize_values
from presilicon.base import FormatError
from presilicon.formats import BlockFloat, Key, Mx, Stochastic, parse, quantize
from presilicon.formats.kernels.torch_kernels import draw_words, round_blocks
from presilicon.formats.rounding import check_rounding

KEY = Key(seed=1, step=2, tensor="x")
FORMATS = [
    "bfp(4)", "bfp(1, group=5)", "bfp(23, group=3)", "bfp(4, exponent=3)", "bfp(3, exponent=2, below=flush)",
    "bfp(4, exponent=4, top=3)", "bfp(2, axis=0, group=3)", "bfp(4, group=4, square=true)", "bfp(8, axis=1, group=4)",
    "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "mxint8", "mxfp8_e4m3(scale=ceil)",
    "mxfp4(scale=even, axis=0, block=4)", "mxfp8_e5m2(scale=rceil, block=5)", "mxint8(scale=ceil)",
    "mxint8(scale=even)",
    "mx(element=float(3, 0, specials=none), block=8)", "mx(element=e4m3fnuz, block=8)",
    "mx(element=e5m2(subnormals=false), block=8)",
]  # fmt: skip
ROUNDINGS = ["nearest-even", "nearest-away", "toward-zero", "up", "down", "stochastic", Stochastic(5, "lfsr")]


def hard_cases() -> torch.Tensor:
    """Groups of every magnitude: float32's ends, one huge among small, zeros, NaN and infinities."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 8, generator=generator)
    x[:40] *= torch.exp2(torch.linspace(-149, 126, 40)).unsqueeze(1)
    x[40, 3] = 1e30
    x[41] = 0.0
    x[42] = -0.0
    x[43, 2], x[44, 3], x[45, 4] = float("nan"), float("inf"), float("-inf")
    x[46] = 3.4028234663852886e38
    x[47] = -3.4028234663852886e38
    x[48] = 2.0**-126
    x[49] = -(2.0**-149)
    x[50] = torch.tensor([1.0, -1.0, 0.5, 1.5, -1.5, 1.75, -1.9999999, 1.9999999])
    x[51, 0], x[51, 1:] = float("-inf"), 1e-30
    return x


@pytest.mark.parametrize("rounding", ROUNDINGS, ids=str)
@pytest.mark.parametrize("spelling", FORMATS)
def test_numba_equals_torch_and_reference(spelling: str, rounding: str) -> None:
    fmt = parse(spelling)
    assert isinstance(fmt, BlockFloat | Mx)
    x = hard_cases().view(12, 5, 8)
    ours = quantize(x, fmt, rounding=rounding, key=KEY)
    mode = check_rounding(rounding)
    assert torch.equal(ours.view(torch.int32), round_blocks(x, fmt, mode, draw_words(x, mode, KEY)).view(torch.int32))
    judged = torch.tensor(quantize_values(x.flatten().tolist(), tuple(x.shape), fmt, rounding, KEY))
    assert same_bits(ours.flatten(), judged).all()


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 33), (2, 3, 35), (4, 64), (0, 5), (5, 0), (130, 300)])
@pytest.mark.parametrize("spelling", ["bfp(4)", "bfp(4, square=true)", "bfp(3, axis=0, group=4)", "mxfp8_e4m3"])
@pytest.mark.parametrize("rounding", ["nearest-even", "stochastic"])
def test_shapes(spelling: str, shape: tuple[int, ...], rounding: str) -> None:
    fmt = parse(spelling)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 3
    mode = check_rounding(rounding)
    expected = round_blocks(x, fmt, mode, draw_words(x, mode, KEY))
    assert torch.equal(quantize(x, fmt, rounding=rounding, key=KEY), expected)
    in_place = x.clone()
    quantize(in_place, fmt, rounding=rounding, key=KEY, out=in_place)
    assert torch.equal(in_place, expected)
    if len(shape) == 2:
        assert torch.equal(quantize(x.t().contiguous().t(), fmt, rounding=rounding, key=KEY), expected)


@pytest.mark.parametrize("name", ["mxfp8_e5m2", "mxfp8_e4m3", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "mxint8"])
def test_mx_equals_gfloat(name: str) -> None:
    info = {
        "mxfp8_e5m2": gfloat.formats.format_info_mxfp8_e5m2,
        "mxfp8_e4m3": gfloat.formats.format_info_mxfp8_e4m3,
        "mxfp6_e3m2": gfloat.formats.format_info_mxfp6_e3m2,
        "mxfp6_e2m3": gfloat.formats.format_info_mxfp6_e2m3,
        "mxfp4": gfloat.formats.format_info_mxfp4_e2m1,
        "mxint8": gfloat.formats.format_info_mxint8,
    }[name]
    generator = np.random.default_rng(0)
    blocks = generator.standard_normal((256, 32)).astype(np.float32)
    blocks[:128] *= np.exp2(generator.integers(-90, 90, (128, 1))).astype(np.float32)
    blocks[100:128] *= np.exp2(generator.integers(-12, 12, (28, 32))).astype(np.float32)
    blocks[5] = 2.0**-100
    ours = quantize(torch.from_numpy(blocks), parse(name)).numpy()
    theirs = np.stack([gfloat.quantize_block(info, b.astype(np.float64), gfloat.compute_scale_amax) for b in blocks])
    assert np.array_equal(ours, theirs)


def test_a_block_of_the_smallest_normals_is_kept() -> None:
    x = torch.full((32,), 2.0**-126)
    for name in ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "mxint8"):
        assert torch.equal(quantize(x, parse(name)), x)


def test_along_regroups() -> None:
    x = torch.randn(32, 48, generator=torch.Generator().manual_seed(2))
    fmt = parse("bfp(3)")
    assert torch.equal(quantize(x, fmt.along(0)), quantize(x.t(), fmt).t())
    assert not torch.equal(quantize(x, fmt.along(0)), quantize(x, fmt))
    assert parse("mxfp4").along(0) == parse("mxfp4(axis=0)")
    assert parse("nvfp4").along(0).axis == 0


def test_regrouping_costs_accuracy() -> None:
    """A tensor grouped along one axis and then along the other loses a fifth more than grouped once."""
    x = torch.randn(512, 512, generator=torch.Generator().manual_seed(3))
    for mantissa in (2, 4):
        fmt = BlockFloat(mantissa)
        once = quantize(x, fmt)
        twice = quantize(once, fmt.along(0))
        assert (twice - x).norm() > 1.2 * (once - x).norm()


@pytest.mark.parametrize(("mantissa", "error"), [(2, 0.237), (3, 0.117), (4, 0.058), (8, 0.0036)])
def test_error_of_block_float_on_normal_numbers(mantissa: int, error: float) -> None:
    x = torch.randn(1 << 20, generator=torch.Generator().manual_seed(4))
    rounded = quantize(x, BlockFloat(mantissa, group=16))
    assert ((rounded - x).norm() / x.norm()).item() == pytest.approx(error, rel=0.01)


def test_relative_improvement_of_two_more_bits() -> None:
    """The measure by which FAST raises precision: 0.253 on normal numbers."""
    x = torch.randn(1 << 20, generator=torch.Generator().manual_seed(5))
    two, four = quantize(x, BlockFloat(2)), quantize(x, BlockFloat(4))
    assert ((four - two).abs().mean() / two.abs().mean()).item() == pytest.approx(0.253, rel=0.01)


def test_stochastic_block_float_is_unbiased() -> None:
    x = torch.full((1 << 18,), 0.3)
    x[::16] = 1.0
    rounded = quantize(x, BlockFloat(2), rounding="stochastic").view(-1, 16)[:, 1:]
    assert rounded.mean().item() == pytest.approx(0.3, abs=1.5e-3)


@pytest.mark.parametrize("scale", ["floor", "even", "ceil", "rceil"])
@pytest.mark.parametrize("element", ["e4m3fn", "e5m2", "fp6_e2m3", "fp4_e2m1", "float(3, 0, specials=none)"])
def test_a_format_says_whether_its_scales_clip(element: str, scale: str) -> None:
    fmt = parse(f"mx({element}, block=1, scale={scale})")
    largest = torch.linspace(1, 2, 4001)[:-1].unsqueeze(1)
    clips = bool((quantize(largest, fmt, rounding="up") < largest).any())
    assert clips == (fmt.unclipped is not None)
    for each in (fmt, fmt.unclipped or fmt):
        rounded = torch.cat([quantize(largest, each, rounding="stochastic", key=Key(seed)) for seed in range(40)])
        errors = rounded - largest.repeat(40, 1)
        deviation = float(errors.mean() / (errors.std() / len(errors) ** 0.5))
        assert deviation < -10 if each.unclipped else abs(deviation) < 4


def test_float64_blocks_are_rounded_once() -> None:
    x = torch.tensor([1.0, 0.125 + 2.0**-40, 0.125], dtype=torch.float64)
    assert quantize(x, BlockFloat(3)).tolist() == [1.0, 0.25, 0.0]


def test_an_absent_axis_is_an_error() -> None:
    with pytest.raises(FormatError, match=r"axis 2 does not exist in a tensor of shape \(4, 4\)"):
        quantize(torch.zeros(4, 4), BlockFloat(4, axis=2))


def test_random_patterns_agree() -> None:
    x = random_patterns(1 << 16, seed=8)
    for spelling in ("bfp(4)", "mxfp8_e4m3", "bfp(5, exponent=5)"):
        fmt = parse(spelling)
        same = same_bits(quantize(x, fmt), round_blocks(x, fmt, "nearest-even", None))
        assert same.all()


def test_nvfp4() -> None:
    """The definition, step by step in numpy."""
    x = torch.randn(64, 48, generator=torch.Generator().manual_seed(6)) * 5
    a = x.numpy().reshape(64, 3, 16)
    tensor = np.float32(np.abs(a).max() / np.float32(2688))
    ratio = np.abs(a).max(-1) / np.float32(6) / tensor
    scales = quantize(torch.from_numpy(ratio), parse("e4m3fn(overflow=saturate)")).numpy().clip(2.0**-9)
    whole = (scales * tensor)[..., None]
    expected = quantize(torch.from_numpy(a / whole), parse("fp4_e2m1")).numpy() * whole
    assert np.array_equal(quantize(x, parse("nvfp4")).numpy(), expected.reshape(64, 48))
    error = (quantize(x, parse("nvfp4")) - x).norm() / x.norm()
    assert error < (quantize(x, parse("mxfp4")) - x).norm() / x.norm()


def test_nvfp4_special_numbers() -> None:
    x = torch.tensor([1.0, float("nan"), float("inf"), -3.0])
    assert quantize(x, parse("nvfp4")).tolist()[1] == 0.0
    assert torch.isfinite(quantize(x, parse("nvfp4"))).all()
    assert quantize(torch.zeros(5), parse("nvfp4")).tolist() == [0.0] * 5
    assert quantize(torch.zeros(0, 4), parse("nvfp4")).shape == (0, 4)
