"""Scaled formats: Numba = torch fallback = reference, and the quantizers of the field."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from inputs import random_patterns, same_bits

from oracles.block_formats import quantize_values
from oracles.scaled_recipes import (
    Quantizer,
    deepgemm,
    deepseek,
    over_tiles,
    transformer_engine,
    transformer_engine_nvfp4,
)
from presilicon.base import FormatError
from presilicon.formats import BlockCodes, Key, Nvfp4, Scaled, Stochastic, decode, encode, parse, quantize
from presilicon.formats.kernels import passes

KEY = Key(seed=1, step=2, tensor="x")
ROUNDINGS = ["nearest-away", "toward-zero", "up", "down", "stochastic", Stochastic(5, "lfsr")]
FORMATS = [
    "scaled(e4m3fn)", "scaled(e5m2, margin=3)", "scaled(e4m3fn, scale=e8m0, least=1e-12)", "scaled(e4m3fn, per=row)",
    "scaled(e4m3fn, per=row, axis=0, apply=divide)", "scaled(e5m2, per=row, axis=1, apply=multiply, least=1e-4)",
    "scaled(e4m3fn, per=block, block=5)", "scaled(e4m3fn, per=block, block=5, axis=0, scale=e8m0)",
    "scaled(e5m2, per=block, block=3, axis=1, apply=divide, scale=e8m0)", "scaled(e4m3fn, per=tile, block=3)",
    "scaled(e4m3fnuz, per=tile, block=4, apply=divide, margin=1)",
    "scaled(fp4_e2m1, per=tile, block=2, apply=multiply)", "scaled(fixed(8, 0), per=row)",
    "scaled(fixed(4, 0), per=block, block=8, apply=divide)",
    "scaled(float(8, 7), per=row)", "nvfp4", "nvfp4(square=true, block=4)", "nvfp4(axis=0, apply=reciprocal)",
    "nvfp4(square=true, apply=reciprocal, block=3)", "nvfp4(apply=multiply, block=5)",
    "nvfp4(axis=1, tensor_scale=false)",
]  # fmt: skip


def hard_cases() -> torch.Tensor:
    """Rows of every magnitude: float32's ends, zeros, -0, one huge among small, NaN and infinities."""
    x = torch.randn(36, 8, generator=torch.Generator().manual_seed(0))
    x[:20] *= torch.exp2(torch.linspace(-149, 126, 20)).unsqueeze(1)
    x[20, 3] = 1e30
    x[21], x[22], x[23], x[24] = 0.0, -0.0, torch.finfo(torch.float32).max, 2.0**-149
    x[25, 2], x[26, 3], x[27, 4] = float("nan"), float("inf"), float("-inf")
    return x


def agree(x: torch.Tensor, spelling: str, rounding: str | Stochastic, monkeypatch: pytest.MonkeyPatch) -> None:
    fmt = parse(spelling)
    compiled = quantize(x, fmt, rounding=rounding, key=KEY)
    in_place = x.clone()
    quantize(in_place, fmt, rounding=rounding, key=KEY, out=in_place)
    strided = torch.empty(x.shape[::-1]).permute(tuple(reversed(range(x.dim()))))
    quantize(x.mT.contiguous().mT if x.dim() > 1 else x, fmt, rounding=rounding, key=KEY, out=strided)
    codes = encode(x, fmt, rounding=rounding, key=KEY)
    monkeypatch.setattr(passes, "has_numba", lambda: False)
    plain = quantize(x, fmt, rounding=rounding, key=KEY)
    judged = torch.tensor(quantize_values(x.flatten().tolist(), tuple(x.shape), fmt, rounding, KEY)).view(x.shape)
    for result in (compiled, in_place, strided.contiguous(), plain, decode(codes, fmt)):
        assert same_bits(result, judged).all()


@pytest.mark.parametrize("spelling", FORMATS)
def test_compiled_equals_torch_and_reference(spelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patterns = random_patterns(800, seed=3).view(4, 8, 25)
    for x in (hard_cases().view(6, 6, 8), patterns, patterns.nan_to_num(1.0, 2.0, 3.0)):
        agree(x, spelling, "nearest-even", monkeypatch)
        monkeypatch.undo()


@pytest.mark.parametrize("rounding", ROUNDINGS, ids=str)
@pytest.mark.parametrize("spelling", ["scaled(e4m3fn, per=row)", "scaled(e5m2, per=block, axis=0, apply=divide)"])
def test_every_rounding_agrees(spelling: str, rounding: str | Stochastic, monkeypatch: pytest.MonkeyPatch) -> None:
    agree(hard_cases().view(6, 6, 8), spelling, rounding, monkeypatch)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 33), (2, 3, 35), (0, 5), (5, 0), (130, 300)])
@pytest.mark.parametrize(
    "spelling",
    ["scaled(e4m3fn)", "scaled(e4m3fn, per=row)", "scaled(e4m3fn, per=block)", "scaled(e4m3fn, per=tile)",
     "scaled(e4m3fn, per=block, axis=0)", "scaled(e4m3fn, per=row, axis=0)", "nvfp4(square=true)"],
)  # fmt: skip
def test_shapes(spelling: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 3
    fmt = parse(spelling)
    compiled, codes = quantize(x, fmt), encode(x, fmt)
    monkeypatch.setattr(passes, "has_numba", lambda: False)
    assert torch.equal(compiled, quantize(x, fmt))
    assert torch.equal(decode(codes, fmt), compiled)
    assert isinstance(codes, BlockCodes)
    if x.numel() and isinstance(fmt, Scaled):
        assert torch.equal(codes.scales, fmt.factors(fmt.amax_of(x))[1])


def data(rows: int = 256, columns: int = 384) -> torch.Tensor:
    """A matrix whose rows and tiles span many magnitudes, with numbers that lie near ties of e4m3 in their blocks."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(rows, columns, generator=generator) * torch.exp2(torch.randn(rows, 1, generator=generator) * 6)
    x[128:, :128] *= 1e-20
    for left in range(0, columns, 128):
        ties = torch.randint(9, 31, (rows, 32), generator=generator) * 2 + 1
        x[:, left : left + 32] = ties / 2.0 * (x[:, left : left + 128].abs().amax(1, keepdim=True) / 448)
    return x


ORACLES: list[tuple[str, Quantizer, int, int]] = [
    ("scaled(e4m3fn)", transformer_engine(), 256, 384),
    ("scaled(e5m2)", transformer_engine("e5m2"), 256, 384),
    ("scaled(e4m3fn, scale=e8m0)", transformer_engine(power_of_two=True), 256, 384),
    ("scaled(e5m2, margin=2)", transformer_engine("e5m2", margin=2), 256, 384),
    ("scaled(e4m3fn, per=block)", transformer_engine(), 1, 128),
    ("scaled(e4m3fn, per=block, scale=e8m0)", transformer_engine(power_of_two=True), 1, 128),
    ("scaled(e4m3fn, per=block, axis=0, scale=e8m0)", transformer_engine(power_of_two=True), 128, 1),
    ("scaled(e4m3fn, per=tile, scale=e8m0)", transformer_engine(power_of_two=True), 128, 128),
    ("scaled(e4m3fn, per=tile)", transformer_engine(), 128, 128),
    ("scaled(e4m3fn, per=block, apply=divide)", deepseek, 1, 128),
    ("scaled(e4m3fn, per=tile, apply=divide)", deepseek, 128, 128),
    ("scaled(e4m3fn, per=block, apply=multiply, least=1e-4)", deepgemm(), 1, 128),
    ("scaled(e4m3fn, per=tile, apply=multiply, least=1e-4)", deepgemm(), 128, 128),
    ("scaled(e4m3fn, per=block, apply=multiply, least=1e-4, scale=e8m0)", deepgemm(ue8m0=True), 1, 128),
]


@pytest.mark.parametrize(("spelling", "oracle", "rows", "columns"), ORACLES, ids=[entry[0] for entry in ORACLES])
def test_recipes_equal_their_published_arithmetic(spelling: str, oracle: Quantizer, rows: int, columns: int) -> None:
    x, fmt = data(), parse(spelling)
    values, scales = over_tiles(x.numpy(), rows, columns, oracle)
    assert same_bits(quantize(x, fmt), torch.from_numpy(values)).all()
    codes = encode(x, fmt)
    assert isinstance(codes, BlockCodes)
    ours = codes.scales.mT if "axis=0" in spelling else codes.scales
    assert ours.flatten().tolist() == scales.tolist()


@pytest.mark.parametrize(
    ("spelling", "oracle", "rows", "columns"),
    [
        ("scaled(e4m3fn, per=block, apply=divide)", transformer_engine(), 1, 128),
        ("scaled(e4m3fn, per=block, apply=multiply)", transformer_engine(), 1, 128),
        ("scaled(e4m3fn, per=block, apply=multiply)", deepseek, 1, 128),
        ("scaled(e4m3fn, per=block)", deepgemm(), 1, 128),
        ("scaled(e4m3fn, per=tile)", transformer_engine(power_of_two=True), 128, 128),
    ],
)
def test_each_oracle_tells_the_recipes_apart(spelling: str, oracle: Quantizer, rows: int, columns: int) -> None:
    x = data()
    values, _ = over_tiles(x.numpy(), rows, columns, oracle)
    assert not torch.equal(quantize(x, parse(spelling)), torch.from_numpy(values))


@pytest.mark.parametrize("value", [1e-45, 1e-38, 3e-36, 3e38])
def test_scales_at_the_ends_of_float32_are_those_of_transformer_engine(value: float) -> None:
    x = torch.tensor([[value, -value / 3, 0.0, value / 2]])
    for spelling, power in (("scaled(e4m3fn)", False), ("scaled(e4m3fn, scale=e8m0)", True)):
        values, _ = over_tiles(x.numpy(), 1, 4, transformer_engine(power_of_two=power))
        assert same_bits(quantize(x, parse(spelling)), torch.from_numpy(values)).all()


@pytest.mark.parametrize(("square", "rows"), [(False, 1), (True, 16)])
def test_nvfp4_equals_transformer_engine(square: bool, rows: int) -> None:
    x = data(64, 96) * 1e-3
    oracle = transformer_engine_nvfp4(np.abs(x.numpy()).max())
    values, _ = over_tiles(x.numpy(), rows, 16, oracle)
    fmt = Nvfp4(square=square, apply="reciprocal")
    assert same_bits(quantize(x, fmt), torch.from_numpy(values)).all()
    assert not torch.equal(quantize(x, Nvfp4(square=not square, apply="reciprocal")), torch.from_numpy(values))


# torchao


def torchao_float8(x: torch.Tensor, dtype: torch.dtype, axis: int | None, power_of_two: bool) -> tuple:
    """Codes, scale (a multiplier before the cast) and values as `torch._scaled_mm` takes them."""
    from torchao.float8.config import ScalingGranularity
    from torchao.float8.float8_scaling_utils import hp_tensor_to_float8_dynamic
    from torchao.float8.float8_training_tensor import LinearMMConfig

    granularity = ScalingGranularity.TENSORWISE if axis is None else ScalingGranularity.AXISWISE
    theirs = hp_tensor_to_float8_dynamic(
        x, dtype, LinearMMConfig(), scaling_granularity=granularity, axiswise_dim=axis,
        round_scales_to_power_of_2=power_of_two,
    )  # fmt: skip
    inverse = theirs._scale.reciprocal()
    return theirs._data.view(torch.uint8), inverse, theirs._data.float() * inverse


@pytest.mark.parametrize("power_of_two", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("element", ["e4m3fn", "e5m2"])
def test_tensorwise_and_rowwise_equal_torchao(element: str, axis: int | None, power_of_two: bool) -> None:
    x = data()
    x[3], x[:, 5] = 0.0, 1e-30  # below torchao's smallest amax in some rows and columns
    dtype = {"e4m3fn": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[element]
    scale = "e8m0" if power_of_two else "float32"
    per = "tensor" if axis is None else f"row, axis={axis}"
    fmt = parse(f"scaled({element}, per={per}, scale={scale}, least=1e-12)")
    codes, scales, values = torchao_float8(x, dtype, axis, power_of_two)
    ours = encode(x, fmt)
    assert isinstance(ours, BlockCodes)
    assert torch.equal(ours.elements, codes)
    assert ours.scales.flatten().tolist() == scales.flatten().tolist()
    assert same_bits(quantize(x, fmt), values).all()
    assert not torch.equal(encode(x, fmt.along(1) if axis == 0 else replace(fmt, margin=1)).elements, codes)


@pytest.mark.parametrize("kind", ["act_quant_lhs", "act_quant_rhs", "weight_quant"])
def test_blocks_equal_torchao(kind: str) -> None:
    from torchao.prototype.blockwise_fp8_training import kernels

    x = data()
    x[0] = 0.0
    quantizer: Callable = getattr(kernels, f"torch_blockwise_scale_{kind}")
    fmt = {
        "act_quant_lhs": Scaled("e4m3fn", "block", least=1e-12),
        "act_quant_rhs": Scaled("e4m3fn", "block", axis=0, least=1e-12),
        "weight_quant": Scaled("e4m3fn", "tile", least=1e-12),
    }[kind]
    codes, scales = quantizer(x)
    ours = encode(x, fmt)
    assert isinstance(ours, BlockCodes)
    assert torch.equal(ours.elements, codes.view(torch.uint8))
    assert torch.equal(ours.scales.mT if kind == "act_quant_rhs" else ours.scales, scales)


def test_not_finite_numbers_poison_a_tensor_as_in_torchao() -> None:
    for special in (float("nan"), float("inf")):
        x = torch.tensor([[1.0, 2.0, special, 3.0]])
        _, _, values = torchao_float8(x, torch.float8_e4m3fn, None, False)
        assert values.isnan().all()
        assert quantize(x, parse("scaled(e4m3fn, least=1e-12)")).isnan().all()


def test_nvfp4_equals_torchao() -> None:
    from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize, per_tensor_amax_to_scale

    x = data(64, 96) * 1e-3
    scales, packed = nvfp4_quantize(x, per_tensor_scale=per_tensor_amax_to_scale(x.abs().max()))
    theirs = torch.stack([packed & 15, packed >> 4], -1).flatten(-2)
    ours = encode(x, Nvfp4(apply="multiply"))
    assert isinstance(ours, BlockCodes)
    assert torch.equal(ours.scales, scales.view(torch.uint8).long().view_as(ours.scales))
    same = ours.elements == theirs
    assert (same | (ours.elements & 7 == 0) & (theirs & 7 == 0)).all()  # torchao drops the sign of some zeros
    assert not torch.equal(encode(x, Nvfp4(apply="reciprocal")).scales, ours.scales)


@pytest.mark.parametrize("per", ["tensor", "row"])
def test_torch_multiplies_our_codes_and_scales(per: str) -> None:
    x, w, fmt = data(), data(128) * 0.3, parse(f"scaled(e4m3fn, per={per})")
    (a, b), values = (encode(x, fmt), encode(w, fmt)), [quantize(tensor, fmt).double() for tensor in (x, w)]
    assert isinstance(a, BlockCodes)
    assert isinstance(b, BlockCodes)
    codes = [codes.elements.view(torch.float8_e4m3fn) for codes in (a, b)]
    scale = b.scales.mT.contiguous() if per == "row" else b.scales
    kind = torch.bfloat16 if per == "row" else torch.float32
    product = torch._scaled_mm(codes[0], codes[1].mT, a.scales, scale, out_dtype=kind).double()
    exact, largest = values[0] @ values[1].mT, values[0].abs() @ values[1].abs().mT
    bound = largest * x.shape[1] * 2.0**-23 + exact.abs() * (2.0**-8 if per == "row" else 0.0)
    assert ((product - exact).abs() <= bound).all()
    assert ((product * 1.01 - exact).abs() > bound).any()


# Scales from outside


@pytest.mark.parametrize(
    "spelling", ["scaled(e4m3fn)", "scaled(e5m2, scale=e8m0, margin=1)", "scaled(e4m3fn, apply=divide)"]
)
def test_rounding_with_its_own_largest_magnitude_is_quantize(spelling: str) -> None:
    x, fmt = data(), parse(spelling)
    assert isinstance(fmt, Scaled)
    amax = fmt.amax_of(x)
    assert amax.shape == ()
    assert amax.item() == x.abs().max().item()
    for rounding in ("nearest-even", "stochastic"):
        assert torch.equal(
            fmt.round_with(x, amax, rounding=rounding, key=KEY), quantize(x, fmt, rounding=rounding, key=KEY)
        )


def test_rounding_with_a_smaller_magnitude_saturates(monkeypatch: pytest.MonkeyPatch) -> None:
    fmt = Scaled("e4m3fn")
    x = torch.tensor([1.0, -8.0, float("inf"), 0.25, float("nan"), -0.0])
    compiled = fmt.round_with(x, torch.tensor(2.0))
    assert compiled[[0, 1, 2, 3]].tolist() == [1.0, -2.0, 2.0, 0.25]
    assert compiled[4].isnan()
    monkeypatch.setattr(passes, "has_numba", lambda: False)
    assert same_bits(fmt.round_with(x, torch.tensor(2.0)), compiled).all()


def test_rounding_with_no_magnitude() -> None:
    x = torch.tensor([1.1, 700.0])
    assert Scaled("e4m3fn").round_with(x, torch.tensor(0.0)).tolist() == [1.125, 448.0]
    assert Scaled("e4m3fn").round_with(x, torch.tensor(float("nan"))).isnan().all()
    with pytest.raises(FormatError, match="round_with needs per=tensor, not per=row"):
        Scaled("e4m3fn", "row").round_with(x, torch.tensor(1.0))
    with pytest.raises(FormatError, match=r"amax must be a tensor of one number, not of shape \(2,\)"):
        Scaled("e4m3fn").round_with(x, x)


def test_only_rows_and_blocks_are_oriented() -> None:
    for per, is_oriented in (("tensor", False), ("row", True), ("block", True), ("tile", False)):
        fmt = parse(f"scaled(e4m3fn, per={per})")
        assert fmt.is_oriented == is_oriented
        assert (fmt.along(0) != fmt) == is_oriented
    assert not parse("nvfp4(square=true)").is_oriented
    x = data(40, 50)
    assert torch.equal(quantize(x.mT, parse("nvfp4(square=true)")), quantize(x, parse("nvfp4(square=true)")).mT)


def test_an_absent_axis_is_an_error() -> None:
    for per in ("row", "block"):
        with pytest.raises(FormatError, match=r"axis 2 does not exist in a tensor of shape \(4, 4\)"):
            quantize(torch.ones(4, 4), Scaled("e4m3fn", per, axis=2))  # type: ignore[arg-type]
